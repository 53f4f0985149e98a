"""Open WebUI: its export of chats, and its database."""
