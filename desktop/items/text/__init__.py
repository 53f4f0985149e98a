"""Tokens as text, and positions in texts."""
