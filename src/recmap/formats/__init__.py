"""The sources and sinks: one module or package per format."""
