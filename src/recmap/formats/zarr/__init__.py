"""Zarr: the source, the sink and their building blocks.

Only ``sink`` and ``store`` import zarr. ``attributes`` does not, so that a conversion can
check whether recmap wrote a folder without it.
"""
