"""HDF5: the source, the sink and their building blocks. Only ``file`` imports h5py."""
