"""Banner, status line, welcome page, inspector: each by itself."""

import dataclasses
import itertools
import os

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QFont, QGuiApplication
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QApplication,
    QLineEdit,
    QListWidget,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

import resources
from desktop.items.models import local_models
from desktop.items.models.local_models import ModelEntry, starter_words
from desktop.views.chat import welcome_page
from desktop.views.chat.status_bar import StatusBar
from desktop.views.chat.welcome_page import WelcomePage, starter_labels
from desktop.views.layout.bring_forward import bring_forward
from desktop.views.models.model_picker import ModelPicker
from desktop.views.settings.settings_pane import Inspector
from desktop.views.widgets.banner import Banner
from desktop.views.widgets.empty_state import EmptyState
from desktop.views.widgets.growing_text_edit import GrowingTextEdit
from engine.core import Stats
from engine.settings import CacheSettings, SamplerSettings, StopSettings

STATS = Stats(
    prompt_tokens=900,
    prefill_tokens=900,
    new_tokens=101,
    context_tokens=1001,
    context_length=8192,
    prefill_seconds=1.5,
    decode_seconds=2.0,
)


def click(qtbot, button) -> None:
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


@pytest.mark.parametrize("active", [False, True])
def test_a_window_asks_for_attention_where_it_may_not_come_to_the_front(qtbot, monkeypatch, active) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    window.showMinimized()
    seen: list[object] = []
    monkeypatch.setattr(QApplication, "alert", seen.append)
    monkeypatch.setattr(window, "activateWindow", lambda: seen.append(os.environ["XDG_ACTIVATION_TOKEN"]))
    monkeypatch.setattr(window, "isActiveWindow", lambda: active)
    bring_forward(window, "may")
    assert seen == (["may"] if active else ["may", window])
    assert "XDG_ACTIVATION_TOKEN" not in os.environ
    assert window.isVisible()
    assert not window.isMinimized()


def test_banner_says_what_happened_and_can_be_dismissed(qtbot) -> None:
    banner = Banner()
    qtbot.addWidget(banner)
    banner.show_notice("The file is not a model.", "error")
    assert banner.isVisible()
    assert banner.text.accessibleName() == "Error: The file is not a model."
    assert not banner.undo.isVisible()
    click(qtbot, banner.copy)
    assert (
        QGuiApplication.clipboard().text().startswith("Error: The file is not a model.\nInglenook, Python ")
    )
    click(qtbot, banner.dismiss)
    assert not banner.isVisible()


def test_banner_offers_undo_once(qtbot) -> None:
    banner = Banner()
    qtbot.addWidget(banner)
    banner.show_notice("Message deleted.", "info", undo=True)
    with qtbot.waitSignal(banner.undo_requested):
        click(qtbot, banner.undo)
    assert not banner.isVisible()
    banner.show_notice("Message deleted.", "info", undo=True)
    banner.hide_undo()
    assert not banner.isVisible()


def test_banner_offers_something_to_do(qtbot) -> None:
    banner, done = Banner(), []
    qtbot.addWidget(banner)
    banner.show_notice("It does not fit.", "warning", offer=("Switch it off", lambda: done.append(1)))
    assert banner.offer.text() == "Switch it off"
    click(qtbot, banner.offer)
    assert done == [1]
    assert not banner.isVisible()
    banner.show_notice("It does not fit.", "warning", offer=("Switch it off", lambda: done.append(1)))
    banner.hide_offer("Something else")
    assert banner.isVisible()
    banner.hide_offer("Switch it off")
    assert not banner.isVisible()
    banner.show_notice("Something else.", "warning")
    banner.hide_offer("Switch it off")
    assert banner.isVisible()
    assert not banner.offer.isVisible()


def test_in_a_narrow_banner_the_offer_stands_below_the_text(qtbot) -> None:
    banner = Banner()
    qtbot.addWidget(banner)
    banner.show_notice(
        "It does not fit, for a reason that takes a while to tell. " * 2,
        "warning",
        offer=("Switch it off", lambda: None),
    )
    banner.resize(1000, 60)
    qtbot.waitUntil(lambda: banner.offer.x() > banner.text.geometry().right())
    banner.resize(400, 120)
    qtbot.waitUntil(lambda: banner.offer.y() >= banner.text.geometry().bottom())
    banner.resize(1000, 60)
    qtbot.waitUntil(lambda: banner.copy.x() > banner.offer.x() > banner.text.geometry().right())


def test_notes_leave_by_themselves_and_trouble_stays(qtbot, monkeypatch) -> None:
    monkeypatch.setattr("desktop.views.widgets.banner._INFO_SECONDS", 0.02)
    host, elsewhere, banner = QWidget(), QLineEdit(), Banner()
    qtbot.addWidget(host)
    layout = QVBoxLayout(host)
    layout.addWidget(elsewhere)
    layout.addWidget(banner)
    host.show()
    elsewhere.setFocus()
    monkeypatch.setattr(banner, "underMouse", lambda: False)
    banner.show_notice("Saved.", "info")
    qtbot.waitUntil(lambda: not banner.isVisible())
    banner.show_notice("Broken.", "warning")
    qtbot.wait(100)
    assert banner.isVisible()


def test_status_line_shows_the_figures_of_a_reply(qtbot) -> None:
    line = StatusBar()
    qtbot.addWidget(line)
    line.resize(900, 30)
    line.show()
    line.show_stats(STATS, "finished")
    shown = [line.reason.text(), line.prompt.text(), line.reply.text(), line.context.text()]
    assert shown == ["finished", "prompt 600 tok/s", "reply 50.0 tok/s", "1,001 / 8,192 tokens"]
    assert all(label.isVisible() for label in (line.reason, line.prompt, line.reply, line.context))
    line.show_stats(None, "")
    assert not any(label.isVisible() for label in (line.reason, line.prompt, line.reply, line.context))


def test_status_line_shows_what_drafting_brings(qtbot) -> None:
    line = StatusBar()
    qtbot.addWidget(line)
    line.resize(900, 30)
    line.show()
    line.show_stats(dataclasses.replace(STATS, passes=40, drafted_tokens=200, accepted_tokens=61), "")
    assert line.drafting.text() == "2.5 per pass, 30 % accepted"
    assert line.drafting.isVisible()
    line.show_stats(STATS, "")
    assert not line.drafting.isVisible()


def test_figures_of_the_status_line_are_never_cut_and_take_no_more_than_they_need(qtbot) -> None:
    line = StatusBar()
    qtbot.addWidget(line)
    line.resize(2000, 30)
    line.show()
    for state, speed in (
        ("Reading the prompt, 10,000 of 20,000", 2.0),
        ("Answering", 2345.6),
        ("Ready", 31.0),
    ):
        line.show_state(state)
        line.show_stats(
            Stats(
                new_tokens=101, decode_seconds=100 / speed, context_tokens=round(speed), context_length=8192
            ),
            state,
        )
        for font in (line.font(), QFont(line.font().family(), 20)):
            line.setFont(font)
            for label in (line.state, line.reply, line.context, line.reason):
                needed = label.fontMetrics().horizontalAdvance(label.text())
                assert needed <= label.width() <= needed + 16, label.text()
                assert label.height() >= label.fontMetrics().height()
        assert not line.reply.isHidden()


@pytest.mark.parametrize("width", [2000, 60])
def test_a_figure_with_characters_of_a_higher_font_is_not_cut(qtbot, width: int) -> None:
    line = StatusBar()
    qtbot.addWidget(line)
    line.resize(width, 30)
    line.show()
    line.show_state("Ready")
    line._write(line.context, "\u206885\u2069 / \u20684,096\u2069 \u0e01\u0e35\u0e48 \u4e2d \U0001f600")
    assert line.context.height() >= line.context.fontMetrics().boundingRect(line.context.text()).height()
    assert line.context.height() >= line.context.sizeHint().height()
    assert line.minimumSizeHint().height() >= line.context.height() + 10


def test_narrow_status_line_keeps_the_most_important(qtbot) -> None:
    line = StatusBar()
    qtbot.addWidget(line)
    line.show()
    line.show_stats(STATS, "stopped at the token limit")
    line.resize(line.context.sizeHint().width() + 60, 30)
    assert line.context.isVisible()
    assert not line.prompt.isVisible()


def test_status_line_progress(qtbot) -> None:
    line = StatusBar()
    qtbot.addWidget(line)
    line.resize(700, 30)
    line.show()
    line.show_progress("Reading the prompt, 128 of 512", 128, 512)
    assert (line.bar.value(), line.bar.maximum()) == (250, 1000)
    line.show_progress("Loading", 0, 0)
    assert line.bar.maximum() == 0
    qtbot.waitUntil(line.bar.isVisible)
    line.show_state("Ready")
    assert not line.bar.isVisible()
    assert line.state.text() == "Ready"


@pytest.mark.parametrize(("width", "lines", "below"), [(700, 1, False), (300, 1, True), (180, 2, True)])
def test_status_line_needs_more_lines_in_a_narrow_window(qtbot, width: int, lines: int, below: bool) -> None:
    """Nothing is under anything else, and the state is whole."""
    window, tool = QWidget(), QPushButton("Statistics")
    line, layout = StatusBar(), QVBoxLayout(window)
    layout.setContentsMargins(0, 0, 0, 0)
    layout.addWidget(line)
    layout.addStretch(1)
    line.add_tool(tool)
    qtbot.addWidget(window)
    line.show_state("The model is being loaded from the disk")
    window.resize(width, 200)
    window.show()
    height = line.fontMetrics().height()

    def apart() -> bool:
        places = line.state.geometry(), tool.geometry()
        return not places[0].intersects(places[1]) and all(line.rect().contains(place) for place in places)

    qtbot.waitUntil(lambda: line.state.height() == lines * height and apart())
    assert (tool.y() > line.state.geometry().bottom()) == below
    window.resize(900, 200)
    qtbot.waitUntil(lambda: line.height() == height + 10)


def test_status_line_puts_the_destination_below_a_long_state(qtbot) -> None:
    window, tool, line = QWidget(), QPushButton("Statistics"), StatusBar()
    layout = QVBoxLayout(window)
    layout.addWidget(line)
    layout.addStretch(1)
    line.add_tool(tool)
    qtbot.addWidget(window)
    line.show_state("The model is being loaded")
    line.show_destination("Messages go to Laboratory")
    window.resize(260, 200)
    window.show()

    def apart() -> bool:
        places = [each.geometry() for each in (line.state, line.destination, tool)]
        return all(line.rect().contains(place) for place in places) and not any(
            a.intersects(b) for a, b in itertools.combinations(places, 2)
        )

    qtbot.waitUntil(apart)
    assert line.destination.y() > line.state.geometry().bottom()
    assert line.destination.x() == line.state.x()
    window.resize(900, 200)
    qtbot.waitUntil(lambda: line.destination.y() == line.state.y() and apart())


def test_status_line_shows_no_bar_for_what_is_over_at_once(qtbot) -> None:
    line = StatusBar()
    qtbot.addWidget(line)
    line.resize(700, 30)
    line.show()
    line.show_progress("Reading the prompt, 30 of 30", 30, 30)
    assert line.state.text() == "Reading the prompt, 30 of 30"
    line.show_state("Answering")
    qtbot.wait(250)
    assert not line.bar.isVisible()


def test_welcome_download_with_cancel_and_retry(qtbot) -> None:
    page = WelcomePage()
    qtbot.addWidget(page)
    page.show()
    page.show_first_run()
    assert page.first_run.download.text() == starter_labels()[0]
    with qtbot.waitSignal(page.download_requested):
        click(qtbot, page.first_run.download)
    page.show_download("43 of 98 MB", 43, 98)
    assert page.first_run.progress.bar.value() == 438
    assert not page.first_run.download.isVisible()
    with qtbot.waitSignal(page.cancel_requested):
        click(qtbot, page.first_run.cancel)
    page.end_download("There is no network.")
    assert page.first_run.trouble.text() == "There is no network."
    assert page.first_run.download.isVisible()
    assert "Retry" in page.first_run.download.text()
    page.show_download("0 of 98 MB", 0, 98)
    assert not page.first_run.trouble.isVisible()  # what went wrong before is over


def test_the_keyboard_stays_with_the_download(qtbot) -> None:
    page = WelcomePage()
    qtbot.addWidget(page)
    page.show_first_run()
    page.show()
    qtbot.waitExposed(page)
    page.activateWindow()
    page.first_run.download.setFocus()
    qtbot.waitUntil(page.first_run.download.hasFocus)
    page.show_download("0 of 98 MB", 0, 98)
    assert page.first_run.cancel.hasFocus()
    page.end_download("There is no network.")
    assert page.first_run.download.hasFocus(), "the key that tries again, not one that opens the library"
    page.first_run.better.setFocus()
    page.show_download("0 of 98 MB", 0, 98)
    page.end_download()
    assert page.first_run.better.hasFocus()


def test_a_starter_inside_the_package_is_not_offered_as_a_download(qtbot, monkeypatch, tmp_path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / local_models._STARTER["file"]).touch()
    monkeypatch.setattr(resources, "_FOLDER", tmp_path)
    assert starter_words() == "Use starter model"
    monkeypatch.undo()
    assert starter_words().startswith("Download starter model (")
    for module in (local_models, welcome_page):
        monkeypatch.setattr(module, "starter_inside", lambda: True)
    page, picker = WelcomePage(), ModelPicker()
    qtbot.addWidget(page)
    qtbot.addWidget(picker)
    page.show()
    page.show_download("Copying", 0, 0)
    page.end_download("The disk is full.")
    shown = [widget.text() for widget in page.first_run.findChildren(QPushButton)]
    shown += [widget.accessibleName() for widget in page.first_run.findChildren(QWidget)]
    picker.show_fetching(True)
    picker.show_fetching(False)
    shown += [action.text() for action in picker.menu().actions()]
    assert "Retry" in shown
    page.end_download()
    assert page.first_run.download.text().startswith("Chat with the starter model")
    assert not [words for words in shown if "ownload" in words]


def test_welcome_examples_go_to_the_composer(qtbot) -> None:
    page = WelcomePage()
    qtbot.addWidget(page)
    page.show_ready("SmolLM2")
    assert "SmolLM2" in page.ready.text.text()
    button = page.ready.findChildren(QPushButton)[0]
    with qtbot.waitSignal(page.example_chosen) as chosen:
        button.click()
    assert chosen.args == [button.text()]


@pytest.fixture
def inspector(qtbot):
    widget = Inspector(
        (("Sampling", SamplerSettings), ("Stop conditions", StopSettings), ("Context", CacheSettings))
    )
    qtbot.addWidget(widget)
    widget.resize(300, 600)
    widget.show()
    return widget


def test_inspector_says_class_name_and_value(inspector, qtbot) -> None:
    sources = {field.name: "default" for field in dataclasses.fields(SamplerSettings)}
    inspector.show_values(SamplerSettings(top_k=7), sources)
    boxes = [w for w in inspector.findChildren(QAbstractSpinBox) if w.accessibleName() == "Top K"]
    assert boxes[0].text() == "7"
    with qtbot.waitSignal(inspector.changed) as change:
        boxes[0].setValue(9)
    assert change.args == [SamplerSettings, "top_k", 9]


def test_groups_fold(inspector, qtbot) -> None:
    context = inspector.groups[2]
    assert not context.content.isVisible()
    click(qtbot, context.header)
    assert context.content.isVisible()
    assert context.header.accessibleDescription() == "expanded"


def test_system_prompt_is_reported_after_a_pause_and_before_saving(inspector, qtbot) -> None:
    inspector.show_system_prompt("Old.")
    with qtbot.waitSignal(inspector.system_prompt_changed) as change:
        qtbot.keyClicks(inspector.prompt, "New. ")
    assert change.args == ["New. Old.", True]
    qtbot.keyClicks(inspector.prompt, "X")
    with qtbot.waitSignals([inspector.system_prompt_changed, inspector.save_requested], order="strict"):
        click(qtbot, inspector.save)


def test_showing_a_prompt_is_not_a_change(inspector, qtbot) -> None:
    with qtbot.assertNotEmitted(inspector.system_prompt_changed, wait=700):
        inspector.show_system_prompt("Shown.")


def test_the_first_page_offers_what_is_on_this_computer(qtbot) -> None:
    page = WelcomePage()
    qtbot.addWidget(page)
    page.resize(420, 500)
    page.show()
    found = page.first_run.found
    assert not found.isVisible()
    entries = [ModelEntry("/m/broken.gguf", "Broken", trouble="no header")]
    long = "A model with a name that is far longer than anything that finds room on such a button"
    entries += [ModelEntry(f"/m/{name}.gguf", f"{long}, {name}", "7 B · 4.5 bit · 4 GB") for name in "abcd"]
    assert page.first_run.download.property("tone") == "primary"
    page.show_models(entries)
    assert page.first_run.download.property("tone") != "primary"
    qtbot.waitUntil(lambda: len(found.findChildren(QPushButton)) == 3)
    buttons = found.findChildren(QPushButton)
    assert [button.toolTip() for button in buttons] == ["/m/a.gguf", "/m/b.gguf", "/m/c.gguf"]
    # what does not fit is left out, but said to a screen reader
    qtbot.waitUntil(lambda: buttons[0].text().endswith("…"))
    assert buttons[0].accessibleName().endswith("4 GB")
    with qtbot.waitSignal(page.model_chosen) as chosen:
        qtbot.mouseClick(buttons[1], Qt.MouseButton.LeftButton)
    assert chosen.args == ["/m/b.gguf"]
    page.show_models([])
    assert page.first_run.download.property("tone") == "primary"
    assert not found.isVisible()


def test_an_empty_list_says_what_will_be_in_it(qtbot) -> None:
    shown = QListWidget()
    qtbot.addWidget(shown)
    words = EmptyState(shown, "There is nothing yet.")
    shown.resize(300, 200)
    shown.show()
    assert words.isVisible()
    assert words.size() == shown.viewport().size()
    assert shown.accessibleDescription() == "There is nothing yet."
    shown.addItem("one")
    assert not words.isVisible()
    assert shown.accessibleDescription() == ""
    shown.clear()
    assert words.isVisible()


def test_an_empty_list_has_room_for_its_words_when_it_comes_into_sight(qtbot) -> None:
    window, shown = QWidget(), QListWidget()
    qtbot.addWidget(window)
    shown.setParent(window)
    shown.setGeometry(0, 0, 200, 60)
    shown.hide()
    words = EmptyState(shown, "There is nothing yet, and this text needs more lines. " * 5)
    window.show()
    assert shown.minimumHeight() == 0
    shown.show()
    assert shown.height() >= words.heightForWidth(words.width()) > 60


def test_the_first_button_is_whole_with_large_text(qtbot) -> None:
    page = WelcomePage()
    qtbot.addWidget(page)
    font = page.font()
    font.setPointSizeF(font.pointSizeF() * 2)
    page.setFont(font)
    page.resize(800, 600)
    page.show()
    button = page.first_run.download
    qtbot.waitUntil(lambda: button.width() >= button.sizeHint().width())
    assert button.text() == starter_labels()[0]


def test_code_in_a_text_box_follows_the_text_size(qtbot, qapp) -> None:
    box, usual = GrowingTextEdit("Pattern"), qapp.font()
    qtbot.addWidget(box)
    box.use_code_font()
    family, small = box.font().family(), box.font().pointSizeF()
    large = QFont(usual)
    large.setPointSizeF(usual.pointSizeF() * 2)
    try:
        qapp.setFont(large)
        qapp.processEvents()
        assert (box.font().family(), box.font().pointSizeF()) == (family, small * 2)
    finally:
        qapp.setFont(usual)
