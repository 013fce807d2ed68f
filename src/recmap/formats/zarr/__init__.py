"""Zarr: the source, the sink and their building blocks.

Conversions use ``attributes`` without zarr, to check whether recmap wrote a folder.
"""
