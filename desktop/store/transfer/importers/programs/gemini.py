"""Gemini in Google's Takeout: `MyActivity.json`, a list of prompts, each with the answer as HTML.

The file does not say which prompts belong to one chat, so each becomes a chat of its own. Its form is that of
every "My Activity", as readers of it on GitHub say it; names in it are in the user's language. The same in
HTML is read by `gemini_page.py`.
"""

from __future__ import annotations

import re
from typing import Any

from desktop.store.attachments.documents.markdown import from_html
from desktop.store.transfer.importers.fields import content_key, items, mapping, rest, text
from desktop.store.transfer.importers.programs.message_lists.chat import Chat, chat_record
from desktop.store.transfer.importers.programs.message_lists.message import first_time
from desktop.store.transfer.importers.protocol import Note
from desktop.store.transfer.records import ConversationRecord

__all__ = ["PRODUCT", "Gemini"]

PRODUCT = re.compile(r"\b(?:Gemini|Bard)\b")
"""The product's name, in "Gemini Apps", "Gemini-Apps" and "Aplicaciones de Gemini"."""
_VERB = re.compile(r"(?:Prompted|Asked|Said|Branched|Answered)(?: with)?:?[ \xa0]")
_TAG = re.compile(r"<[^>]{0,2000}>")
_READ = (
    "header",
    "title",
    "time",
    "products",
    "safeHtmlItem",
    "activityControls",
    "attachedFiles",
    "imageFile",
)


class Gemini:
    source, label = "gemini", "Gemini"

    def recognises(self, value: Any) -> bool:
        about = mapping(value)
        names = (text(name) for name in (about.get("header"), *items(about.get("products"))))
        asked = isinstance(about.get("title"), str) and "time" in about
        return asked and any(map(PRODUCT.search, names)) and bool(items(about.get("safeHtmlItem")))

    def read(self, value: Any, note: Note) -> ConversationRecord:
        asked = (
            _VERB.sub("", text(value["title"]), count=1) if _VERB.match(value["title"]) else value["title"]
        )
        answered = [_markdown(text(mapping(item).get("html"))) for item in items(value["safeHtmlItem"])]
        files = [name for name in (*items(value.get("attachedFiles")), value.get("imageFile")) if text(name)]
        entries: list[dict[str, Any]] = [
            {"role": "user", "content": asked, "files": [{"name": name} for name in files]},
            {"role": "assistant", "content": "\n\n".join(answered)},
        ]
        made = first_time(value, "time")
        key = content_key([value["title"], value["time"]])
        named = [entry | {"timestamp": value["time"]} for entry in entries]
        return chat_record(
            Chat(self.source, named, key, "", made, made, folder=(self.label,), kept=rest(value, *_READ)),
            note,
        )


def _markdown(html: str) -> str:
    try:
        return from_html(html)
    except RecursionError:  # elements within elements, more than a page has
        return _TAG.sub("", html)
