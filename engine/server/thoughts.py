"""ThoughtSplitter: divides a reply, as it comes, into the model's thoughts and its answer.

A reply may begin with thoughts in tags, such as <think> ... </think>, or with a closing tag alone, by which
some models say that they do not think. A tag further on is text of the answer. After a thought, the answer
may stand in tags of its own, which are left out, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.text.template.reasoning import ANSWER_ENDS, ANSWER_TAGS

Tags = Sequence[tuple[str, str]]
"""The (opening, closing) tags that a model may think in."""


class ThoughtSplitter:
    """Takes a reply piece by piece. What may become a tag waits until it is certain; the tags themselves and
    the blank lines around thoughts are left out.

    The reply begins inside a thought if `opened`, its closing tag, is not empty; an opening tag that stands
    there again is left out.
    """

    def __init__(self, tags: Tags, opened: str = "") -> None:
        self._tags = [tag for tag in tags if tag[0] and tag[1]]
        self._closing = opened
        self._again = tuple(begin for begin, closing in self._tags if closing == opened)
        self._held = ""
        self._thought = bool(opened)  # there was one
        self._answering = False
        self._fresh = True  # nothing of this thought has been shown
        self._around = ""  # what ends the answer

    @property
    def inside(self) -> bool:
        """Whether what comes next belongs to a thought."""
        return bool(self._closing)

    def feed(self, text: str) -> list[tuple[bool, str]]:
        """What is certain now: (whether it is of a thought, text)."""
        if self._answering:
            text = self._without_end(text)
            return [(False, text)] if text else []
        self._held += text
        found: list[tuple[bool, str]] = []
        while not self._answering and (self._in_thought(found) if self._closing else self._before(found)):
            pass
        return found

    def finish(self) -> list[tuple[bool, str]]:
        """The rest, when the reply has ended."""
        held, self._held = self._held, ""
        if self._around and held.strip() == self._around:
            return []
        if self._closing:
            held = held.rstrip()
        elif self._thought and not self._answering:
            held = held.lstrip()
        return [(self.inside, held)] if held else []

    def _in_thought(self, found: list[tuple[bool, str]]) -> bool:
        """Show what belongs to the thought; True if it has ended."""
        if self._fresh:
            self._held = self._held.lstrip("\r\n")
        if self._again:
            if any(begin.startswith(self._held) and begin != self._held for begin in self._again):
                return False
            found_again = next((begin for begin in self._again if self._held.startswith(begin)), "")
            self._held, self._again = self._held.removeprefix(found_again).lstrip("\r\n"), ()
        before, closing, after = self._held.partition(self._closing)
        if closing:
            self._held, self._closing, self._thought = after, "", True
            self._around = ANSWER_ENDS.get(closing, "")
            before = before.rstrip()
        else:
            keep = max(_overlap(before, self._closing), 0)
            shown = before[: len(before) - keep].rstrip()  # blanks before a closing tag are left out
            before, self._held = shown, before[len(shown) :]
        if before:
            self._fresh = False
            found.append((True, before))
        return bool(closing)

    def _before(self, found: list[tuple[bool, str]]) -> bool:
        """Find out whether a thought begins; True if one does."""
        text = self._held.lstrip()
        for begin, closing in self._tags:
            if text.startswith(begin):
                self._held, self._closing, self._fresh = text[len(begin) :], closing, True
                return True
        closings = () if self._thought else tuple(closing for _, closing in self._tags)
        if closing := next((one for one in closings if text.startswith(one)), ""):
            self._held, self._thought = text[len(closing) :], True
            return True
        around = ANSWER_TAGS if self._thought and not self._around else ()
        for begin, closing in around:
            if text.startswith(begin):
                self._held, self._around = text[len(begin) :], closing
                return True
        parts = (*(begin for begin, _ in (*self._tags, *around)), *closings)
        if not any(part.startswith(text) for part in parts) and text:
            text, self._answering = text if self._thought else self._held, True
            self._held = ""
            if text := self._without_end(text):
                found.append((False, text))
        return False

    def _without_end(self, text: str) -> str:
        """More of the answer, of which waits what may be the tag at its end."""
        if not self._around:
            return text
        text, self._held = self._held + text, ""
        core = text.rstrip()
        kept = len(self._around) if core.endswith(self._around) else _overlap(core, self._around)
        shown = core[: len(core) - kept].rstrip()
        self._held = text[len(shown) :]
        return shown


def _overlap(text: str, tag: str) -> int:
    """The length of the longest end of `text` with which `tag` begins."""
    return next((n for n in range(min(len(text), len(tag) - 1), 0, -1) if text.endswith(tag[:n])), 0)
