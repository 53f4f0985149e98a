"""Thinking tags: a list of known ones, and those found in a model's chat template.

Some models write their tags as control tokens. Such tokens are shown as text, because otherwise thoughts
could not be distinguished from the answer. Such thoughts do not go back into the prompt as they are, where
their control tokens would be plain text: a template that repeats thoughts gets them apart from the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from re import Pattern

import resources

__all__ = [
    "ANSWER_ENDS", "ANSWER_TAGS", "PLAIN_TAG", "THINKING_TAGS", "Tag", "control_tags", "opened_by",
    "split_thoughts", "tags_in", "without_thoughts",
]  # fmt: skip

Tag = tuple[str, str]
"""What opens a thought (at the start of a line) and what closes it (anywhere)."""

_LISTED: tuple[list[str], ...] = tuple(json.loads(resources.text("thinking.json")))

THINKING_TAGS: tuple[Tag, ...] = tuple((one[0], one[1]) for one in _LISTED if len(one) == 2)

_SENTENCES: tuple[Tag, ...] = tuple((one[0], one[1]) for one in _LISTED if len(one) > 2)
"""Tags that other replies may contain too; they count if the template has what closes them."""

PLAIN_TAG: Tag = ("<think>", "</think>")
"""The tag for thoughts of models that have no tag of their own."""

ANSWER_TAGS: tuple[Tag, ...] = (
    ("<answer>", "</answer>"),
    ("<response>", "</response>"),
    ("<|begin_of_solution|>", "<|end_of_solution|>"),
)
"""What some models (Hunyuan, Granite 3.3, ERNIE, OpenThinker) put around the answer after a thought."""

ANSWER_ENDS = {"[BEGIN FINAL RESPONSE]": "[END FINAL RESPONSE]"}
"""What ends the answer after a thought that is closed in this way (Apriel 1.5)."""

_OPENING = re.compile(r"(?:<\|?|\[|◁)[A-Za-z][\w:. |-]{2,40}(?:\|?>|\]|▷)")
_WORD = re.compile(r"think|thought|reason|reflect|scratchpad|monologue|analysis", re.IGNORECASE)
_BEGINNINGS = (("START", "END"), ("start", "end"), ("BEGIN", "END"), ("begin", "end"), ("prefix", "suffix"))


def tags_in(template: str) -> tuple[Tag, ...]:
    """The tags that a chat template (its Jinja source) may use.

    First the known tags and similar pairs that the template contains, then the other known ones, because a
    fine-tuned model often thinks in tags that its template ignores.
    """
    named = [tag for tag in THINKING_TAGS if tag[1] in template and tag[0] in template]
    named += [tag for tag in _SENTENCES if tag[1] in template]  # Apriel 1.5's template does not begin any
    for begin in dict.fromkeys(_OPENING.findall(template)):
        finish = next((end for end in _closings(begin) if end in template), "")
        if _WORD.search(begin) and finish and (begin, finish) not in named:
            named.append((begin, finish))
    taken = {begin for begin, _ in named}
    return (*named, *(tag for tag in THINKING_TAGS if tag[0] not in taken))


def _closings(begin: str) -> list[str]:
    """Possible closing tags for `begin`."""
    edge = re.match(r"<\|?|\[|◁", begin)
    start = edge.end() if edge is not None else 0
    slashed = [begin[:1] + "/" + begin[1:], begin[:start] + "/" + begin[start:]]
    return slashed + [begin.replace(first, last) for first, last in _BEGINNINGS if first in begin]


def opened_by(prompt: str, tags: Sequence[Tag] = THINKING_TAGS) -> str:
    """The closing tag of the thought that a rendered `prompt` leaves open at its end, or ""."""
    text = prompt.rstrip()
    return next((finish for begin, finish in tags if text.endswith(begin)), "")


def control_tags(tags: Sequence[Tag], special: Pattern[str]) -> tuple[Tag, ...]:
    """Those of `tags` that are written with control tokens, whose texts `special` matches."""
    return tuple(
        tag
        for tag in tags
        if any(map(special.search, tag)) and all(_is_written(part, special) for part in tag)
    )


def _is_written(part: str, special: Pattern[str]) -> bool:
    """Whether control tokens and letters alone, or no control tokens at all, make up `part` of a tag."""
    rest = special.sub("", part).strip()
    return not rest or rest.isalpha() or rest == part


def split_thoughts(
    text: str, tags: Sequence[Tag], opened: str = "", *, unclosed: bool = False
) -> tuple[str, str]:
    """The thoughts at the beginning of `text`, without their tags and with an empty line between two, and the
    rest.

    `opened` closes a thought that began before the text. With `unclosed`, a thought may go on to the end.
    """
    thoughts, rest = list[str](), text
    if opened and opened in text:
        thought, _, rest = text.partition(opened)
        thoughts.append(_inside(thought, tags))
    while tag := next((tag for tag in tags if rest.lstrip().startswith(tag[0]) and tag[1] in rest), None):
        thought, _, rest = rest.partition(tag[1])
        thoughts.append(_inside(thought, tags))
    if unclosed and any(rest.lstrip().startswith(begin) for begin, _ in tags):
        thoughts.append(_inside(rest, tags))
        rest = ""
    if not thoughts:
        return "", text
    return "\n\n".join(filter(None, thoughts)), rest.lstrip("\r\n")


def _inside(thought: str, tags: Sequence[Tag]) -> str:
    """A thought without its opening tag, which some models write twice."""
    thought = thought.strip()
    while begin := next((begin for begin, _ in tags if thought.startswith(begin)), ""):
        thought = thought.removeprefix(begin).lstrip()
    return thought


def without_thoughts(text: str, tags: Sequence[Tag], opened: str = "") -> str:
    """`text` without the closed thoughts at its beginning; unchanged if it consists only of thoughts.

    `opened` closes a thought that began before the text.
    """
    rest = split_thoughts(text, tags, opened)[1]
    return rest if rest.strip() else text
