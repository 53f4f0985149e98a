"""Widgets and nothing else: they show what services and items hold, and emit what the user does."""
