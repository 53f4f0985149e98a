"""The window of the server for other programs."""
