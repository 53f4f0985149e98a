"""Building blocks of kernels, and compiling them once."""
