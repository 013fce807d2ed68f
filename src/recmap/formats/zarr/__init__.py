"""Zarr: the source and the sink, and what they are made of."""
