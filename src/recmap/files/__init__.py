"""Files of any format: finding, mapping and writing them."""
