"""The machine: CPUs, memory, threads, and files that are mapped."""
