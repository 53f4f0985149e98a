"""Markdown as a stream of blocks, without Qt: what a transcript shows as rows."""

from desktop.blocks.block import Block, Kind
from desktop.blocks.splitter import THINKING_TAGS, BlockSplitter, split, split_plain

__all__ = ["THINKING_TAGS", "Block", "BlockSplitter", "Kind", "split", "split_plain"]
