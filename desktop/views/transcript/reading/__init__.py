"""Reading with the caret: the messages as a list, and the chosen one as a document for screen readers."""
