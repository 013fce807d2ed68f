"""HDF5: the source and the sink, and what they are made of. Only ``library`` imports h5py."""
