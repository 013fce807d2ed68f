"""Pipelines for training loops: reorder, transform, batch, shard and resume rows."""
