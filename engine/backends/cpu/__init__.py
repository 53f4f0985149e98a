"""The CPU backend: Numba kernels, called by a pool of threads that replays a recorded pass."""
