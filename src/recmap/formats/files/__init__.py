"""One file per sample: the files below a folder are rows, with classes or labels beside them."""
