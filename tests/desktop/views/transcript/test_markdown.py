"""What Markdown becomes in a document: nothing is loaded, HTML stays text, the style is applied."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QFont, QFontMetricsF, QImage, QTextBlockFormat, QTextDocument
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from desktop.blocks import Kind
from desktop.services.formulas.rich_text import fragments
from desktop.views.transcript.links import allowed
from desktop.views.transcript.rendering.code_highlight import CodeColours, IdleRunner
from desktop.views.transcript.rendering.markdown import (
    BOXED,
    DONE,
    NO_BREAK,
    QUOTES,
    SafeDocument,
    set_markdown,
)
from desktop.views.transcript.style import Style, TranscriptColours, make_style


@pytest.fixture
def style(qtbot: QtBot) -> Style:
    return make_style(QFont(), 100, TranscriptColours.from_palette(QApplication.palette()))


def links(document: QTextDocument) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    block = document.begin()
    while block.isValid():
        iterator = block.begin()
        while not iterator.atEnd():
            shape = iterator.fragment().charFormat()
            if shape.isAnchor():
                found.append((iterator.fragment().text(), shape.anchorHref()))
            assert not shape.isImageFormat()
            iterator += 1
        block = block.next()
    return found


def test_pictures_become_links_and_no_file_is_read(style: Style, tmp_path: Path) -> None:
    picture = QImage(40, 40, QImage.Format.Format_RGB32)
    picture.fill(0xFF0000)
    path = tmp_path / "secret.png"
    assert picture.save(str(path))
    document = SafeDocument()
    set_markdown(
        document,
        f"Look: ![a cat]({path.as_uri()}) and ![]({path}) and ![x](https://example.org/x.png)",
        style,
    )
    assert document.toPlainText() == "Look: a cat and picture and x"
    assert [text for text, _ in links(document)] == ["a cat", "picture", "x"]
    for name in (path.as_uri(), str(path), "https://example.org/x.png"):
        answer = document.resource(QTextDocument.ResourceType.ImageResource.value, QUrl(name))
        assert isinstance(answer, QImage)
        assert answer.width() == 1


def test_html_is_text(style: Style) -> None:
    document = SafeDocument()
    set_markdown(document, "a <b>bold</b> <script>x</script> <img src='file:///etc/hostname'>", style)
    assert "a bold <script>x</script> <img" in document.toPlainText()


def test_headings_are_bigger_by_level(style: Style) -> None:
    sizes = []
    for level in range(1, 5):
        document = SafeDocument()
        set_markdown(document, "#" * level + " Title *slanted*", style)
        iterator = document.begin().begin()
        sizes.append(iterator.fragment().charFormat().fontPointSize())
        iterator += 1
        assert iterator.fragment().charFormat().fontItalic()
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[3] > style.text_font.pointSizeF()


def test_numbers_of_a_list_continue(style: Style) -> None:
    document = SafeDocument()
    set_markdown(document, "3. three\n4. four\n", style)
    assert document.begin().textList().itemText(document.begin()) == "3."


def test_the_sign_of_a_number_follows_it_from_right_to_left_too(style: Style) -> None:
    document = SafeDocument()
    for source, kind in (("1. واحد\n2. two\n", Kind.LIST), ("> 1. שלום\n", Kind.QUOTE)):
        set_markdown(document, source, style, kind)
        first = document.begin()
        assert first.textDirection() == Qt.LayoutDirection.RightToLeft
        # Qt orders this text by the direction of the item, so the sign stands to the left of the number
        assert first.textList().itemText(first) == "1."


def test_undo_is_off_and_links_have_their_style(style: Style) -> None:
    document = SafeDocument()
    assert not document.isUndoRedoEnabled()
    set_markdown(document, "[a](https://example.org)", style)
    assert document.begin().begin().fragment().charFormat().foreground().color() == style.colours.link


@pytest.mark.parametrize(
    ("address", "opens"),
    [("https://example.org", True), ("HTTP://example.org", True), ("mailto:a@b.c", True),
    ("file:///etc/passwd", False), ("/bin/sh", False),
     ("javascript:alert(1)", False), ("smb://host/share", False), ("", False)],
)  # fmt: skip
def test_only_web_and_mail_links_are_opened(address: str, opens: bool) -> None:
    assert allowed(address) is opens


@pytest.mark.parametrize(("first", "count"), [(1, 3), (1, 12), (995, 10)])
def test_the_numbers_of_a_list_have_room(style: Style, first: int, count: int) -> None:
    document = SafeDocument()
    set_markdown(
        document, "\n".join(f"{number}. item" for number in range(first, first + count)), style, Kind.LIST
    )
    widest = QFontMetricsF(style.text_font).horizontalAdvance(f"{first + count - 1}. ")
    assert document.indentWidth() >= widest
    plain = SafeDocument()
    set_markdown(plain, "* item\n* item", style, Kind.LIST)
    assert plain.indentWidth() == style.px(1.35)


def test_done_items_are_ticked_and_not_crossed(style: Style) -> None:
    document = SafeDocument()
    set_markdown(document, "- [x] done\n- [ ] open\n- plain\n", style, Kind.LIST)
    first, second, third = (document.findBlockByNumber(number).blockFormat() for number in range(3))
    unchecked = QTextBlockFormat.MarkerType.Unchecked
    assert [shape.marker() for shape in (first, second)] == [unchecked, unchecked]
    assert [bool(shape.property(DONE)) for shape in (first, second, third)] == [True, False, False]
    set_markdown(document, "1. [x] done\n2. [ ] open\n", style, Kind.LIST)
    assert document.toPlainText() == "☑ done\n☐ open"
    first, second = (document.findBlockByNumber(number) for number in range(2))
    assert [bool(block.blockFormat().property(BOXED)) for block in (first, second)] == [True, True]
    assert [bool(block.blockFormat().property(DONE)) for block in (first, second)] == [True, False]
    sign, word = (next(shape for start, _, shape in fragments(first) if start >= at) for at in (0, 2))
    assert (sign.foreground().color().alpha(), word.foreground().color().alpha()) == (0, 255)


def test_a_right_to_left_table_begins_at_the_right(style: Style) -> None:
    document = SafeDocument()
    set_markdown(
        document, "| الاسم | العمر | x \\| y |\n|:--|---|--:|\n| أحمد | ٣٠ | a |\n| b |\n", style, Kind.TABLE
    )
    assert document.toPlainText().split() == ["x", "|", "y", "العمر", "الاسم", "a", "٣٠", "أحمد", "b"]
    set_markdown(document, "| one | שם |\n|---|---|\n| a | b |\n", style, Kind.TABLE)
    assert document.toPlainText().split() == ["one", "שם", "a", "b"]


def test_short_words_in_a_table_are_not_broken_at_their_hyphens(style: Style) -> None:
    document = SafeDocument()
    set_markdown(
        document,
        "| Licence | `a-b` |\n|---|---|\n| Apache-2.0 | a-word-that-is-far-too-long-for-one-line |\n",
        style,
        Kind.TABLE,
    )
    assert f"Apache{NO_BREAK}2.0" in document.toPlainText()
    assert "a-word-that-is-far" in document.toPlainText()


def paragraphs(document: QTextDocument) -> list[str]:
    found = []
    block = document.begin()
    while block.isValid():
        found.append(block.text())
        block = block.next()
    return found


@pytest.mark.parametrize("line_break", ["  \n   ", "\\\n   ", "<br>", "<br> ", "<br />\n   "])
@pytest.mark.parametrize("marker", ["1.", "-", "- [x]"])
def test_a_hard_break_does_not_begin_an_item(style: Style, line_break: str, marker: str) -> None:
    document = SafeDocument()
    set_markdown(document, f"{marker} Step one{line_break}detail\n{marker} Step two\n", style, Kind.LIST)
    assert [text.replace("\u2028", "|") for text in paragraphs(document)] == ["Step one|detail", "Step two"]
    assert document.begin().textList().count() == 2


def test_lists_at_one_level_have_one_bullet(style: Style) -> None:
    document = SafeDocument()
    set_markdown(document, "- a\n  - b\n    - c\n\n\n* d\n  * e\n+ f\n", style, Kind.LIST)
    styles = {
        block.text(): block.textList().format().style()
        for block in (document.findBlockByNumber(number) for number in range(6))
    }
    assert styles["a"] == styles["d"] == styles["f"]
    assert styles["b"] == styles["e"]
    assert len({styles["a"], styles["b"], styles["c"]}) == 3


def test_known_html_has_its_style(style: Style) -> None:
    document = SafeDocument()
    set_markdown(
        document,
        "<sub>a</sub><sup>b</sup><u>c</u><mark>d</mark><kbd>e</kbd><b>f</b><i>g</i><del>h</del>",
        style,
    )
    shapes = [shape for _, _, shape in fragments(document.begin())]
    assert document.toPlainText() == "abcdefgh"
    align = type(shapes[0]).VerticalAlignment
    assert [shape.verticalAlignment() for shape in shapes[:3]] == [
        align.AlignSubScript,
        align.AlignSuperScript,
        align.AlignNormal,
    ]
    assert shapes[2].fontUnderline()
    assert shapes[3].background().color() == style.colours.notice
    assert shapes[4].fontFixedPitch()
    assert (shapes[5].fontWeight(), shapes[6].fontItalic(), shapes[7].fontStrikeOut()) == (700, True, True)


def test_each_quote_within_a_quote_has_its_bar(style: Style) -> None:
    document = SafeDocument()
    set_markdown(document, "outer\n> inner\n> > third\n\n- item\n  > quote\n", style, Kind.QUOTE)
    found = [document.findBlockByNumber(number).blockFormat().property(QUOTES) for number in range(5)]
    assert found == [None, [0], [0, 0], None, [1]]


DEEP = {
    "bullets": (Kind.LIST, "".join(f"{'  ' * level}- level {level} goes on\n" for level in range(40))),
    "numbers": (Kind.LIST, "".join(f"{'   ' * level}1. level {level} goes on\n" for level in range(30))),
    "quotes": (Kind.QUOTE, "\n\n".join(f"{'> ' * level}level {level} goes on" for level in range(30))),
    "both": (Kind.LIST, "".join(f"{'  ' * level}- > level {level} goes on\n" for level in range(20))),
}


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize("scale", [100, 200])
def test_lists_and_quotes_within_many_others_keep_room_for_their_text(
    style: Style, name: str, scale: int
) -> None:
    kind, source = DEEP[name]
    document = SafeDocument()
    set_markdown(document, source, make_style(QFont(), scale, style.colours), kind)
    document.set_width(800)
    wide = document.indentWidth()
    document.set_width(380)
    assert document.size().height() > 0  # it lays all out
    block, least = document.begin(), 380.0
    while block.isValid():
        lines = [block.layout().lineAt(number) for number in range(block.layout().lineCount())]
        assert lines, f"{block.text()} is not shown"
        least = min(least, *(line.width() for line in lines))
        block = block.next()
    assert least > 60
    document.set_width(800)
    assert document.indentWidth() == wide, "the room is back"


def test_an_alert_begins_with_its_name(style: Style) -> None:
    document = SafeDocument()
    set_markdown(document, "- mind this\n", style, Kind.QUOTE, alert="warning")
    assert paragraphs(document) == ["Warning", "mind this"]
    assert document.begin().textList() is None
    assert document.begin().begin().fragment().charFormat().foreground().color() == style.colours.number


def test_lines_of_a_change_are_coloured(style: Style) -> None:
    colours = CodeColours(IdleRunner())
    for _ in colours._lex("diff", "-old\n+new\n same\n", lambda: None):
        pass
    lines = colours.get("diff", "-old\n+new\n same\n")
    assert lines is not None
    assert [{style for *_, style in line} for line in lines] == [{"removed"}, {"added"}, set(), set()]
    assert style.colours.removed.red() > style.colours.removed.green()
    assert style.colours.added.green() > style.colours.added.red()
