"""Choosing, loading and downloading models."""
