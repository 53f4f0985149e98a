"""Conversations and what belongs to them."""
