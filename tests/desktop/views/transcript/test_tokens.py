"""Replies as tokens: boxes over the right words, growth, colours, the scroll position, and the cost of a
frame.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QColor, QImage, QPalette
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from desktop.items.chats.messages import MessageItem, MessagesModel
from desktop.store.conversations.token_trace import TokenTrace
from desktop.views.transcript import TranscriptView
from desktop.views.transcript.message_rows import MessageRows
from desktop.views.transcript.rows import RowKind
from desktop.views.transcript.tokens.colours import ENTROPY, PROBABILITY, strength, tint
from desktop.views.transcript.tokens.popup import AlternativeButton
from desktop.views.transcript.tokens.row import TokenRow
from desktop.views.widgets.theme import palette, tokens
from engine.core import Alternative, TokenInfo
from tests.desktop.fakes import echo_token
from tests.desktop.views.contrast import contrast
from tests.work import calls_in

Show = Callable[..., tuple[TranscriptView, MessagesModel]]

WORDS = [
    "Hello",
    " wide",
    " 🎉",
    " world",
    ".\n",
    "\n",
    "\n\nNext",
    " 漢字",
    "",
    "",
    "é",
    " a\r\nb",
    "\tend",
    " of",
    " it",
    "\n",
]


def traced(words: list[str], **facts: bool) -> TokenTrace:
    trace = TokenTrace("m")
    trace.extend(echo_token(word, 5, **facts) for word in words)
    return trace


def reply(words: list[str], id: int = 2, running: bool = False) -> MessageItem:
    return MessageItem(id, "assistant", "".join(words), running=running)


def shown_tokens(
    show: Show, words: list[str], **size: int
) -> tuple[TranscriptView, MessagesModel, TokenTrace]:
    view, model = show([MessageItem(1, "user", "question"), reply(words)], **size)
    trace = traced(words)
    model.trace = lambda message: trace if message == 2 else None
    view.inspection.set_mode(PROBABILITY)
    return view, model, trace


def token_rows(view: TranscriptView) -> list[TokenRow]:
    found = [widget for _, widget in sorted(view.pool.live.items(), key=lambda pair: pair[0].index)]
    return [widget for widget in found if isinstance(widget, TokenRow)]


def boxes(view: TranscriptView) -> list[tuple[int, int, bool, tuple[int, ...]]]:
    found = ((number, box) for number, row in enumerate(token_rows(view)) for box in row._boxes)
    return [(number, box.token, box.line_break, box.area.toRect().getRect()) for number, box in found]


@pytest.mark.gui
@pytest.mark.parametrize("width", [700, 190])
def test_every_token_has_its_place_in_the_order_of_reading(show: Show, width: int) -> None:
    view, _, trace = shown_tokens(show, WORDS * 8, width=width, height=2400)
    found = boxes(view)
    assert [token for _, token, _, _ in found] == sorted(token for _, token, _, _ in found)
    assert {token for _, token, _, _ in found} == set(range(len(trace)))
    breaks = sum(row.document.blockCount() for row in token_rows(view))
    assert sum(line_break for _, _, line_break, _ in found) in (breaks, breaks - 1)
    places = [(number, area) for number, _, _, area in found]
    assert len(set(places)) >= len(places) - 2 * 8 * 2  # only parts of characters share a place


@pytest.mark.gui
def test_the_token_at_a_point_is_the_one_drawn_there(show: Show) -> None:
    view, _, trace = shown_tokens(show, WORDS * 3, height=900)
    for row in token_rows(view):
        for token in row.tokens():
            if trace.token(token).text:
                assert row.token_at(row.token_area(token).center()) == token
        assert row.token_at(QPoint(row.width() - 1, 5)) == -1


@pytest.mark.gui
def test_growing_gives_the_same_boxes_as_all_at_once(show: Show) -> None:
    words = [word or "x" for word in WORDS] * 20
    view, model = show([reply([], running=True)], height=900)
    trace = TokenTrace("m")
    model.trace = lambda message: trace
    view.inspection.set_mode(PROBABILITY)
    for number, word in enumerate(words):
        if number % 3 == 2:  # text can be ahead of its tokens, as before a stop string
            trace.extend(echo_token(late, 5) for late in words[number - 2 : number + 1])
        model.append_text(2, word)
        if number % 5 == 0:
            view.flush()
    trace.extend(echo_token(late, 5) for late in words[len(trace) :])
    model.replace(2, reply(words))
    view.scroll_to_end()
    view.flush()
    grown = boxes(view)
    whole, _, _ = shown_tokens(show, words, height=900)
    whole.scroll_to_end()
    whole.flush()
    assert [row.row.text for row in token_rows(view)] == [row.row.text for row in token_rows(whole)]
    assert grown == boxes(whole)


def test_pieces_stay_while_a_reply_grows() -> None:
    text = ("word " * 700 + "\n" + "line\n" * 400) * 2
    growing = MessageRows(MessageItem(1, "assistant", "", running=True))
    growing.inspect(TokenTrace())
    for end in range(0, len(text), 7):
        item = MessageItem(1, "assistant", text[: end + 7], running=True)
        growing.append(item, text[end : end + 7])
        growing.sync()
    whole = MessageRows(MessageItem(1, "assistant", text))
    whole.inspect(TokenTrace())
    whole.sync()
    pieces = [row.source for row in whole.rows if row.kind is RowKind.TOKENS]
    assert pieces == [row.source for row in growing.rows if row.kind is RowKind.TOKENS]
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= 3501


@pytest.mark.gui
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_colour_on_the_screen_follows_the_probability(show: Show, scheme: str) -> None:
    words = [f" word{number}" for number in range(40)]
    view, _, trace = shown_tokens(show, words, height=600)
    view.setPalette(palette(tokens(scheme)))
    view.flush()
    ground = view.palette().color(QPalette.ColorRole.Window)
    for mode in (PROBABILITY, ENTROPY):
        view.inspection.set_mode(mode)
        picture = view.grab().toImage()
        (row,) = token_rows(view)
        for token in row.tokens():
            area = row.token_area(token).translated(row.pos())
            expected = tint(mode, scheme == "dark", ground, strength(mode, trace, token))
            assert picture.pixelColor(area.left() + 2, area.top() + 1).rgb() == expected.rgb(), (mode, token)
    sure, unsure = TokenInfo(1, "a", 1.0, 1.0, entropy=0.0), TokenInfo(2, "b", 0.1, 0.01, entropy=9.0)
    two = TokenTrace()
    two.extend([sure, unsure])
    assert [strength(PROBABILITY, two, index) for index in (0, 1)] == pytest.approx([0.0, 0.99])
    assert [strength(ENTROPY, two, index) for index in (0, 1)] == [0.0, 1.0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("mode", [PROBABILITY, ENTROPY])
def test_text_is_readable_on_every_tint_and_strong_tints_differ_more_from_the_background(
    scheme: str, mode: str
) -> None:
    names = tokens(scheme)
    shades = [tint(mode, scheme == "dark", QColor(names["window"]), step / 47) for step in range(48)]
    assert all(contrast(shade.name(), names["text"]) >= 4.5 for shade in shades)
    assert shades[0].name() == names["window"]
    away = [contrast(shade.name(), names["window"]) for shade in shades]
    assert all(later > before - 0.01 for before, later in pairwise(away))
    assert away[-1] > 1.6


@pytest.mark.gui
@pytest.mark.parametrize("share", [0.0, 0.3, 0.62, 1.0])
def test_the_place_is_kept_when_tokens_come_and_go(show: Show, share: float) -> None:
    words = [f" word{number}" + (".\n\n" if number % 30 == 29 else "") for number in range(1500)]
    view, model = show(
        [MessageItem(1, "user", "q"), reply(words), MessageItem(3, "user", "q"), reply(words, 4)]
    )
    trace = traced(words)
    model.trace = lambda message: trace if message in (2, 4) else None
    bar = view.verticalScrollBar()
    bar.setValue(round(bar.maximum() * share))
    view.flush()
    before = view.scrolling.place()
    for mode in (PROBABILITY, "", ENTROPY, ""):
        view.inspection.set_mode(mode)
        now = view.scrolling.place()
        if before is None:
            assert view.scrolling.at_end
        else:
            assert now is not None
            assert now.message == before.message
            assert abs(now.character - before.character) < 120  # a line or two


@pytest.mark.gui
def test_only_tokens_near_the_screen_are_asked_for(show: Show) -> None:
    words = [f" word{number}" for number in range(600)]
    view, model = show([reply(words, id) for id in range(2, 30)])
    asked: list[int] = []
    trace = traced(words)
    model.trace = lambda message: asked.append(message) or trace
    view.flush()
    assert asked == []
    view.inspection.set_mode(PROBABILITY)
    assert 29 in asked
    assert len(asked) == len(set(asked)) <= 6
    view.verticalScrollBar().setValue(0)
    assert 2 in asked
    assert len(asked) == len(set(asked)) <= 12


@pytest.mark.gui
def test_a_token_costs_the_same_in_a_long_reply_as_in_a_short_one(show: Show) -> None:
    costs = [_most_calls_of_a_token(show, length) for length in (200, 3500)]
    assert costs[1] < 1.5 * costs[0] + 100


def _most_calls_of_a_token(show: Show, length: int) -> int:
    """The cost of the hundred tokens after the first `length`, except the few that begin a paragraph or
    repaint a picture.
    """
    words = [f" word{number}" + (".\n" if number % 60 == 59 else "") for number in range(length + 100)]
    view, model = show([reply(words[:length], running=True)], width=820, height=800)
    trace = traced(words[:length], drafted=True)
    model.trace = lambda message: trace
    view.inspection.set_mode(PROBABILITY)
    view.grab()
    costs = []
    for word in words[length:]:
        trace.append(echo_token(word, 5, drafted=True))

        def grow(word: str = word) -> None:
            model.append_text(2, word)
            view.flush()

        costs.append(calls_in(grow))
    assert view.scrolling.at_end
    return sorted(costs)[-6]


@pytest.mark.gui
def test_copying_gives_the_original_text(show: Show) -> None:
    view, _, trace = shown_tokens(show, WORDS * 3)
    (row,) = token_rows(view)
    view.selection.start(row.row, 0)
    view.selection.extend(row.row, 1 << 30)
    view.selection.show()
    view.copy()
    assert QApplication.clipboard().text() == trace.text.replace("\r", "").removesuffix("\n")
    view.select_all()
    view.copy()
    assert QApplication.clipboard().text() == "question\n\n" + trace.text.strip("\r\n")


@pytest.mark.gui
def test_the_keyboard_goes_from_token_to_token_over_rows(show: Show) -> None:
    words = [f" word{number}" + (".\n" if number % 40 == 39 else "") for number in range(500)]
    view, _, trace = shown_tokens(show, words, height=600)
    view.verticalScrollBar().setValue(0)
    row = token_rows(view)[0]
    row.setFocus(Qt.FocusReason.TabFocusReason)
    assert row.cursor_token == 0
    for key, token in (
        (Qt.Key.Key_Right, 1),
        (Qt.Key.Key_Right, 2),
        (Qt.Key.Key_Left, 1),
        (Qt.Key.Key_End, row.tokens()[-1]),
    ):
        QTest.keyClick(row, key)
        assert row.cursor_token == token
    QTest.keyClick(row, Qt.Key.Key_Right)
    second = QApplication.focusWidget()
    assert isinstance(second, TokenRow)
    assert second is not row
    assert second.cursor_token == row.tokens().stop
    QTest.keyClick(second, Qt.Key.Key_Down)
    below = second.token_area(second.cursor_token)
    assert below.top() > second.token_area(second.tokens()[0]).top()
    assert (
        0 <= view.viewport().mapFromGlobal(second.mapToGlobal(below.center())).y() <= view.viewport().height()
    )
    QTest.keyClick(second, Qt.Key.Key_Return)
    assert view.inspection.popup.isVisible()
    assert trace.token(second.cursor_token).text.strip() in view.inspection.popup.title.text()
    QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Escape)
    assert not view.inspection.popup.isVisible()
    assert QApplication.focusWidget() is second


def test_in_a_low_view_the_popup_cuts_no_text(show: Show) -> None:
    view, _items, _trace = shown_tokens(show, ["one ", "two ", "three "], height=130)
    row = token_rows(view)[0].row
    assert row is not None
    view.inspection.open(row, 1)
    popup = view.inspection.popup
    assert popup.title.isVisible()
    for label in (popup.title, popup.figures, popup.key, popup.note):
        needed = label.heightForWidth(label.width()) if label.wordWrap() else label.sizeHint().height()
        assert not label.isVisible() or label.height() >= needed
    view.resize(view.width(), 600)
    view.inspection.open(row, 2)
    assert popup.figures.isVisible()
    assert popup.note.isVisible()


@pytest.mark.parametrize("direction", [Qt.LayoutDirection.LeftToRight, Qt.LayoutDirection.RightToLeft])
def test_an_alternative_is_legible_in_both_directions(show: Show, direction: Qt.LayoutDirection) -> None:
    view, _ = show()

    def painted(text: str, share: float) -> tuple[QImage, tuple[QRect, QRect, QRect]]:
        other = Alternative(1, text, share, share)
        button = AlternativeButton(other, False, "", view.messages.style, view, "Continue")
        button.setLayoutDirection(direction)
        button.resize(300, 30)
        return button.grab().toImage(), button.places()

    full, places = painted("m" * 30, 0.25)
    empty, _unused = painted("", 0.25)
    text, bars, figure = places
    assert not text.intersects(bars)
    assert not bars.intersects(figure)
    assert text.united(figure).width() == 300 - 16
    assert full.copy(text) != empty.copy(text)
    for untouched in (bars, figure):
        assert full.copy(untouched) == empty.copy(untouched)
    changed, _unused = painted("", 0.5)
    half = bars.width() // 2 + 2
    near, far = bars.adjusted(0, 0, -half, 0), bars.adjusted(half, 0, 0, 0)
    unchanged = far if direction is Qt.LayoutDirection.LeftToRight else near
    assert changed.copy(unchanged) == empty.copy(unchanged)  # the bars begin where the text is
    assert changed.copy(bars) != empty.copy(bars)
