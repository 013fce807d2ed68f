"""Chunked arrays: a grid of chunks, each at a place, with a chain of codecs and a fill value.

``stored`` says which rows are in which chunk, ``codecs`` decodes chunks, ``array`` reads rows.
HDF5 and Zarr say where chunks are stored.
"""
