"""Llama, and what differs from it in names, biases, norms of queries and keys, or factors."""
