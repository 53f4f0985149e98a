"""Families that read one square picture of a fixed size."""
