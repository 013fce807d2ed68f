"""A file or a room per format: where rows come from and where they go."""
