"""The composer: which keys send, what is never lost."""

from dataclasses import replace

import pytest
from PySide6.QtCore import QMimeData, Qt, QUrl
from PySide6.QtGui import QInputMethodEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QWidget

from desktop.services.composer.attachments import Held
from desktop.store.attachments.message_format import Attachment
from desktop.views.composer import attachment_chips
from desktop.views.composer.attachment_chips import AttachmentChips
from desktop.views.composer.composer import Composer
from desktop.views.composer.message_edit import LONG_PASTE

ENTER, KEYPAD = Qt.Key.Key_Return, Qt.Key.Key_Enter
NONE, SHIFT, CTRL = (
    Qt.KeyboardModifier.NoModifier,
    Qt.KeyboardModifier.ShiftModifier,
    Qt.KeyboardModifier.ControlModifier,
)
PAD = Qt.KeyboardModifier.KeypadModifier


@pytest.fixture
def composer(qtbot):
    widget = Composer()
    qtbot.addWidget(widget)
    widget.resize(500, 300)
    widget.show()
    widget.sent = []
    widget.submitted.connect(widget.sent.append)
    return widget


@pytest.mark.parametrize(
    ("send_with", "key", "modifier", "sends"),
    [
        ("enter", ENTER, NONE, True),
        ("enter", KEYPAD, PAD, True),
        ("enter", ENTER, CTRL, True),
        ("enter", ENTER, SHIFT, False),
        ("enter", KEYPAD, SHIFT | PAD, False),
        ("ctrl+enter", ENTER, NONE, False),
        ("ctrl+enter", KEYPAD, PAD, False),
        ("ctrl+enter", ENTER, CTRL, True),
        ("ctrl+enter", KEYPAD, CTRL | PAD, True),
        ("ctrl+enter", ENTER, SHIFT, False),
    ],
)
def test_which_keys_send(composer, qtbot, send_with, key, modifier, sends) -> None:
    composer.set_send_with(send_with)
    qtbot.keyClicks(composer.box, "hello")
    qtbot.keyClick(composer.box, key, modifier)
    assert composer.sent == (["hello"] if sends else [])
    assert composer.text() == ("hello" if sends else "hello\n")


def test_blank_text_is_not_sent(composer, qtbot) -> None:
    qtbot.keyClicks(composer.box, "   ")
    qtbot.keyClick(composer.box, ENTER)
    assert composer.sent == []
    assert not composer.button.isEnabled()


def compose(box: QWidget, preedit: str, commit: str = "") -> None:
    """What an input method sends: a word in the making, and one that is done."""
    event = QInputMethodEvent(preedit, [])
    event.setCommitString(commit)
    QApplication.sendEvent(box, event)


def test_an_input_method_that_composes_never_sends(composer, qtbot) -> None:
    qtbot.keyClicks(composer.box, "ni")
    QApplication.sendEvent(composer.box, QInputMethodEvent("ni hao", []))
    qtbot.keyClick(composer.box, ENTER)
    assert composer.sent == []
    commit = QInputMethodEvent("", [])
    commit.setCommitString("你好")
    QApplication.sendEvent(composer.box, commit)
    qtbot.keyClick(composer.box, ENTER)
    assert len(composer.sent) == 1
    assert "你好" in composer.sent[0]


def test_keys_of_an_input_method_do_nothing_else(composer, qtbot) -> None:
    asked: list[bool] = []
    composer.previous_requested.connect(lambda: asked.append(True))
    composer.box.setFocus()
    compose(composer.box, "ni")
    qtbot.keyClick(composer.box, Qt.Key.Key_Up)  # goes through the words that are offered
    assert asked == []
    compose(composer.box, "")
    qtbot.keyClick(composer.box, Qt.Key.Key_Up)
    assert asked == [True]


def test_the_replys_beginning_is_composed_too(composer, qtbot) -> None:
    composer.set_opening("x")
    box = composer.opening_box
    box.setFocus()
    qtbot.waitUntil(box.hasFocus)
    compose(box, "ni")
    qtbot.keyClick(box, ENTER)
    assert box.hasFocus()
    compose(box, "", "你")
    assert "你" in composer.opening()
    qtbot.keyClick(box, ENTER)
    assert composer.box.hasFocus()


def test_a_lost_focus_ends_the_composing(composer, qtbot) -> None:
    composer.box.setFocus()
    qtbot.keyClicks(composer.box, "hello")
    compose(composer.box, "ni")
    composer.button.setFocus()
    composer.box.setFocus()
    assert not composer.box.composing


@pytest.mark.parametrize("text", ["é", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "ﷺ", "日本語"])
def test_composed_keys_and_emoji_arrive_whole_and_are_erased_whole(composer, qtbot, text: str) -> None:
    composer.box.setFocus()
    compose(composer.box, "", text)
    assert composer.text() == text
    QTest.keyClick(composer.box, Qt.Key.Key_Home)
    for _ in range(3 if text == "日本語" else 1):
        QTest.keyClick(composer.box, Qt.Key.Key_Delete)
    assert composer.text() == ""


def test_text_stays_until_it_is_accepted(composer, qtbot) -> None:
    qtbot.keyClicks(composer.box, "keep me")
    qtbot.keyClick(composer.box, ENTER)
    assert composer.text() == "keep me"
    composer.accept()
    assert composer.text() == ""


def test_the_button_sends_or_stops(composer, qtbot) -> None:
    qtbot.keyClicks(composer.box, "go")
    qtbot.mouseClick(composer.button, Qt.MouseButton.LeftButton)
    assert composer.sent == ["go"]
    composer.set_answering(True)
    assert composer.button.accessibleName() == "Stop the reply"
    with qtbot.waitSignal(composer.stop_requested):
        qtbot.mouseClick(composer.button, Qt.MouseButton.LeftButton)
    qtbot.keyClick(composer.box, ENTER)
    assert composer.sent == ["go", "go"]  # it waits for the end of the reply
    assert composer.text() == "go"


def test_the_empty_box_says_what_it_is_for_and_the_button_which_key_sends(composer) -> None:
    def said() -> tuple[str, str]:
        return composer.box.placeholderText(), composer.button.toolTip()

    assert said() == ("Write a message", "Send (Enter)")
    composer.set_answering(True)
    assert said() == ("Write the next message", "Stop (Esc)")
    composer.set_send_with("ctrl+enter")
    assert said() == ("Write the next message", "Stop (Esc)")
    composer.set_answering(False)
    assert said() == ("Write a message (Ctrl+Enter to send)", "Send (Ctrl+Enter)")


def test_the_button_for_pictures_says_why_it_is_disabled(composer) -> None:
    def said() -> tuple[bool, str]:
        return composer.picture.isEnabled(), composer.picture.toolTip()

    composer.set_pictures("This model reads text only.")
    assert said() == (False, "This model reads text only.")
    composer.set_pictures("")
    assert said() == (True, "Attach pictures")


def test_it_grows_with_its_text_and_stops_growing(composer, qtbot) -> None:
    heights = []
    for lines in (1, 3, 9, 40):
        composer.set_text("\n".join("line" for _ in range(lines)))
        heights.append(composer.box.height())
    assert heights[0] < heights[1] < heights[2] == heights[3]
    assert heights[3] <= 9 * composer.box.fontMetrics().lineSpacing() + 20
    composer.accept()
    assert composer.box.height() == heights[0]


def test_a_long_line_wraps_and_grows_the_box(composer) -> None:
    one = composer.box.height()
    composer.set_text("word " * 60)
    assert composer.box.height() > one


def test_styled_text_is_pasted_plain(composer) -> None:
    data = QMimeData()
    data.setHtml("<b>bold</b>")
    data.setText("bold")
    composer.box.insertFromMimeData(data)
    assert composer.text() == "bold"


def test_a_source_that_offers_only_html_is_pasted_as_its_text(composer) -> None:
    data = QMimeData()
    data.setHtml("<p>one <b>bold</b> &amp; <a href='https://example.org'>link</a></p><ul><li>item</li></ul>")
    assert composer.box.canInsertFromMimeData(data)
    composer.box.insertFromMimeData(data)
    assert composer.text().split("\n") == ["one bold & link", "item"]


def test_pasted_files_are_reported_and_never_inserted_as_text(composer, qtbot) -> None:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile("/tmp/notes.md")])
    data.setText("/tmp/notes.md")
    with qtbot.waitSignal(composer.box.files_pasted) as reported:
        composer.box.insertFromMimeData(data)
    assert [path.name for path in reported.args[0]] == ["notes.md"]
    assert composer.text() == ""


def test_the_beginning_of_the_reply_is_for_one_message(composer, qtbot) -> None:
    qtbot.mouseClick(composer.opening_button, Qt.MouseButton.LeftButton)
    qtbot.keyClicks(composer.opening_box, "Sure")
    qtbot.keyClick(composer.opening_box, ENTER)
    assert composer.opening() == "Sure"
    assert composer.sent == []
    composer.accept()
    assert composer.opening() == ""
    composer.set_opening("Well")
    qtbot.keyClick(composer.opening_box, Qt.Key.Key_Escape)
    assert not composer.opening_box.isVisible()
    assert composer.opening() == ""


def test_each_chat_keeps_its_draft(composer, qtbot) -> None:
    composer.switch_conversation(1)
    qtbot.keyClicks(composer.box, "for one")
    composer.switch_conversation(2)
    assert composer.text() == ""
    qtbot.keyClicks(composer.box, "for two")
    composer.switch_conversation(1)
    assert composer.text() == "for one"
    composer.switch_conversation(1)
    assert composer.text() == "for one"
    composer.switch_conversation(2)
    assert composer.text() == "for two"


def test_up_in_an_empty_box_asks_for_the_previous_message(composer, qtbot) -> None:
    with qtbot.waitSignal(composer.previous_requested):
        qtbot.keyClick(composer.box, Qt.Key.Key_Up)
    qtbot.keyClicks(composer.box, "x")
    with qtbot.assertNotEmitted(composer.previous_requested):
        qtbot.keyClick(composer.box, Qt.Key.Key_Up)


def test_a_link_is_pasted_as_text_and_a_text_is_long_from_its_bound_on(composer) -> None:
    files, long = [], []
    composer.box.files_pasted.connect(files.append)
    composer.box.long_pasted.connect(long.append)
    data = QMimeData()
    data.setUrls([QUrl("https://example.org/a")])
    data.setText("https://example.org/a")
    composer.box.insertFromMimeData(data)
    assert (composer.text(), files) == ("https://example.org/a", [])
    for count in (LONG_PASTE - 1, LONG_PASTE):
        data = QMimeData()
        data.setText("a " * (count // 2) + "a" * (count % 2))
        composer.box.insertFromMimeData(data)
    assert [len(text) for text in long] == [LONG_PASTE]


def notes(count: int) -> list[Held]:
    return [Held(n, Attachment(f"a file of notes {n}.md", "text"), 10) for n in range(count)]


def test_many_files_scroll_and_leave_the_text_its_place(composer, qtbot) -> None:
    chips = AttachmentChips()
    composer.add_inside(chips)
    chips.show_held(notes(30))
    qtbot.waitUntil(lambda: len(chips.chips) == 30)
    composer.set_text("one\ntwo\nthree")
    for height in (400, 200):
        composer.resize(500, height)
        QApplication.processEvents()
        assert chips.geometry().bottom() < composer.box.geometry().top()
        assert composer.box.geometry().bottom() < composer.attach.geometry().top()
        assert chips.height() >= chips.chips[0].height(), "one line is whole"
        assert chips.verticalScrollBar().maximum() > 0


def test_hundreds_of_files_get_one_chip_each_a_few_at_a_time(composer, qtbot, monkeypatch) -> None:
    """200 dropped files stopped the window for half a minute: each made all chips again, twice."""
    made: list[int] = []
    begin = attachment_chips._Chip.__init__

    def counting(chip, held) -> None:
        made.append(held.key)
        begin(chip, held)

    chips = AttachmentChips()
    composer.add_inside(chips)
    for some in (notes(1), ()):  # the first time that it is shown, it gets its fonts and colours
        chips.show_held(some)
        QApplication.processEvents()
    monkeypatch.setattr(attachment_chips._Chip, "__init__", counting)
    held = notes(60)
    for count in range(1, 61):  # as files are read
        chips.show_held(held[:count], 1)
    assert 1 <= len(made) <= 6
    qtbot.waitUntil(lambda: len(chips.chips) == 60)
    for number in range(60):  # and counted
        held[number] = replace(held[number], tokens=7, exact=True)
        chips.show_held(held)
    assert made == list(range(60))
    assert [chip.count.text() for chip in chips.chips] == ["7 tokens"] * 60
    assert chips.chips[5].face.accessibleName() == "Preview of a file of notes 5.md, 7 tokens"
    first = chips.chips[0]
    del held[1]
    chips.show_held(held)
    assert [chip.key for chip in chips.chips] == [0, *range(2, 60)]
    assert chips.chips[0] is first
    assert made == list(range(60))
    chips.show_held(())
    assert chips.chips == []
    assert chips.isHidden()


def test_a_long_name_loses_its_middle_and_what_is_read_stands_last(composer, qtbot) -> None:
    chips = AttachmentChips()
    composer.add_inside(chips)
    composer.resize(900, 300)
    long = Held(1, Attachment("the notes of a long winter & spring.md", "text"), 10)
    chips.show_held([*notes(1), long], 1)
    chips.show_held([*notes(1), long, Held(2, Attachment("b.md", "text"), 10)], 1)
    qtbot.waitUntil(lambda: len(chips.chips) == 3)
    QApplication.processEvents()
    assert [chip.face.text() for chip in chips.chips] == [
        "a file of notes 0.md", "the notes of … && spring.md", "b.md",
    ]  # fmt: skip
    [reading] = [label for label in chips.findChildren(QLabel) if label.text().startswith("Reading")]
    place = reading.mapTo(composer, reading.rect().topLeft())
    ends = [chip.mapTo(composer, chip.rect().bottomRight()) for chip in chips.chips]
    assert all(place.y() > end.y() or place.x() > end.x() for end in ends)


def test_the_name_of_a_file_comes_back_where_there_is_room_again(composer) -> None:
    chips = AttachmentChips()
    composer.add_inside(chips)
    chips.show_held(notes(1))
    shown = []
    for width in (500, 230, 500):
        composer.resize(width, 300)
        for _ in range(3):
            QApplication.processEvents()
        shown.append(chips.chips[0].face.text())
    assert shown[0] == shown[2] == "a file of notes 0.md"
    assert "…" in shown[1]
