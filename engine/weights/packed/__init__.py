"""Quantised formats of safetensors folders, which store a matrix as codes, scales and zero points."""
