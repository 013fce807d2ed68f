"""Pipelines as other frameworks take them: a file for each, imported when it is asked for."""
