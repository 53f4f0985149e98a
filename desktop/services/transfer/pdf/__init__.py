"""A conversation printed as PDF."""
