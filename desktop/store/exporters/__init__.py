"""Conversations into files for people and programs: Markdown, a web page, and JSON that loses nothing."""

from desktop.store.exporters.html import html_page
from desktop.store.exporters.markdown import markdown
from desktop.store.exporters.own import own_json
from desktop.store.exporters.write import FORMATS, export_conversations

__all__ = ["FORMATS", "export_conversations", "html_page", "markdown", "own_json"]
