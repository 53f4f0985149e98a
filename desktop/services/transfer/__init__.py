"""Import and export on a thread of their own."""
