"""Zarr: the source, the sink and their building blocks.

Only ``source`` and ``sink`` import zarr. A conversion can use ``attributes`` without zarr, to
check whether recmap wrote a folder.
"""
