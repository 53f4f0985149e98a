"""Finding words in the open chat: all places, the current one, and the bar above the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.system.debounce import debounce
from desktop.store.conversations.hidden_texts import HiddenText
from desktop.views.transcript.find_bar import FindBar
from desktop.views.transcript.parts import TranscriptParts
from desktop.views.transcript.row_widgets.base import DocumentRow
from desktop.views.transcript.rows import Row, RowKind
from desktop.views.transcript.scrolling import Scrolling
from desktop.views.transcript.searched_text import (
    SEARCHED,
    attached_text,
    excerpt,
    message_words,
    searched_text,
)

__all__ = ["Finding"]

_AGAIN_MS = 250
_EDGE = 6


def _state(row: Row) -> tuple[object, ...]:
    """What the searched text of a row depends on."""
    return row.kind, row.revision, row.item, row.open, row.until


class Finding(QObject):
    """Searches all rows regardless of case, also what folded thoughts and attached files hide; follows the
    chat while it grows.

    Going to a match in a folded thought unfolds it; one in a file is shown as its line, below the file's
    chip. `hidden_texts` are those of versions that are not shown, whose matches the bar counts;
    `version_requested(int message, int place, str words)` asks to show one of them.
    """

    version_requested = Signal(int, int, str)

    def __init__(self, parts: TranscriptParts, scrolling: Scrolling) -> None:
        super().__init__(parts.area)
        self._parts, self._scrolling = parts, scrolling
        self._query = ""
        self._places: list[tuple[Row, int]] = []
        self._present: tuple[Row, int] | None = None
        self._words: dict[Row, tuple[object, str]] = {}
        self._splits = 0
        self.hidden_texts: Callable[[], Sequence[HiddenText]] = tuple
        self._shown: list[int] = []  # the messages beside which `_hidden` are not shown
        self._hidden: list[tuple[HiddenText, str]] = []
        self._requested = 0
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
            self._bar.version_requested.connect(self._to_other_version)
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
        here = [row for row in rows if row.start <= character and row.kind in SEARCHED] or list(rows)
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
        self._shown, self._hidden = [], []
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
            known = self._words[row] = state, searched_text(row).casefold()
        return known[1]

    def _shows(self, row: Row) -> bool:
        """Whether what is shown of a whole message has the words, not its Markdown alone; only that is
        searched from now on.
        """
        rows = self._parts.messages.split_rows(row.item.id)
        words = "\n".join(map(searched_text, rows)).casefold()
        self._words[row] = _state(row), words
        return self._query.casefold() in words

    @Slot(int)
    def _move(self, step: int) -> None:
        """Go to the next (1) or the previous (-1) match, wrapping at the ends; where there is none, to one in
        another version.
        """
        if not self._places:
            self._to_other_version()
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
            self._bar.show_others(sum(words.count(self._query.casefold()) for _, words in self._others()))
            self.place()
        if go:
            self._unfold()
        if go and self._present is not None:
            self._scrolling.to_row(self._present[0], self._parts.area.viewport().height() // 3)
            self._parts.view.flush()
            self._reach()
        self.show_marks()

    def _others(self) -> list[tuple[HiddenText, str]]:
        """The messages in versions that are not shown in which the query is, with their words."""
        query = self._query.casefold()
        if not query:
            return []
        shown = [message.item.id for message in self._parts.messages.all]
        if shown != self._shown:
            self._shown = shown
            self._hidden = [
                (each, message_words(each.role, each.text).casefold()) for each in self.hidden_texts()
            ]
        return [(each, words) for each, words in self._hidden if query in words]

    @Slot()
    def _to_other_version(self) -> None:
        """Ask for the next message in another version that has the query, wrapping at the end."""
        found = [each for each, _ in self._others()]
        if not found:
            return
        chosen = next((each for each in found if each.message > self._requested), found[0])
        self._requested = chosen.message
        focused = self._bar is not None and self._bar.isAncestorOf(self._bar.window().focusWidget())
        place = chosen.text.casefold().find(self._query.casefold())
        self.version_requested.emit(chosen.message, max(0, place), self._query)
        if focused and self.bar is not None:
            self.bar.box.setFocus()

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
                    self._query if row.kind in SEARCHED else "",
                    self._present[1] if present and self._present else -1,
                )
