"""The engine of ``rm.convert``: write the rows of any source to files of any format."""
