"""Tests kernels when a GPU is first used, and replaces them with torch's operations if one is wrong."""
