"""Families that read a picture as large as it is, up to a limit of patches."""
