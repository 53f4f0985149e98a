"""Conversations as one self-contained web page: no scripts, no requests, light and dark, fit for printing."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any

from desktop.blocks.addresses import add_addresses
from desktop.blocks.latex import math_ml
from desktop.blocks.spans import SpanKind
from desktop.store.attachments.pictures import StoredPicture
from desktop.store.conversations.records import NOTEBOOK
from desktop.store.transfer.exporters.directions import add_directions
from desktop.store.transfer.exporters.footnotes import add_footnotes
from desktop.store.transfer.exporters.formulas import INLINE, ROW, add_formulas
from desktop.store.transfer.exporters.inline_html import add_inline_html
from desktop.store.transfer.exporters.pictures import as_html, as_markdown
from desktop.store.transfer.exporters.reading import label, named_path, opened_in, pieces, when
from desktop.store.transfer.exporters.tasks import add_tasks
from desktop.store.transfer.records import ConversationRecord, MessageRecord
from engine.words import _

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

__all__ = ["code_style", "highlighted", "html_page", "make_renderer", "renderer"]

_STYLE = """
body { font-family: system-ui, sans-serif; color: #1c1c1e; background: #fff; }
body { max-width: 46em; margin: 32px auto; padding: 0 16px; }
article > h1 { font-size: 26px; }
article > h2 { font-size: 15px; margin: 28px 0 6px; }
summary { font-size: 14px; margin: 10px 0; }
h1, h2, h3, h4, h5, h6 { line-height: 1.3; margin: 1.2em 0 0.5em; }
.text h1, .thoughts h1 { font-size: 1.45em; }
.text h2, .thoughts h2 { font-size: 1.25em; }
.text h3, .thoughts h3 { font-size: 1.1em; }
h4, h5, h6 { font-size: 1em; }
.date, article > h2, summary, .thoughts { color: #5c5c66; }
.text, .thoughts { overflow-wrap: break-word; }
.user { background: #f0f1f4; border-radius: 10px; padding: 11px 16px; }
.user, .system, .document { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: plaintext; }
.system, .thoughts, blockquote { border-inline-start: 3px solid #c4c6d0; padding-inline-start: 16px;
  margin: 10px 0; }
pre, code { font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 14px; }
pre { background: #f6f7f9; border: 1px solid #dcdde3; border-radius: 8px; padding: 11px 16px;
  overflow-x: auto; }
pre, code { direction: ltr; text-align: left; unicode-bidi: isolate; }
ul > .task { list-style: none; margin-inline-start: -1.3em; }
img { max-width: 100%; }
.wide { overflow-x: auto; margin: 14px 0; }
table { border-collapse: collapse; }
.notes { border-top: 1px solid #c4c6d0; margin-top: 20px; padding-top: 8px; font-size: 0.9em; }
th, td { border: 1px solid #c4c6d0; padding: 4px 10px; }
.formula { overflow-x: auto; overflow-y: hidden; margin: 14px 0; text-align: center; }
.formula code { white-space: pre-wrap; }
mtd[columnalign="left"] { text-align: left; }
mtd[columnalign="right"] { text-align: right; }
"""
_DARK = """
:root { color-scheme: dark; }
body { color: #ececf0; background: #1b1b1f; }
.date, article > h2, summary, .thoughts { color: #a9a9b4; }
a { color: #8ab4ff; }
.user { background: #2a2b31; }
pre { background: #232429; border-color: #3a3b43; }
.system, .thoughts, .notes, blockquote, th, td { border-color: #4a4b55; }
"""
_PRINT = """
@media all { body { line-height: 1.55; } }
@media print {
body { max-width: none; margin: 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.wide, .formula { overflow-x: visible; }
h1, h2, h3, h4, h5, h6 { break-after: avoid; }
.user { break-inside: avoid; }
::details-content { content-visibility: visible; }
}
"""
_MOST_HIGHLIGHTED = 100_000


def html_page(conversations: Iterable[ConversationRecord], title: str = "") -> Iterator[str]:
    """Yield the text of the page, a part of a message at a time.

    Without a title, the first conversation provides it.
    """
    is_first = True
    pages = itertools.count(1)
    for conversation in conversations:
        if is_first:
            yield _head(title or conversation.title.strip() or _("Chat"))
        yield "" if is_first else "<hr>\n"
        yield from _article(conversation, pages)
        is_first = False
    if is_first:
        yield _head(title or _("Chats"))
    yield "</body>\n</html>\n"


def _head(title: str) -> str:
    return (
        '<!DOCTYPE html>\n<html>\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(' '.join(title.split()))}</title>\n<style>{_style()}</style>\n</head>\n<body>\n"
    )


def _article(conversation: ConversationRecord, pages: Iterator[int]) -> Iterator[str]:
    title = " ".join(conversation.title.split()) or _("Chat")
    yield f'<article>\n<h1 dir="auto">{escape(title)}</h1>\n'
    if made := when(conversation.created_at):
        yield f'<p class="date">{made}</p>\n'
    if conversation.system_prompt.strip() and conversation.kind != NOTEBOOK:
        yield (
            f'<h2>{_("System prompt")}</h2>\n<div class="system" '
            f'dir="auto">{_plain(conversation.system_prompt)}</div>\n'
        )
    for message, is_named in named_path(conversation):
        if conversation.kind == NOTEBOOK:
            yield f'<div class="document" dir="auto">{_plain(message.text)}</div>\n'
        else:
            yield from _message(message, is_named, pages, conversation.pictures)
    yield "</article>\n"


def _message(
    message: MessageRecord, is_named: bool, pages: Iterator[int], pictures: Mapping[str, StoredPicture]
) -> Iterator[str]:
    """`pages` numbers the texts, to distinguish the footnotes of each. Calls of tools are folded."""
    made = when(message.created_at)
    head = f"<bdi>{escape(label(message))}</bdi>" + (f" · {made}" if made else "")
    called = message.call is not None
    if called:
        yield f"<details>\n<summary>{head}</summary>\n"
    elif is_named:
        yield f"<h2>{head}</h2>\n"
    if message.role == "user":
        yield f'<div class="user" dir="auto">{as_html(message.text.strip(chr(10)), pictures)}</div>\n'
        return
    for is_thought, text in pieces(as_markdown(message.text, pictures), opened_in(message)):
        kind = "thoughts" if is_thought else "text"
        yield f'<div class="{kind}">\n{_rendered(text, next(pages))}</div>\n'
    if called:
        yield "</details>\n"


def _plain(text: str) -> str:
    return escape(text.strip("\n"))


def _rendered(text: str, page: int) -> str:
    """Markdown as HTML; HTML that does more than format is shown as text, and remote pictures as links."""
    return str(renderer().render(text, {"page": page})).replace("\n</code></pre>", "</code></pre>")


@lru_cache(maxsize=1)
def renderer() -> MarkdownIt:
    """The renderer for web pages."""
    found = add_directions(make_renderer())
    found.add_render_rule("table_open", _table_open)
    found.add_render_rule("table_close", lambda *_unused: "</table>\n</div>\n")
    return found


def make_renderer() -> MarkdownIt:
    """A renderer whose rules the caller may change."""
    from markdown_it import MarkdownIt

    found = MarkdownIt("commonmark", {"highlight": highlighted}).enable(["table", "strikethrough"])
    found.options["strikethrough_single_tilde"] = True
    found.add_render_rule("image", _picture)
    add_inline_html(found)
    add_formulas(add_footnotes(add_addresses(add_tasks(found)))).add_render_rule(INLINE, _formula)
    found.add_render_rule(ROW, _formula_row)
    return found


def _table_open(renderer: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    """A wide table scrolls inside its own box; a right-to-left one is aligned right."""
    return f'<div class="wide"{renderer.renderAttrs(tokens[index])}>\n<table>\n'


def _formula(_renderer: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    """MathML, which browsers render; LaTeX if the formula is not understood."""
    span = tokens[index].meta["span"]
    return math_ml(span.content, span.kind is SpanKind.DISPLAY) or f"<code>{escape(span.source)}</code>"


def _formula_row(renderer: Any, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    return f'<div class="formula" dir="ltr">{_formula(renderer, tokens, index, options, env)}</div>\n'


def _picture(_renderer: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    """A picture embedded in the text; any other would have to be fetched, so it becomes a link."""
    source, name = str(tokens[index].attrs.get("src", "")), escape(tokens[index].content)
    if source.startswith("data:image/"):
        return f'<img src="{escape(source)}" alt="{name}">'
    return f'<a href="{escape(source)}">{name or escape(source)}</a>'


def highlighted(code: str, language: str, _attributes: Any = None) -> str:
    """The code with the classes of Pygments; empty for an unknown language, which leaves it plain."""
    if not language or len(code) > _MOST_HIGHLIGHTED:
        return ""
    from pygments import highlight
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return str(highlight(code, get_lexer_by_name(language, stripnl=False), _formatter()))
    except ClassNotFound:
        return ""


@lru_cache(maxsize=1)
def _formatter() -> Any:
    from pygments.formatters import HtmlFormatter

    return HtmlFormatter(nowrap=True)


@lru_cache(maxsize=1)
def _style() -> str:
    """The style sheet: light, dark on a dark screen, and for print."""
    dark = "@media screen and (prefers-color-scheme: dark) {" + _DARK + code_style("monokai") + "}"
    return _STYLE + code_style("default") + "\n" + dark + _PRINT


def code_style(name: str = "default") -> str:
    """The colours of Pygments for `pre`, as a style sheet."""
    from pygments.formatters import HtmlFormatter

    rules = HtmlFormatter(style=name).get_style_defs("pre").splitlines()
    return "\n".join(line.split("/*")[0].rstrip() for line in rules if line.startswith("pre ."))
