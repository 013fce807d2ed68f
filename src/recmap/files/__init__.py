"""Files of any format: find, recognise, map and write them."""
