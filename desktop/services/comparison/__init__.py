"""Replies that are compared: several to one message, side by side."""
