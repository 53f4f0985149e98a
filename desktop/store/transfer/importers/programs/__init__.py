"""One module for each program whose chats can be read, or for a form that several share."""
