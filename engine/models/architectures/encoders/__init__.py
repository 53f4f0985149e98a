"""Encoders, whose attention goes both ways: they make embeddings."""
