"""Finds the models that are already on this computer."""
