"""Files on disk, and what a location is, wherever it is."""
