"""Widgets and drawing shared by all rooms."""
