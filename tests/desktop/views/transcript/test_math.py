"""Formulas: drawn on the baseline of their line, shown as source until then, and for good if they cannot be
drawn.
"""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtGui import QFont, QFontMetricsF, QImage, QTextDocument
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from desktop.items.chats.messages import MessageItem
from desktop.services.formulas.rich_text import fragments
from desktop.views.transcript import TranscriptView
from desktop.views.transcript.rendering.math_image import Picture, render_math
from desktop.views.transcript.row_widgets.math import MathRow
from desktop.views.transcript.row_widgets.table import TableRow
from desktop.views.transcript.row_widgets.text import PictureRow, TextRow
from desktop.views.transcript.rows import RowKind
from tests.desktop.views.transcript.conftest import Show

FORMULAS = [
    "x", r"E=mc^2", r"\frac{-b\pm\sqrt{b^2-4ac}}{2a}", r"\int_0^\infty e^{-x^2}\,dx",
    r"\begin{pmatrix}a&b\\c&d\end{pmatrix}",
    r"f(x)=\begin{cases}1&x>0\\0&\text{otherwise}\end{cases}", r"\sum_{i=1}^{n} i^2",
    r"\mathbb{R}^n\to\mathcal{L}",
    r"\begin{align*}a&=b\\c&=d\end{align*}",
    r"\hat{\theta}=\arg\max_\theta \log p(x\mid\theta)", r"\left(\frac12\right)^n",
    r"\operatorname*{arg\,min}_x f(x)",
    r"\text{if $x>0$ then}", r"a \\ b",
    r"a&=b\\c&=d", r"\boxed{42}", r"x=1 \tag{3}", r"\begin{equation}x\label{e}\end{equation}",
    r"\binom{n}{k}",
    r"\begin{gather}a\\b\end{gather}",
    "α+β≤γ",
    r"\lVert x\rVert", r"\xrightarrow{f}", r"\overset{!}{=}", r"50\%",
    r"\begin{bmatrix}1&\cdots\\\vdots&\ddots\end{bmatrix}", r"90^\circ",
    r"\nabla\cdot\mathbf{E}",
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}^{-1}", r"\begin{vmatrix}a&b\\c&d\end{vmatrix}_{i}^{2}",
    r"\begin{bmatrix}x\end{bmatrix}^\top y",
    r"P\left(A\middle|B\right)", r"\left\{x \,\middle\vert\, x>0\right\}", r"\frac{\cancel{x}}{\cancel{x}y}",
    r"\bcancel{a}+\xcancel{b}",
    r"\ce{2H2 + O2 -> 2H2O}", r"\ce{SO4^2-}", r"\ce{^{227}_{90}Th+}", r"\ce{A ->[\Delta][\text{heat}] B v}",
    r"\SI{9.81}{\metre\per\second\squared}", r"\qty{5}{\degreeCelsius}", r"\SI{3e8}{m/s}", r"\num{1.5(2)e-3}",
    r"\ang{30}", r"\unit{kg.m^2}",
    r"\text{50\%}", r"\text{a\_b \& c \#1 \$2}",
]  # fmt: skip
BROKEN = ["", "^", "}{", r"\frac{1}{", r"\undefined x", r"\ce{H2O", r"\SI{1", r"\newcommand{\R}{x}\R", "日本",
    r"\\", r"\begin{pmatrix}a",
          "{" * 500, "x" * 5000,
          r"\left(" * 300, r"\includegraphics{/etc/passwd}", r"\href{http://example.org}{x}", "\x00", "x_1_2",
          r"\right)"]  # fmt: skip


@pytest.mark.parametrize("latex", FORMULAS)
@pytest.mark.parametrize("display", [True, False])
def test_formulas_of_models_are_drawn(qapp: QApplication, latex: str, display: bool) -> None:
    picture = render_math(latex, 18, "#203040", display, 2.0)
    assert picture is not None
    assert picture.image.width() == 2 * picture.width
    assert 0 <= picture.descent < picture.height
    assert inked(picture.image) > 10
    assert coloured(picture.image) == {(0x20, 0x30, 0x40)}


def inked(image: QImage) -> int:
    return sum(
        image.pixelColor(x, y).alpha() > 128 for x in range(image.width()) for y in range(image.height())
    )


def coloured(image: QImage) -> set[tuple[int, int, int]]:
    colours = (image.pixelColor(x, y) for x in range(image.width()) for y in range(image.height()))
    return {(colour.red(), colour.green(), colour.blue()) for colour in colours if colour.alpha() == 255}


@pytest.mark.parametrize("latex", BROKEN)
def test_formulas_that_cannot_be_drawn_are_refused_without_an_exception(
    qapp: QApplication, latex: str
) -> None:
    assert render_math(latex, 18, "#000000", True, 1.0) is None


def test_letters_stand_on_the_baseline(qapp: QApplication) -> None:
    for latex, below in (("x", False), ("H", False), ("p", True), (r"\frac{a}{b}", True)):
        picture = render_math(latex, 40, "#000000", False, 1.0)
        assert isinstance(picture, Picture)
        base = picture.height - picture.descent
        rows = [
            y
            for y in range(picture.height)
            if any(picture.image.pixelColor(x, y).alpha() > 60 for x in range(picture.width))
        ]
        assert (max(rows) > base + 2) is below, latex
        assert abs(max(rows) - base) <= 2 or below


def row(view: TranscriptView, kind: type[PictureRow]) -> PictureRow:
    [found] = [widget for widget in view.pool.widgets() if isinstance(widget, kind)]
    assert isinstance(found, PictureRow)
    return found


def images(document: QTextDocument) -> list[tuple[int, int]]:
    found = []
    block = document.begin()
    while block.isValid():
        found += [(start, length) for start, length, shape in fragments(block) if shape.isImageFormat()]
        block = block.next()
    return found


def test_an_inline_formula_lies_on_the_line_of_its_text(show: Show, qtbot: QtBot) -> None:
    for latex in ("x", r"\frac{a}{b}", "y_{i_j}", r"\sum_{i=1}^n i"):
        view, _ = show([MessageItem(1, "assistant", f"A ${latex}$ b")])
        text = row(view, TextRow)
        assert text.document.toPlainText() == "A \ufffc b"
        line = text.document.begin().layout().lineAt(0)
        picture = render_math(latex, 18, "#000000", False, 1.0)
        assert picture is not None
        resource = images(text.document)
        assert len(resource) == 1
        ascent = QFontMetricsF(QFont(text.document.defaultFont())).ascent()
        assert line.ascent() >= ascent - 1
        assert line.descent() <= line.height() * 0.6


def test_selecting_over_formulas_copies_their_latex(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "assistant", "A $x^2$ 😀 and \\(y\\) b\n\n$$\nz\n$$\n")])
    text = row(view, TextRow)
    last = text.document.characterCount() - 1
    text.select(0, last)
    assert text.selected_text() == "A $x^2$ 😀 and \\(y\\) b"
    text.select(3, last)
    assert text.selected_text() == " 😀 and \\(y\\) b"
    math = row(view, MathRow)
    math.select(0, 1)
    assert math.selected_text() == "$$\nz\n$$"


def test_formulas_that_cannot_be_drawn_stay_source(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "assistant", "A $\\nothing{x}$ b\n\n$$ \\nothing $$\n")])
    assert row(view, TextRow).document.toPlainText() == "A $\\nothing{x}$ b"
    assert row(view, MathRow).document.toPlainText() == "$$ \\nothing $$"


def test_a_wide_formula_scrolls_sideways_and_a_narrow_one_is_centred(show: Show, qtbot: QtBot) -> None:
    view, _ = show(
        [MessageItem(1, "assistant", "$$" + "+".join(f"a_{{{i}}}" for i in range(60)) + "$$")], 500, 400
    )
    wide = row(view, MathRow)
    assert wide.bar.isVisible()
    assert view.horizontalScrollBar().maximum() == 0
    before = wide.origin().x()
    wide.bar.setValue(wide.bar.maximum())
    assert wide.origin().x() < before
    narrow, _ = show([MessageItem(1, "assistant", "$$x$$")], 500, 400)
    found = row(narrow, MathRow)
    assert not found.bar.isVisible()
    assert abs(found.origin().x() - found.width() / 2) < 20


def test_formulas_stream_in_and_the_view_stays_at_its_end(show: Show, qtbot: QtBot) -> None:
    text = "Long before.\n\n" * 30 + "So $a_1$ and\n\n$$\n\\frac{a}{b}\n$$\n\nEnd $b$."
    view, model = show([MessageItem(1, "assistant", "", running=True)], 500, 300)
    for start in range(0, len(text), 3):
        model.append_text(1, text[start : start + 3])
        view.flush()
        assert view.scrolling.at_end
        assert view.verticalScrollBar().value() == view.verticalScrollBar().maximum()
    qtbot.waitUntil(view.settled)
    assert view.verticalScrollBar().value() == view.verticalScrollBar().maximum()
    assert images(row(view, MathRow).document)


def test_a_word_stands_for_a_formula_until_it_is_drawn(show: Show, qtbot: QtBot) -> None:
    text = "So\n\n$$\n\\frac{a}{\\text{all of b}}\n\\\\ c\n$$\n\nEnd."
    view, model = show([MessageItem(1, "assistant", "", running=True)], 500, 300)
    seen, tall = set(), set()
    for start in range(len(text)):
        model.append_text(1, text[start])
        view.flush()
        for widget in view.pool.widgets():
            if isinstance(widget, MathRow):
                seen.add(widget.document.toPlainText())
                tall.add(widget.height())
                if not images(widget.document):
                    widget.select(0, 3)
                    assert widget.selected_text().startswith("$$")
                    assert text[4:].startswith(widget.selected_text())
    qtbot.waitUntil(view.settled)
    assert seen - {"\ufffc"} == {"Formula…"}
    assert len(tall) <= 2, "its space changes once, when it is drawn"
    assert images(row(view, MathRow).document)


def test_text_after_a_sign_that_opens_no_formula_is_shown_while_it_grows(show: Show) -> None:
    view, model = show([MessageItem(1, "assistant", "", running=True)], 500, 300)
    model.append_text(1, "$$ is what every shop wants")
    view.flush()
    assert row(view, MathRow).document.toPlainText() == "is what every shop wants"


def test_drawing_formulas_above_does_not_move_the_text_on_the_screen(show: Show, qtbot: QtBot) -> None:
    maths = "\n\n".join(
        f"$$\n\\begin{{pmatrix}}{i}\\\\2\\\\3\\\\4\\\\5\\end{{pmatrix}}\n$$" for i in range(40)
    )
    view, _ = show([MessageItem(1, "assistant", maths + "\n\nHere.\n\n" + maths)], 500, 400)
    here = next(r for r in view.messages.layout.rows if r.text.strip() == "Here.")
    view.scrolling.hold(here)
    view.verticalScrollBar().setValue(view.messages.layout.top(here) - 100)
    at = view.pool.widget(here)
    assert at is not None
    place = at.mapTo(view, QPoint(0, 0)).y()
    qtbot.waitUntil(view.settled)
    assert abs(at.mapTo(view, QPoint(0, 0)).y() - place) <= 1


def test_tables_and_quotes_show_formulas(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "assistant", "| a | b |\n|---|---|\n| $x^2$ | \\(y\\) |\n\n> $z$\n")])
    assert len(images(row(view, TableRow).document)) == 2
    assert len(images(row(view, TextRow).document)) == 1


def test_a_scrolled_away_formula_is_known_when_it_comes_back(show: Show, qtbot: QtBot) -> None:
    view, _ = show([MessageItem(1, "assistant", "$$x^2$$\n\n" + "word\n\n" * 200)], 500, 300)
    view.verticalScrollBar().setValue(0)
    qtbot.waitUntil(view.settled)
    for value in (view.verticalScrollBar().maximum(), 0):
        view.verticalScrollBar().setValue(value)
    assert images(row(view, MathRow).document), "no source flashes up"
    assert RowKind.MATH in [r.kind for r in view.pool.live]
