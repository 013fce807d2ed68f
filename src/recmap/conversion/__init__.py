"""Rows from any source into files of any format: the engine of ``rm.convert``."""
