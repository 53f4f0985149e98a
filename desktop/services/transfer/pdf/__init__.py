"""Prints a conversation as PDF: pieces of rich text, laid out on pages, with an outline and page numbers."""
