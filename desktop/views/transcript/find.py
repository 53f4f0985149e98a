"""Finding words in the open chat: all places, the current one, and the bar above the rows."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

from PySide6.QtCore import QObject, Slot

from desktop.services.system.debounce import debounce
from desktop.store.attachments.message_format import split
from desktop.views.transcript.find_bar import FindBar
from desktop.views.transcript.parts import TranscriptParts
from desktop.views.transcript.row_widgets.base import DocumentRow
from desktop.views.transcript.rows import Row, RowKind
from desktop.views.transcript.scrolling import Scrolling

__all__ = ["Finding", "plain"]

_AGAIN_MS = 250
_EDGE = 6
_NEAR = 60
"""Characters shown on each side of a match in a file."""
_AS_WRITTEN = (RowKind.CODE, RowKind.BUBBLE, RowKind.TOKENS, RowKind.MATH, RowKind.NOTICE)
_SEARCHED = (*_AS_WRITTEN, RowKind.TEXT, RowKind.TABLE, RowKind.WHOLE)
_LINK = re.compile(r"(?<!!)\[([^\[\]]*)\]\([^()\s]*\)")
_FENCE = re.compile(r"^ {0,3}(?P<marks>`{3,})(?P<words>[^`\n]*)$", re.MULTILINE)
_MARKS = re.compile(
    r"(?=[*~_`#\\])"  # most characters are none of these: to look at one class first is faster
    r"(?:\*{1,3}|~~|(?<!\w)_{1,3}|_{1,3}(?!\w)|`+|^#{1,6} +|\\(?=[!-/:-@\[-`{-~]))",
    re.MULTILINE,
)


def plain(row: Row) -> str:
    """Approximately the text that a row shows: Markdown without its markup."""
    return row.text if row.kind in _AS_WRITTEN else _plain(row.text)


def _plain(text: str) -> str:
    return _MARKS.sub("", _LINK.sub(r"\1", text))


def _without_languages(text: str) -> str:
    """Markdown without the words after the fences that begin blocks of code. They are not shown, and "python"
    would be found in most replies with code, to no avail.
    """
    if "```" not in text:
        return text
    begun = 0

    def cut(fence: re.Match[str]) -> str:
        nonlocal begun
        if not begun:
            begun = len(fence["marks"])
            return fence["marks"]
        if len(fence["marks"]) >= begun and not fence["words"].strip():
            begun = 0
        return fence[0]

    return _FENCE.sub(cut, text)


def _searched(row: Row) -> str:
    """The text that is searched; empty for rows without any."""
    if row.kind is RowKind.THOUGHT:
        hidden = row.item.text[row.start + len(row.source) : row.until or None]
        return "" if row.open else _plain(hidden)
    if row.kind is RowKind.ATTACHMENT:
        return attached_text(row)
    if row.kind is RowKind.WHOLE:
        return row.text if row.item.role == "user" else _plain(_without_languages(row.text))
    return plain(row) if row.kind in _SEARCHED else ""


def _state(row: Row) -> tuple[object, ...]:
    """What the searched text of a row depends on."""
    return row.kind, row.revision, row.item, row.open, row.until


def attached_text(row: Row) -> str:
    """The text of the attached file of a row."""
    files, _ = split(row.source)
    return files[0][1].text if files else ""


def excerpt(text: str, query: str, number: int) -> str:
    """The line around match number `number` of `query`, cut to what is near it; the first line without one.

    Matches are counted from 0, regardless of case and without overlaps, as by `str.count`.
    """
    lines, folded, at = text.split("\n"), query.casefold(), 0
    for line in lines:
        words = line.casefold()
        count = words.count(folded)
        if number < count:
            at = _nth(words, folded, number)
            break
        number -= count
    else:
        line = words = lines[0]
    begin, end = (_unfolded(line, words, place) for place in (at, at + len(folded)))
    first, last = max(0, begin - _NEAR), min(len(line), end + _NEAR)
    return f"{'…' if first else ''}{line[first:last].strip()}{'…' if last < len(line) else ''}"


def _nth(text: str, query: str, number: int) -> int:
    at = text.find(query)
    for _ in range(number):
        at = text.find(query, at + len(query))
    return at


def _unfolded(text: str, folded: str, place: int) -> int:
    """The place in a text that became `place` in its case folding, where "ß" is two characters."""
    if len(folded) == len(text):
        return place
    return bisect_left(range(len(text)), place, key=lambda at: len(text[:at].casefold()))


class Finding(QObject):
    """Searches all rows regardless of case, also what folded thoughts and attached files hide; follows the
    chat while it grows.

    Going to a match in a folded thought unfolds it; one in a file is shown as its line, below the file's
    chip.
    """

    def __init__(self, parts: TranscriptParts, scrolling: Scrolling) -> None:
        super().__init__(parts.area)
        self._parts, self._scrolling = parts, scrolling
        self._query = ""
        self._places: list[tuple[Row, int]] = []
        self._present: tuple[Row, int] | None = None
        self._words: dict[Row, tuple[object, str]] = {}
        self._splits = 0
        self._bar: FindBar | None = None
        self._again = debounce(self, self._search_again, _AGAIN_MS)

    @property
    def bar(self) -> FindBar | None:
        """The bar while it is open."""
        return self._bar if self._bar is not None and not self._bar.isHidden() else None

    @property
    def places(self) -> Sequence[tuple[Row, int]]:
        """Every match: its row, and its number in that row from 0."""
        return self._places

    def open(self) -> None:
        """Show the bar, search for the selected text if it is on one line, and give the bar the keyboard."""
        words = self._parts.selection.text().strip()
        bar = self._show_bar(words if words and "\n" not in words and len(words) <= 100 else "")
        self._search(bar.query())

    def _show_bar(self, words: str, focus: bool = True) -> FindBar:
        if self._bar is None:
            self._bar = FindBar(self._parts.area)
            self._bar.changed.connect(self._search)
            self._bar.moved.connect(self._move)
            self._bar.closed.connect(self.close)
        self._bar.begin(words, focus)
        self.place()
        return self._bar

    def go_to(self, message_id: int, character: int, words: str) -> None:
        """Show the bar with `words` and go to their match at a character of a message's text; the keyboard
        stays where it is.

        Without words, or where they do not show, the message is put at the top of the screen.
        """
        self._parts.messages.finish(message_id)
        rows = self._parts.messages.message(message_id).rows
        thought = next(
            (
                row
                for row in rows
                if row.kind is RowKind.THOUGHT and row.start <= character < (row.until or character + 1)
            ),
            None,
        )
        if thought is not None and not thought.open:
            self._scrolling.fold(thought)
            rows = self._parts.messages.message(message_id).rows
        self._query = words
        self._collect()
        here = [row for row in rows if row.start <= character and row.kind in _SEARCHED] or list(rows)
        before = (
            here[-1].source[: max(0, character - here[-1].start)].casefold().count(words.casefold())
            if words
            else 0
        )
        places = [place for place in self._places if place[0].item.id == message_id]
        self._present = min(
            places,
            key=lambda place: (abs(place[0].index - here[-1].index), abs(place[1] - before)),
            default=None,
        )
        if self._present is None:
            self.close()
            self._scrolling.to_message(message_id)
            return
        self._show_bar(words, focus=False)
        self._show(go=True)

    @Slot()
    def close(self) -> None:
        """Hide the bar and all marks."""
        self._again.stop()
        for row, _ in self._places:
            if row.peek:
                self._peek(row, "")
        self._query, self._places, self._present, self._words = "", [], None, {}
        if self._bar is not None and not self._bar.isHidden():
            self._parts.area.setFocus()
            self._bar.hide()
            self.place()
        self.show_marks()

    def place(self) -> None:
        """Put the bar in the upper right corner of the view, above the rows."""
        bar, area = self.bar, self._parts.area
        wide = min(bar.sizeHint().width(), area.width() - 4 * _EDGE) if bar is not None else 0
        high = bar.heightForWidth(wide) if bar is not None else 0
        strip = high + 2 * _EDGE if bar is not None else 0
        if strip != area.viewportMargins().top():
            area.setViewportMargins(0, strip, 0, 0)
        if bar is not None:
            bar.setGeometry(area.width() - wide - 3 * _EDGE, _EDGE, wide, high)

    def chat_changed(self) -> None:
        """Rows have changed or grown: search again soon."""
        if self._query and not self._again.isActive():
            self._again.start()

    @Slot(str)
    def _search(self, query: str) -> None:
        """Search for `query`; the current match becomes the first one at or below the top of the screen."""
        self._query = query
        self._collect()
        top = self._scrolling.row_at(0)
        first = next((place for place in self._places if top is None or place[0].index >= top.index), None)
        self._present = first or (self._places[0] if self._places else None)
        self._show(go=self._present is not None)

    @Slot()
    def _search_again(self) -> None:
        self._collect()
        if self._present not in self._places:
            self._present = None
        self._show(go=False)

    def _collect(self) -> None:
        query = self._query.casefold()
        rows = self._parts.messages.layout.rows if query else []
        counts = ((row, words.count(query)) for row in rows if (words := self._folded(row)))
        self._places = [(row, number) for row, count in counts for number in range(count)]

    def _folded(self, row: Row) -> str:
        """The searched text without case. It is made again only if the row has changed: of a chat of
        thousands of messages, that takes a tenth of a second.
        """
        state = _state(row)
        known = self._words.get(row)
        if known is None or known[0] != state:
            known = self._words[row] = state, _searched(row).casefold()
        return known[1]

    def _shows(self, row: Row) -> bool:
        """Whether what is shown of a whole message has the words, not its Markdown alone; only that is
        searched from now on.
        """
        rows = self._parts.messages.split_rows(row.item.id)
        words = "\n".join(map(_searched, rows)).casefold()
        self._words[row] = _state(row), words
        return self._query.casefold() in words

    @Slot(int)
    def _move(self, step: int) -> None:
        """Go to the next (1) or the previous (-1) match, wrapping at the ends."""
        if not self._places:
            return
        at = self._places.index(self._present) if self._present in self._places else -1 if step > 0 else 0
        self._present = self._places[(at + step) % len(self._places)]
        self._show(go=True)

    def _show(self, go: bool) -> None:
        if go:
            self._split()
        if self._bar is not None:
            at = self._places.index(self._present) + 1 if self._present in self._places else 0
            self._bar.show_count(at, len(self._places), bool(self._query))
        if go:
            self._unfold()
        if go and self._present is not None:
            self._scrolling.to_row(self._present[0], self._parts.area.viewport().height() // 3)
            self._parts.view.flush()
            self._reach()
        self.show_marks()

    def _unfold(self) -> None:
        """Unfold the thought that hides the current match, which is then a match of a row inside it; show the
        line of a match in a file.
        """
        row, number = self._present or (None, 0)
        for place, _ in self._places:
            if place.kind is RowKind.ATTACHMENT and place.peek and place is not row:
                self._peek(place, "")
        if row is None or row.kind not in (RowKind.THOUGHT, RowKind.ATTACHMENT):
            return
        if row.kind is RowKind.ATTACHMENT:
            self._peek(row, excerpt(attached_text(row), self._query, number))
            return
        item, start, until = row.item, row.start, row.until or len(row.item.text)
        self._scrolling.fold(row)
        self._parts.view.flush()
        self._collect()
        inside = [
            place for place in self._places if place[0].item.id == item.id and start <= place[0].start < until
        ]
        self._present = inside[min(number, len(inside) - 1)] if inside else None
        if self._bar is not None and self._present is not None:
            self._bar.show_count(self._places.index(self._present) + 1, len(self._places), True)

    def _split(self) -> None:
        """Give the message of the current match rows of its own, one of which has the match then; where only
        its Markdown had the words, the next match is the current one.
        """
        if self._present is None or self._present[0].kind is not RowKind.WHOLE:
            return
        at, without = self._places.index(self._present), set[Row]()
        places, self._present = [*self._places[at:], *self._places[:at]], None
        for row, number in places:
            if row.kind is not RowKind.WHOLE:
                self._present = row, number
                break
            if row not in without and self._shows(row):
                self._parts.messages.finish(row.item.id)
                self._collect()
                inside = [place for place in self._places if place[0].item is row.item]
                self._present = inside[min(number, len(inside) - 1)] if inside else None
                return
            without.add(row)
        self._collect()

    def _peek(self, row: Row, line: str) -> None:
        if row.peek != line:
            row.peek = line
            row.revision += 1
            row.measured = False
            self._parts.view.schedule()

    def _reach(self) -> None:
        """Scroll to the match itself in a row that is higher than the screen."""
        row, number = self._present or (None, 0)
        widget = self._parts.pool.widget(row) if row is not None else None
        if not isinstance(widget, DocumentRow):
            return
        widget.mark(self._query, number)
        y = widget.y() + widget.mark_top()
        high = self._parts.area.viewport().height()
        if not 0 <= y < high - 40:
            bar = self._parts.area.verticalScrollBar()
            bar.setValue(bar.value() + y - high // 3)

    def show_marks(self) -> None:
        """Mark every match on the live rows, which may be other ones for the same messages now."""
        if self._splits != self._parts.messages.splits:
            self._splits = self._parts.messages.splits
            self.chat_changed()
        for row, widget in self._parts.pool.live.items():
            if isinstance(widget, DocumentRow):
                present = self._present is not None and self._present[0] is row
                widget.mark(
                    self._query if row.kind in _SEARCHED else "",
                    self._present[1] if present and self._present else -1,
                )
