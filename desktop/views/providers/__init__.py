"""Servers that run models: the page where they are added, tested and chosen."""
