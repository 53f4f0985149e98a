"""The list of chats, folders, search and trash."""
