"""One file per pipeline verb."""
