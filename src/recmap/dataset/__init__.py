"""Dataset and rm.open: the rows and columns of any source."""
