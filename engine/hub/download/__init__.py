"""Downloads that can be interrupted, and the starter model."""
