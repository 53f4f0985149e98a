"""The engine's thread, the model on it, and the reply that runs."""
