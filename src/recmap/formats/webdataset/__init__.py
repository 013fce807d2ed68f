"""WebDataset: tar files in which members that share a name are one sample."""
