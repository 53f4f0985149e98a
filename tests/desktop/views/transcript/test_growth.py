"""Text appended to a document: the result is what Markdown makes of the whole, and the screen shows all of
it.
"""

from __future__ import annotations

import random

import pytest
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from desktop.blocks import Kind
from desktop.items.chats.messages import MessageItem
from desktop.views.transcript import TranscriptView
from desktop.views.transcript.rendering.append_text import grow, growth
from desktop.views.transcript.rendering.markdown import SafeDocument, set_markdown
from desktop.views.transcript.row_widgets.text import TextRow
from desktop.views.transcript.style import Style, TranscriptColours, make_style
from tests.desktop.views.transcript.conftest import Show

PROSE = (
    "Rivers are vital sources of fresh water, and they carve valleys - slowly - over 10,000 years. See "
    "www.example.com or mail me@example.org; AT&amp;T isn't \u201cold\u201d. A **bold claim** has *two* "
    "sides_of_it, `code here` [a link](https://x.org/a b) too! Caf\u00e9s in K\u00f6ln open at 9. "
    "\u5ddd\u306f\u6d41\u308c\u308b\u3001\u305a\u3063\u3068\u3002 \u05e0\u05d4\u05e8 "
    "\u05d2\u05d3\u05d5\u05dc ends here. It costs $5 and 6$ more\u2026 www is a word, http is one ~~not~~ "
    "really."
)
TEXTS = [
    (Kind.PROSE, PROSE),
    (Kind.PROSE, "2. is no list\n3 dogs and cats\nlast line  \nafter a hard break"),
    (Kind.PROSE, "# A heading with words #\n"),
    (Kind.PROSE, "A claim.[^1] And more words, with \\(a\\) sign[^b] in between"),
    (Kind.PROSE, "[name]: address that is none, for more words follow"),
    (
        Kind.LIST,
        "- one word\n- **two**: more words\n  - 2. nested, with text\n- [ ] a task\n- [x] done, it is",
    ),
    (Kind.LIST, "1. first, then\n2. [x] second one\n10. the tenth item goes on"),
    (Kind.QUOTE, "> A quote that goes on, line by line\n> and has *another* line"),
    (Kind.PROSE, "\u05e9\u05dc\u05d5\u05dd \u05dc\u05db\u05d5\u05dc\u05dd and English inside, 12 words"),
    (Kind.PROSE, "12 34 \u05e9\u05dc\u05d5\u05dd after digits"),
]
LETTERS = [
    *"ab 1.-*_`[]()!~|#>:&;@/\\\"'",
    " ",
    "word",
    " two words",
    "\n",
    "**",
    "www.",
    "http://",
    "\u05d0\u05d1",
    "\u4e2d",
]


@pytest.fixture
def style(qtbot: QtBot) -> Style:
    return make_style(QFont(), 100, TranscriptColours.from_palette(QApplication.palette()))


def lines(document: SafeDocument) -> list[tuple[str, float]]:
    """The laid-out lines with their heights in the document."""
    document.set_width(260)
    found, block = [], document.begin()
    while block.isValid():
        top = document.documentLayout().blockBoundingRect(block).top()
        for number in range(block.layout().lineCount()):
            line = block.layout().lineAt(number)
            found.append(
                (block.text()[line.textStart() : line.textStart() + line.textLength()], top + line.y())
            )
        block = block.next()
    return found


def write_out(
    source: str, kind: Kind, style: Style, sizes: random.Random, most: int, growing: bool = True
) -> tuple[int, int]:
    """Let a text grow in pieces and compare each state with the whole; returns how often it was appended to
    and how often set again.
    """
    document, before, grown, anew = SafeDocument(), "", 0, 0
    old: list[tuple[str, float]] = []
    place = 0
    while place < len(source):
        place += sizes.randint(1, most)
        after = source[:place]
        changed = grow(document, before, after) if before else -1
        whole = SafeDocument()
        set_markdown(whole, after, style, kind, growing=growing)
        if changed < 0:
            set_markdown(document, after, style, kind, growing=growing)
            anew += 1
        else:
            grown += 1
        assert document.toHtml() == whole.toHtml(), (before, after)
        new = lines(document)
        assert new == lines(whole)
        if changed >= 0:
            block = document.findBlock(changed)
            line = block.layout().lineForTextPosition(changed - block.position())
            top = document.documentLayout().blockBoundingRect(block).top() + line.y()
            same = [each for each in new if each[1] < top]
            assert old[: len(same)] == same, "a line above the place has changed"
        before, old = after, new
    return grown, anew


@pytest.mark.parametrize(("kind", "source"), TEXTS)
def test_a_text_that_grows_is_the_text_as_a_whole(style: Style, kind: Kind, source: str) -> None:
    for seed in range(6):
        write_out(source, kind, style, random.Random(seed), 1 + 3 * seed, growing=seed % 2 == 0)


@pytest.mark.slow
def test_any_text(style: Style) -> None:
    chance = random.Random(7)
    for _ in range(250):
        source = "".join(chance.choice(LETTERS) for _ in range(chance.randint(3, 24)))
        write_out(source, Kind.PROSE, style, chance, 4, growing=chance.random() < 0.7)


def test_most_prose_is_appended(style: Style) -> None:
    words = "The river rises in the hills, and turns east where the valley opens. " * 6
    grown, anew = write_out(words, Kind.PROSE, style, random.Random(1), 9)
    assert grown > 20 * anew


def test_text_that_may_change_earlier_text_is_not_appended() -> None:
    assert growth("Some wor", "Some words, yes") == "ds, yes"
    assert growth("Some words ", "Some words more ") == " more"
    assert growth("Some words", "Some words ") == ""
    for before, after in (
        ("2", "2. item"), ("-", "- item"), ("a **b", "a **b**"), ("see www", "see www.x.org"),
        ("R&am", "R&amp;D"), ("me@x", "me@x.org"), ("a **b**", "a **b** c"), ("one", "one\ntwo"),
        ("one ", "one  two"), ("abc", "abd"), ("abc", "abc"), ("", "abc"),
    ):  # fmt: skip
        assert growth(before, after) is None, (before, after)


@pytest.mark.slow
def test_the_screen_shows_all_of_a_growing_text(show: Show, qtbot: QtBot) -> None:
    """What stayed on the screen and what was painted again look like one painting of the whole."""
    view, model = show(
        [MessageItem(1, "user", "Go"), MessageItem(2, "assistant", "", running=True)], 420, 400
    )
    chance, place = random.Random(3), 0
    source = PROSE + "\n\n- one, two\n- three **four** five six\n\n> quoted words that go on\n\n" + PROSE
    partly = 0
    while place < len(source):
        step = chance.randint(2, 30)
        model.append_text(2, source[place : place + step])
        place += step
        qtbot.waitUntil(view.settled)
        partly += any(widget.grown_at >= 0 for widget in view.pool.widgets())
        if chance.random() < 0.2:
            view.resize(420 + chance.randint(-60, 60), 400)
            qtbot.waitUntil(view.settled)
        assert is_painted(view), source[:place][-60:]
    assert partly > 10


def is_painted(view: TranscriptView) -> bool:
    """Whether the screen shows what a full repaint of the window shows."""
    QApplication.processEvents()
    seen = view.screen().grabWindow(view.winId()).toImage()
    view.viewport().update()
    QApplication.processEvents()
    return seen == view.screen().grabWindow(view.winId()).toImage()


def test_a_row_is_painted_again_at_another_width(show: Show) -> None:
    view, _ = show([MessageItem(1, "user", "Go"), MessageItem(2, "assistant", PROSE)], 420, 400)
    widget = next(widget for widget in view.pool.widgets() if isinstance(widget, TextRow))
    assert is_painted(view)
    widget.resize(widget.width() - 120, widget.fit(widget.width() - 120))
    assert is_painted(view)
