"""The server through which other programs use the loaded model."""
