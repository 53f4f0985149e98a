"""Formulas: drawn as images in another process, and put on the baseline of rich text."""
