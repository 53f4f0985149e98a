"""Files within messages."""
