"""Markdown as a stream of blocks, without Qt: what a transcript shows as rows."""

from desktop.blocks.block import Block, Kind
from desktop.blocks.spans import Span, SpanKind, mark_spans
from desktop.blocks.splitter import BlockSplitter, split, split_plain
from engine.text.template.reasoning import THINKING_TAGS, Tag, opened_by, tags_in

__all__ = [
    "THINKING_TAGS", "Block", "BlockSplitter", "Kind", "Span", "SpanKind", "Tag", "mark_spans", "opened_by",
    "split", "split_plain", "tags_in",
]  # fmt: skip
