"""Transforms plain matrices while they are loaded: quantises or transposes them."""
