"""One table per file; each has a ``measure`` that makes it."""
