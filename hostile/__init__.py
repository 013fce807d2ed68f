"""Random cases against recmap, for as long as they are told to run: ``python -m hostile``."""
