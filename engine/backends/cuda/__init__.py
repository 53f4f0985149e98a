"""The engine on NVIDIA GPUs: kernels in Python, compiled by Numba-CUDA, launched through the driver.

This package imports nothing itself.
"""
