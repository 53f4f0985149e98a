"""Conversations into files for people and programs: Markdown, a web page, and JSON that loses nothing."""
