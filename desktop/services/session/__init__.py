"""The open conversation: its turns, its participants, what can be undone."""
