"""C kernels for CPUs, compiled for this processor on first use."""
