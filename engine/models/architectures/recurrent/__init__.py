"""Layers that keep a state instead of keys and values, alone or between layers of attention."""
