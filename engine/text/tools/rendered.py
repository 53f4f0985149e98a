"""Parts of rendered prompts: what they share, and calls without what stands before them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine.text.template.reasoning import Tag

__all__ = ["common_start", "shared_end", "without_start", "without_thought"]


def without_start(head: str, prompt: str) -> str:
    """The text before a call without the beginning of the reply, which is part of the `prompt`, whatever the
    white space in it.
    """
    core, end = "".join(head.split()), "".join(prompt.split())
    shared = (n for n in range(min(len(core), len(end)), 2, -1) if core.startswith(end[-n:]))
    found = re.match(rf"(?:\s*\S){{{next(shared, 0)}}}", head)
    return head[found.end() :] if found is not None else head


def without_thought(head: str, tags: Sequence[Tag]) -> str:
    """The text before a call without a thought at its beginning, which may have begun before."""
    head = re.sub(r"^\s*(?:<think>)?\s*</think>|^.*<channel\|>", "", head, flags=re.DOTALL)
    ends = (end for tag in tags if head.lstrip().startswith(tag) and (end := tag[1]) in head)
    return head.partition(end)[2] if (end := next(ends, "")) else head


def common_start(texts: Sequence[str]) -> str:
    """The longest common beginning of all texts."""
    first, last = min(texts), max(texts)
    return first[: next((at for at, char in enumerate(first) if last[at : at + 1] != char), len(first))]


def shared_end(one: str, other: str) -> str:
    """The longest common end of two texts that begins with a tag, a bracket or white space."""
    end = common_start([one[::-1], other[::-1]])[::-1]
    found = re.search(r"[<\[{\s]", end)
    return end[found.start() :] if found is not None else ""
