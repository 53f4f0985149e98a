"""Markdown as a stream of blocks, without Qt: what a transcript shows as rows."""

from desktop.blocks.block import Block, Kind
from desktop.blocks.spans import Span, SpanKind, mark_spans
from desktop.blocks.splitter import BlockSplitter, last_code, split, split_plain
from desktop.blocks.unfinished import UNFINISHED_ADDRESS, may_be_open, withholds
from engine.text.template.reasoning import THINKING_TAGS, Tag, opened_by, tags_in

__all__ = [
    "THINKING_TAGS", "UNFINISHED_ADDRESS", "Block", "BlockSplitter", "Kind", "Span", "SpanKind", "Tag",
    "last_code", "mark_spans", "may_be_open", "opened_by", "split", "split_plain", "tags_in", "withholds",
]  # fmt: skip
