"""Files that are lists of messages: one reader of a message, one of a chat, and a table of programs."""
