"""Zarr: the source, the sink, and what they are made of.

Only ``sink`` and ``store`` import zarr: a conversion asks ``attributes`` who wrote a folder,
and needs no zarr for that.
"""
