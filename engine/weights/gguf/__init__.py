"""GGUF: the container, its metadata, and the decoding of its block types."""
