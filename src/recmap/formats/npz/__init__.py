"""NumPy .npz files: a zip of .npy arrays."""
