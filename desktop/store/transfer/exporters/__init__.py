"""Writes conversations as Markdown, as a web page, as pieces for print, and as JSON that loses nothing."""
