"""The models that are on this computer already."""
