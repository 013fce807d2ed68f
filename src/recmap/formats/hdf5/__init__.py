"""HDF5: the source, the sink, and what they are made of. Only ``file`` imports h5py."""
