"""Kernels that prove themselves at a GPU's first use, and torch's operations in the place of those that
are wrong.
"""
