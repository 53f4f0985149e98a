"""Dialogs that several rooms use: questions and notices, files, and forms that save as they are changed."""
