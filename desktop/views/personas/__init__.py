"""Personas, and the participants of a chat."""
