"""The list of chats, search and personas."""
