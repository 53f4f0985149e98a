"""Servers of tools: their window, and what keeps the button in the composer in step with them."""
