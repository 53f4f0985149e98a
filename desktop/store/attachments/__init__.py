"""Files within messages: reading their text, and writing it into a message."""
