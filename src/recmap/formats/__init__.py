"""One file per format: where rows come from and where they go."""
