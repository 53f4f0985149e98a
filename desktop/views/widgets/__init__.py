"""Widgets and drawing that every room uses."""
