"""Chats, messages and what was found in them."""
