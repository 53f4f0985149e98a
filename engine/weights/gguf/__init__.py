"""GGUF: the container, its metadata, and its block types as plain numbers."""
