"""The tags between which models think: a list of known ones, and what a model's own chat template tells of its."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import resources

__all__ = ["THINKING_TAGS", "Tag", "opened_by", "tags_in"]

Tag = tuple[str, str]
"""What opens a thought, at the start of a line, and what closes it, anywhere."""

THINKING_TAGS: tuple[Tag, ...] = tuple((str(begin), str(finish)) for begin, finish in json.loads(resources.text("thinking.json")))

_OPENING = re.compile(r"(?:<\|?|\[|◁)[A-Za-z][\w:. -]{2,40}(?:\|?>|\]|▷)")
_WORD = re.compile(r"think|thought|reason|reflect|scratchpad|monologue|analysis", re.IGNORECASE)
_BEGINNINGS = (("START", "END"), ("start", "end"), ("BEGIN", "END"), ("begin", "end"), ("prefix", "suffix"))


def tags_in(template: str) -> tuple[Tag, ...]:
    """The tags that a chat template (its Jinja source) names: known ones, and pairs that look like them; first those it names.

    The known ones that it does not name follow, because a fine-tuned model often thinks in tags that its template ignores.
    """
    named = [tag for tag in THINKING_TAGS if tag[1] in template and tag[0] in template]
    for begin in dict.fromkeys(_OPENING.findall(template)):
        finish = next((end for end in _closings(begin) if end in template), "")
        if _WORD.search(begin) and finish and (begin, finish) not in named:
            named.append((begin, finish))
    taken = {begin for begin, _ in named}
    return (*named, *(tag for tag in THINKING_TAGS if tag[0] not in taken))


def _closings(begin: str) -> list[str]:
    """What could close a thought that `begin` opens."""
    edge = re.match(r"<\|?|\[|◁", begin)
    start = edge.end() if edge is not None else 0
    slashed = [begin[:1] + "/" + begin[1:], begin[:start] + "/" + begin[start:]]
    return slashed + [begin.replace(first, last) for first, last in _BEGINNINGS if first in begin]


def opened_by(prompt: str, tags: Sequence[Tag] = THINKING_TAGS) -> str:
    """The closing tag of the thought that a rendered `prompt` leaves open at its end, or nothing."""
    text = prompt.rstrip()
    return next((finish for begin, finish in tags if text.endswith(begin)), "")
