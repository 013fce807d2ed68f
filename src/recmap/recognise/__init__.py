"""What a file is, told by how it begins."""
