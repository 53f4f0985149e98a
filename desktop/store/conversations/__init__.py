"""Conversations, their messages, and what belongs to them: folders, personas, drafts, the queue."""
