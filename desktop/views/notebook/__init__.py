"""Notebooks: a text that the user and the model write in turn."""
