"""The chat list, its search, and personas."""
