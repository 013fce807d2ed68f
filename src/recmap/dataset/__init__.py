"""Dataset and rm.open: rows and columns over any source."""
