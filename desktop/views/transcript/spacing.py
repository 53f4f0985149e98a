"""Free space between the blocks of a message, in lines of text."""

from __future__ import annotations

from desktop.blocks import Block, Kind

__all__ = ["AFTER_HEADER", "space_above"]

AFTER_HEADER, _BETWEEN = 0.4, 0.75


def space_above(previous: Block | None, block: Block) -> float:
    """Free space above a block, in lines of text."""
    if previous is None:
        return AFTER_HEADER
    if block.joined:
        return 0.22 if block.kind is Kind.LIST else 0.0
    if block.kind is Kind.HEADING:
        return 1.15
    if previous.kind is Kind.HEADING:
        return 0.45
    if previous.kind is Kind.THINKING:
        return 0.4
    if block.kind is Kind.RULE or previous.kind is Kind.RULE:
        return 0.9
    if block.kind is Kind.FOOTNOTE is previous.kind:
        return 0.25
    if max(block.indent, previous.indent) >= 2:
        return 0.5
    if Kind.CODE in (block.kind, previous.kind) or Kind.TABLE in (block.kind, previous.kind):
        return 0.85
    if previous.kind is Kind.PROSE and block.kind is Kind.LIST:
        return 0.5
    return _BETWEEN
