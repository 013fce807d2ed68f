"""The disk cache of objects."""
