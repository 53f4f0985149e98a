"""Conversations as files of this program and of others."""
