"""Families that cut a picture into tiles, slices or overlapping crops of one size."""
