"""Random cases that try to break recmap, for as long as you like: ``python -m hostile``."""
