"""Threads of Perplexity: what its site loads and exporters save, what other exporters make of it, and the
Markdown that the site itself exports.

Shapes, as readers and writers of them on GitHub say it: `entries` with a `query_str` and blocks
(TGRRRR/perplexport, src/types/conversation.ts); `conversations` of a query and its answer under `metadata`
(Superkikim/nexus-ai-chat-importer, src/providers/perplexity).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from desktop.store.transfer.importers.fields import content_key, first_text, items, mapping, rest, text
from desktop.store.transfer.importers.programs.message_lists.chat import Chat, chat_record
from desktop.store.transfer.importers.programs.message_lists.message import first_time
from desktop.store.transfer.importers.protocol import Note
from desktop.store.transfer.records import ConversationRecord

__all__ = ["Perplexity", "perplexity_chat"]

_MADE = ("entry_created_datetime", "timestamp", "entry_updated_datetime", "updated_datetime")
_CHANGED = ("entry_updated_datetime", "updated_datetime", "timestamp", "entry_created_datetime")
_LOGO = re.compile(r"<img src=\"https://[\w.-]{1,60}/pplx-[^>\n]*>\s*")
_TURN = re.compile(
    r"^ {0,3}(?P<fence>`{3,}|~{3,})[^\n]*\n(?s:.*?)(?:^ {0,3}(?P=fence)[`~]*[ \t]*$|\Z)"
    r"|(?:\A|^---\n\n)# (?P<asked>.+)\n",
    re.MULTILINE,
)
"""Code, in which nothing counts, or the heading that begins a turn."""
_UNSEEN = re.compile(r"<span style=\"display:none\">[^<]*</span>|<div align=\"center\">⁂</div>")
_INNER_LINK = re.compile(r"\[([^\[\]\n]*)\]\(pplx://[^()\s]*\)")


class Perplexity:
    source, label = "perplexity", "Perplexity"

    def recognises(self, value: Any) -> bool:
        about = mapping(value)
        if "query_str" in mapping(next(iter(items(about.get("entries"))), None)):
            return True
        first = mapping(next(iter(items(about.get("conversations"))), None))
        return "query" in first and "answer" in first and isinstance(about.get("metadata"), dict)

    def read(self, value: Any, note: Note) -> ConversationRecord:
        turns = [mapping(turn) for turn in items(value.get("entries")) or items(value["conversations"])]
        if all(first_time(turn, *_MADE) is not None for turn in turns):
            turns.sort(key=lambda turn: first_time(turn, *_MADE) or 0.0)
        about = mapping(value.get("thread_metadata")) | mapping(value.get("metadata"))
        entries = [entry for turn in turns for entry in _entries(turn)]
        key = first_text(turns[0].get("context_uuid"), about.get("thread_id"), turns[0].get("uuid"))
        title = first_text(about.get("title"), about.get("thread_title"), turns[0].get("thread_title"))
        folder = " ".join(text(mapping(turns[0].get("collection_info")).get("title")).split())
        return chat_record(
            Chat(
                self.source, entries, key, title,
                first_time(about, "created_at", "thread_created_at"),
                first_time(about, "updated_at", "thread_updated_at") or first_time(turns[-1], *_CHANGED),
                folder=(folder,) if folder else (),
            ),
            note,
        )  # fmt: skip


def _entries(turn: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The question and its answer, with the pages that were found for it."""
    time = {"timestamp": first_time(turn, *_MADE)}
    yield time | {"role": "user", "content": first_text(turn.get("query_str"), turn.get("query"))}
    model = first_text(turn.get("display_model"), turn.get("model"), turn.get("user_selected_model"))
    blocks = [mapping(block) for block in items(turn.get("blocks"))]
    answer = text(turn.get("answer")) or next(filter(None, map(_answer, blocks)), "")
    sources = [*items(turn.get("sources"))]
    for block in blocks:
        sources += items(mapping(block.get("web_result_block")).get("web_results"))
    kept = {"sources": [rest(mapping(one)) for one in sources]} if sources else {}
    yield time | {"role": "assistant", "content": _INNER_LINK.sub(r"\1", answer), "model": model} | kept


def _answer(block: dict[str, Any]) -> str:
    said = mapping(block.get("markdown_block"))
    return text(said.get("answer")) or "".join(map(text, items(said.get("chunks"))))


def perplexity_chat(words: str, name: str) -> Chat | None:
    """The thread in the Markdown that Perplexity writes; None for any other text. The first line of a
    question is a heading; the lines below it cannot be told from the answer, and stay with it.
    """
    logo = _LOGO.match(words)
    said = words[logo.end() :] if logo is not None else ""
    marks = [mark for mark in _TURN.finditer(said) if mark["asked"]]
    if not marks:
        return None
    ends = [mark.start() for mark in marks[1:]] + [len(said)]
    entries = []
    for mark, end in zip(marks, ends, strict=True):
        answer = _UNSEEN.sub("", said[mark.end() : end]).strip()
        entries += [{"role": "user", "content": mark["asked"]}, {"role": "assistant", "content": answer}]
    title = name.rpartition(".")[0]
    return Chat("perplexity", entries, content_key(entries[:1]), title)
