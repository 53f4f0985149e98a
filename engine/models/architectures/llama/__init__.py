"""Llama, and what differs from it in names, biases, factors or a single part."""
