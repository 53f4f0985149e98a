"""Conversations as one web page that needs nothing else: no script, no request to any server, light and dark, fit for print."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any

from desktop.store.exchange import ConversationRecord, MessageRecord
from desktop.store.exporters.reading import label, pieces, shown_path, when

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

__all__ = ["html_page"]

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1e; background: #fff; }
h1 { font-size: 1.5rem; } .date, h2 { color: #5c5c66; } h2 { font-size: .95rem; margin: 2rem 0 .4rem; }
.user { background: #f0f1f4; border-radius: 10px; padding: .7rem 1rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.system { white-space: pre-wrap; border-left: 3px solid #c4c6d0; padding-left: 1rem; }
.thoughts { color: #5c5c66; border-left: 3px solid #c4c6d0; padding-left: 1rem; margin: .6rem 0; }
pre { background: #f6f7f9; border: 1px solid #dcdde3; border-radius: 8px; padding: .7rem 1rem; overflow-x: auto; }
pre { direction: ltr; text-align: left; }
code { font-family: ui-monospace, monospace; font-size: .9em; }
table { border-collapse: collapse; } th, td { border: 1px solid #c4c6d0; padding: .25rem .6rem; }
blockquote { margin-left: 0; padding-left: 1rem; border-left: 3px solid #c4c6d0; }
@media (prefers-color-scheme: dark) {
  body { color: #ececf0; background: #1b1b1f; } .date, h2, .thoughts { color: #a9a9b4; } a { color: #8ab4ff; }
  .user { background: #2a2b31; } pre { background: #232429; border-color: #3a3b43; }
  .system, .thoughts, blockquote { border-color: #4a4b55; } th, td { border-color: #4a4b55; }
}
@media print {
  body { max-width: none; margin: 0; } pre { white-space: pre-wrap; } h2 { break-after: avoid; }
  .user { break-inside: avoid; }
}
"""


def html_page(conversations: Iterable[ConversationRecord], title: str = "") -> Iterator[str]:
    """Pieces of the page's text, one conversation at a time. Without a title, the first conversation gives it."""
    is_first = True
    for conversation in conversations:
        if is_first:
            yield _head(title or conversation.title or "Conversation")
        yield ("" if is_first else "<hr>\n") + "".join(_article(conversation))
        is_first = False
    if is_first:
        yield _head(title or "Conversations")
    yield "</body>\n</html>\n"


def _head(title: str) -> str:
    return (
        '<!DOCTYPE html>\n<html>\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(' '.join(title.split()))}</title>\n<style>{_STYLE}{_code_style()}</style>\n</head>\n<body>\n"
    )


def _article(conversation: ConversationRecord) -> Iterator[str]:
    title = " ".join(conversation.title.split()) or "Conversation"
    yield f'<article>\n<h1 dir="auto">{escape(title)}</h1>\n'
    if made := when(conversation.created_at):
        yield f'<p class="date">{made}</p>\n'
    if conversation.system_prompt.strip():
        yield f'<h2>System prompt</h2>\n<div class="system" dir="auto">{_plain(conversation.system_prompt)}</div>\n'
    for message in shown_path(conversation):
        yield from _message(message)
    yield "</article>\n"


def _message(message: MessageRecord) -> Iterator[str]:
    made = when(message.created_at)
    yield f"<h2>{escape(label(message))}" + (f" · {made}" if made else "") + "</h2>\n"
    if message.role == "user":
        yield f'<div class="user" dir="auto">{_plain(message.text)}</div>\n'
        return
    for is_thought, text in pieces(message.text):
        kind = "thoughts" if is_thought else "text"
        yield f'<div class="{kind}" dir="auto">\n{_rendered(text)}</div>\n'


def _plain(text: str) -> str:
    return escape(text.strip("\n"))


def _rendered(text: str) -> str:
    """Markdown as HTML; HTML within it is shown as text, and pictures as links, because they would be fetched."""
    return str(_renderer().render(text))


@lru_cache(maxsize=1)
def _renderer() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False, "highlight": _highlighted}).enable(["table", "strikethrough"]).disable("image")


_MOST_HIGHLIGHTED = 100_000


def _highlighted(code: str, language: str, _attributes: Any) -> str:
    """The code with Pygments' classes; empty, which leaves it plain, for a language that is not known."""
    if not language or len(code) > _MOST_HIGHLIGHTED:
        return ""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return str(highlight(code, get_lexer_by_name(language, stripnl=False), HtmlFormatter(nowrap=True)))
    except ClassNotFound:
        return ""


@lru_cache(maxsize=1)
def _code_style() -> str:
    from pygments.formatters import HtmlFormatter

    light = HtmlFormatter(style="default").get_style_defs("pre")
    dark = HtmlFormatter(style="monokai").get_style_defs("pre")
    rules = [[line for line in style.splitlines() if line.startswith("pre .")] for style in (light, dark)]
    return "\n".join(rules[0]) + "\n@media (prefers-color-scheme: dark) {\n" + "\n".join(rules[1]) + "\n}\n"
