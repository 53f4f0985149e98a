"""Tokenizers that the `tokenizers` library does not know, with its interface."""
