"""Who does the work of a pipeline: the caller, threads or processes."""
