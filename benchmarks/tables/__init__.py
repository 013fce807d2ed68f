"""One table per file; each has a function ``measure`` that makes it."""
