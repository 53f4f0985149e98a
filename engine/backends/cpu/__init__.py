"""The CPU backend: Numba kernels, recorded once and replayed by one `nogil` call for each step."""
