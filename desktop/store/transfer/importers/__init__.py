"""Reads conversations from files of this and other programs: one module a format, recognised by content."""

from desktop.store.transfer.importers.formats import FORMATS, LINE_FORMATS, labels
from desktop.store.transfer.importers.run import import_conversations

__all__ = ["FORMATS", "LINE_FORMATS", "import_conversations", "labels"]
