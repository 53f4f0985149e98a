"""The kernels, by operation."""
