"""Rows of text: CSV, TSV and JSON Lines, plain or compressed."""
