"""Markdown as a stream of blocks, without Qt: what a transcript shows as rows."""

from desktop.blocks.block import Block, Kind
from desktop.blocks.splitter import BlockSplitter, split, split_plain
from desktop.blocks.thinking import THINKING_TAGS, Tag, opened_by, tags_in

__all__ = ["THINKING_TAGS", "Block", "BlockSplitter", "Kind", "Tag", "opened_by", "split", "split_plain", "tags_in"]
