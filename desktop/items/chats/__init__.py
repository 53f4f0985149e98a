"""Chats, messages and search results."""
