"""TFDS folders: one version of a dataset, as ``tensorflow_datasets`` writes it."""
