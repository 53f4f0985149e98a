"""Import and export of chats."""
