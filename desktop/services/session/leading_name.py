"""Removes a participant's name from the beginning of its reply."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["LeadingName"]


class LeadingName:
    """Removes blanks and a name with its colon from the beginning of a text that comes in pieces, after the
    thought that it may begin with.

    `opened` closes the thought in which the text begins; `tags` are pairs that can enclose a thought.
    `decided`: all further text passes unchanged. `after_thought`: a thought has been found. `removed` is the
    number of characters taken away.
    """

    def __init__(self, names: Iterable[str], opened: str = "", tags: Iterable[tuple[str, str]] = ()) -> None:
        forms = {
            form.casefold()
            for name in names
            if name
            for form in (f"{name}:", f"**{name}:**", f"**{name}**:", f"*{name}*:")
        }
        self._forms = sorted(forms, key=len, reverse=True)
        self._tags = tuple(tags)
        self.opened = self._closing = opened
        self._text = ""
        self.decided = False
        self.after_thought = bool(opened)
        self.removed = 0

    def feed(self, text: str) -> str:
        """The part of the text so far that can be shown and was not shown before."""
        if self.decided:
            return text
        self._text += text
        shown = ""
        if not self._closing:
            begun = self._text.lstrip()
            closing = next((end for begin, end in self._tags if begun.startswith(begin)), "")
            if not closing and any(begin.startswith(begun) for begin, _ in self._tags):
                return ""
            self._closing, self.after_thought = closing, self.after_thought or bool(closing)
        if self._closing:
            shown, over = self._past_thought()
            if not over:
                return shown
        return shown + self._without_name(ended=False)

    def end(self) -> str:
        """What was held back, when nothing follows."""
        if self.decided:
            return ""
        if self._closing:
            self.decided = True
            return self._text
        return self._without_name(ended=True)

    def _past_thought(self) -> tuple[str, bool]:
        """What of the thought can be shown, and whether it is over."""
        at = self._text.find(self._closing)
        if at >= 0:
            end = at + len(self._closing)
            end += len(self._text[end:]) - len(self._text[end:].lstrip())
            if end == len(self._text):  # the blanks between thought and text stay, and more may come
                return "", False
            shown, self._text = self._text[:end], self._text[end:]
            self._closing, self._tags = "", ()
            return shown, True
        cut = max(0, len(self._text) - len(self._closing) + 1)
        shown, self._text = self._text[:cut], self._text[cut:]
        return shown, False

    def _without_name(self, ended: bool) -> str:
        rest = self._text.lstrip()
        folded = rest.casefold()
        longer = any(form.startswith(folded) and form != folded for form in self._forms)
        found = next((form for form in self._forms if folded.startswith(form)), "")
        if not ended and (longer or not rest):
            return ""
        if found:
            after = rest[_length(rest, found) :]
            if not after.strip() and not ended:
                return ""  # blanks after the name are removed too
            rest = after.lstrip()
        self.decided = True
        self.removed = len(self._text) - len(rest)
        return rest


def _length(text: str, folded: str) -> int:
    """How many characters of `text` case-fold to its prefix `folded`."""
    length = 0
    while length < len(text) and len(text[:length].casefold()) < len(folded):
        length += 1
    return length
