"""One widget for each kind of row."""
