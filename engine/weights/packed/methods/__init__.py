"""The readers of packed folders, one for each tool that writes them."""
