"""Servers that run models: those that the user has added, and their models."""
