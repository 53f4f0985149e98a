"""Drafters: small models that can do nothing without the main model they draft for."""
