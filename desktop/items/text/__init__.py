"""Words and places in texts."""
