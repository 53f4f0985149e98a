"""Gemini in Google's Takeout: `MyActivity.json`, a list of prompts, each with the answer as HTML.

The file does not say which prompts belong to one chat, so each becomes a chat of its own. Its form is that of
every "My Activity", as readers of it on GitHub say it.
"""

from __future__ import annotations

import re
from typing import Any

from desktop.store.attachments.documents.markdown import from_html
from desktop.store.transfer.importers.fields import content_key, items, mapping, rest, text
from desktop.store.transfer.importers.message_lists.chat import Chat, chat_record
from desktop.store.transfer.importers.message_lists.message import first_time
from desktop.store.transfer.importers.protocol import Note
from desktop.store.transfer.records import ConversationRecord

__all__ = ["Gemini"]

_PRODUCTS = ("Gemini Apps", "Gemini", "Bard")
_VERB = re.compile(r"(?:Prompted|Asked|Said|Branched|Answered)(?: with)?:? ")
_TAG = re.compile(r"<[^>]{0,2000}>")


class Gemini:
    source, label = "gemini", "Gemini"

    def recognises(self, value: Any) -> bool:
        about = mapping(value)
        names = [about.get("header"), *items(about.get("products"))]
        asked = isinstance(about.get("title"), str) and "time" in about
        return asked and any(name in _PRODUCTS for name in names) and bool(items(about.get("safeHtmlItem")))

    def read(self, value: Any, note: Note) -> ConversationRecord:
        asked = (
            _VERB.sub("", text(value["title"]), count=1)
            if _VERB.match(text(value["title"]))
            else text(value["title"])
        )
        answered = [_markdown(text(mapping(item).get("html"))) for item in items(value["safeHtmlItem"])]
        entries = [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": "\n\n".join(answered)},
        ]
        made = first_time(value, "time")
        kept = rest(value, "header", "title", "time", "products", "safeHtmlItem", "activityControls")
        key = content_key([value["title"], value["time"]])
        named = [entry | {"timestamp": value["time"]} for entry in entries]
        return chat_record(
            Chat(self.source, named, key, "", made, made, folder=(self.label,), kept=kept), note
        )


def _markdown(html: str) -> str:
    try:
        return from_html(html)
    except RecursionError:  # elements within elements, more than a page has
        return _TAG.sub("", html)
