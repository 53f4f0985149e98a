"""Quantised formats of safetensors folders: codes, scales and zero points in several tensors for one
matrix.
"""
