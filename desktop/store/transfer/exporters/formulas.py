"""Formulas in exported Markdown, found by the rules of the transcript: `math` tokens whose `meta` is the
`Span`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from desktop.blocks.lines import display_math
from desktop.blocks.open_block import MATH_LIMIT
from desktop.blocks.spans import Span, SpanKind, math_at

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

__all__ = ["INLINE", "ROW", "add_formulas"]

INLINE, ROW = "math", "math_row"
"""Token types: a formula within text, and one on its own."""
_STOPS = ("", ".", ",", ";")


def add_formulas(markdown: MarkdownIt) -> MarkdownIt:
    """Make the parser recognise formulas; the caller adds a render rule for each of the two token types."""
    markdown.block.ruler.before("fence", ROW, _row, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    markdown.inline.ruler.before("escape", INLINE, _inline)
    return markdown


def _inline(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] not in "$\\":
        return False
    span = math_at(state.src, state.pos)
    if span is None:
        return False
    if not silent:
        state.push(INLINE, "", 0).meta = {"span": span}
    state.pos += len(span.source)
    return True


def _row(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    """Display math that starts on its own line; text after its end becomes a paragraph."""
    begin = state.bMarks[first] + state.tShift[first]
    opening = (
        display_math(state.src[begin : state.eMarks[first]])
        if state.sCount[first] - state.blkIndent < 4
        else None
    )
    if opening is None:
        return False
    _, closing, closes_here = opening
    environment = closing.startswith("\\end")
    skip = 0 if environment else 2
    if state.src.find(closing, begin + skip, begin + 2 * MATH_LIMIT) < 0:
        return False
    lines, last, size = [state.src[begin + skip : state.eMarks[first]]], first, 0
    while closing not in lines[-1]:
        last += 1
        if (
            last >= end
            or size > MATH_LIMIT
            or (state.sCount[last] < state.blkIndent and not state.isEmpty(last))
        ):
            return False
        lines.append(state.getLines(last, last + 1, state.blkIndent, False))
        size += len(lines[-1])
    inner, _, after = "\n".join(lines).partition(closing)
    if (last == first and not closes_here) or not inner.strip():
        return False  # math among words
    if silent:
        return True
    is_stop = after.strip() in _STOPS
    content = inner.strip() + (closing if environment else "") + (after.strip() if is_stop else "")
    source = state.src[begin : begin + skip] + "\n".join(lines)
    token = state.push(ROW, "", 0)
    token.meta = {
        "span": Span(SpanKind.DISPLAY, source if is_stop else source[: len(source) - len(after)], content)
    }
    token.block, token.map = True, [first, last + 1]
    if not is_stop:
        state.push("paragraph_open", "p", 1)
        text = state.push("inline", "", 0)
        text.content, text.children, text.map = after.strip(), [], [last, last + 1]
        state.push("paragraph_close", "p", -1)
    state.line = last + 1
    return True
