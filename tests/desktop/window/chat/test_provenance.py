"""Reply details and replay, context bar, memory bars and figures in the whole window."""

from __future__ import annotations

import dataclasses
import hashlib
import json

import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QGuiApplication, QHelpEvent, QMouseEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from desktop.app import EngineApi
from desktop.services.models.memory_forecast import Place, forecast
from desktop.services.provenance.replay import Compared
from desktop.services.session.context_meter import Measured, cost_words
from desktop.views.chat.context_meter import lines
from desktop.views.chat.stats_dialog import nice_top
from desktop.views.settings.model.memory_bar import fit_words
from desktop.views.transcript.row_widgets.footer import FooterRow
from engine.backends.choice import Gpu, Usable
from engine.settings import CacheSettings, LoadSettings, SamplerSettings, SpeculationSettings, StopSettings
from tests.desktop.fakes import ECHO_INFO
from tests.desktop.hand import Hand

Key, Modifier = Qt.Key, Qt.KeyboardModifier
pytestmark = pytest.mark.gui


@pytest.fixture
def hand(qtbot, qapp, tmp_path):
    found = Hand(qtbot, tmp_path)
    (tmp_path / "echo.gguf").write_bytes(b"weights")
    found.load()
    yield found
    found.close()


def replayed(hand: Hand) -> str:
    dialog = hand.window.reply_details.dialog
    hand.click("Replay", dialog)
    hand.qtbot.waitUntil(lambda: dialog.replay.text() == "Replay")
    return dialog.words.text()


def test_what_produced_a_reply(hand, qtbot) -> None:
    session = hand.session
    session.set_settings(SamplerSettings(temperature=1.25))
    hand.say("the fox and the hound")
    hand.press(Key.Key_I, Modifier.ControlModifier)
    dialog = hand.window.reply_details.dialog
    rows = {title: label.text() for title, label in dialog._values.items()}
    assert rows["Model"] == "echo"
    assert rows["Seed"] == "1, random"
    assert rows["Ended"] == "ended by the model"
    expected = hashlib.sha256(b"weights").hexdigest()
    qtbot.waitUntil(lambda: dialog._values["SHA-256"].text().replace("\u200b", "") == expected)
    assert dialog.prompt.toPlainText() == "<|turn|>the fox and the hound"
    tree = dialog.settings.tree
    changed = [
        tree.topLevelItem(at) for at in range(tree.topLevelItemCount()) if tree.topLevelItem(at).text(2)
    ]
    assert [(item.text(0).strip(), item.text(1), item.text(2)) for item in changed] == [
        ("Temperature", "1.25", "0.7")
    ]
    dialog.settings.only.click()
    assert sum(not tree.topLevelItem(at).isHidden() for at in range(tree.topLevelItemCount())) == 2
    hand.click("Copy as JSON", dialog)
    copied = json.loads(QGuiApplication.clipboard().text())
    assert copied["model"]["sha256"] == expected
    assert copied["prompt"]["text"] == "<|turn|>the fox and the hound"
    assert copied["settings"]["SamplerSettings"]["temperature"] == 1.25
    assert len(copied["reply"]["token_ids"]) == 5

    before = [dataclasses.astuple(item) for item in hand.items()]
    assert replayed(hand) == "Identical: 5 tokens."
    assert [dataclasses.astuple(item) for item in hand.items()] == before, (
        "a replay writes nothing into the chat"
    )
    assert hand.echo.chat.requests[-1].sampler == SamplerSettings(temperature=1.25, seed=1)
    hand.echo.chat.reply = "the fox and his hound again"
    assert (
        replayed(hand)
        == "The first 3 tokens are identical; then the reply has “ the”, and the replay writes “ his”."
    )
    hand.echo.chat.reply = None
    dialog.close()

    (hand.folder / "echo.gguf").write_bytes(b"others!")
    session.set_settings(dataclasses.replace(session.settings(LoadSettings), quantise="q8"))
    session.reload_model()
    hand.wait_for("idle")
    hand.window.chat.transcript.act("origin", hand.items()[-1].id)  # as the button below the reply does
    words = hand.window.reply_details.dialog.words.text()
    assert words.startswith("The replay may differ. The loaded model is echo, whose files differ")
    assert "quantisation while loading" in words
    assert hand.window.reply_details.dialog.reply.hash == expected, "that of then"
    hand.window.reply_details.dialog.close()
    session.unload_model()
    hand.wait_for("no_model")
    hand.window.actions_by_name["origin"].trigger()
    assert not hand.window.reply_details.dialog.replay.isEnabled()
    assert hand.window.reply_details.dialog.words.text() == "Load the model first."
    hand.window.reply_details.dialog.close()


def test_the_prompt_of_a_second_reply_survives_a_restart(hand, qtbot) -> None:
    hand.say("one")
    hand.say("two words")
    hand.restart()
    hand.window.actions_by_name["origin"].trigger()
    dialog = hand.window.reply_details.dialog
    assert dialog.prompt.toPlainText() == "<|turn|>one<|turn|>one<|turn|>two words"
    dialog.close()
    hand.load()
    hand.window.actions_by_name["origin"].trigger()
    assert replayed(hand) == "Identical: 2 tokens."
    hand.window.reply_details.dialog.close()


def test_the_context_bar_edit_costs_and_figures(hand, qtbot) -> None:
    session, clarity = hand.session, hand.window.context
    hand.say("the fox and the hound")
    session.set_settings(SpeculationSettings(method="ngram"))
    hand.say("one two three")
    session.set_system_prompt("Be kind")
    hand.type("and now four words")
    meter = hand.window.services.context_meter
    qtbot.waitUntil(lambda: meter.measured.draft == 4 and meter.measured.system == 2)
    now = meter.measured
    assert (now.length, now.messages, now.used, now.next_read, now.about) == (4096, 16, 22, 22, False)
    assert "Messages: 16" in clarity.bar.accessibleName()
    assert "Read by the next message: 22 tokens" in clarity.bar.toolTip()
    first = hand.items()[0].id
    assert meter.edit_words(first) == "Editing this rereads about 7 tokens", (
        "the prompt before it is not cached"
    )
    transcript = hand.window.chat.transcript
    transcript.flush()
    footer = next(
        row
        for row in transcript.pool.live.values()
        if isinstance(row, FooterRow) and row.row.item.id == hand.items()[-1].id
    )
    button = footer.buttons["edit"]
    QApplication.sendEvent(
        button, QHelpEvent(QEvent.Type.ToolTip, QPoint(2, 2), button.mapToGlobal(QPoint(2, 2)))
    )
    assert "rereads about 18 tokens" in button.toolTip()
    clarity.show_context()
    assert clarity.bar.popup.isVisible()
    assert "Free: 4,074" in clarity.bar.popup.accessibleDescription()
    QTest.keyClick(clarity.bar.popup, Key.Key_Escape)
    assert not clarity.bar.popup.isVisible()

    hand.window.activateWindow()
    hand.box.setFocus()
    hand.press(Key.Key_G, Modifier.ControlModifier | Modifier.ShiftModifier)
    plot = clarity.figures.plot
    QTest.keyClick(plot, Key.Key_End)
    assert "Reply 2 of 2" in clarity.figures.words.text()
    assert "Accepted drafts: 75 %" in clarity.figures.words.text()
    QTest.keyClick(plot, Key.Key_Left)
    assert "Reply 1 of 2" in plot.accessibleDescription()
    assert "Drafts" not in plot.accessibleDescription()
    at, none = QPointF(plot.width() - 30, 50), Qt.MouseButton.NoButton
    QApplication.sendEvent(plot, QMouseEvent(QEvent.Type.MouseMove, at, at, none, none, Modifier.NoModifier))
    assert "Reply 2 of 2" in clarity.figures.words.text()
    with qtbot.waitSignal(plot.chosen) as chosen:
        QTest.keyClick(plot, Key.Key_Return)
    assert chosen.args == [hand.items()[3].id]
    hand.window.navigation.new_chat()
    assert plot.accessibleName() == "No statistics yet"
    clarity.figures.close()


def test_memory_bars_follow_the_settings(hand, qtbot) -> None:
    window, session = hand.window, hand.session
    window.inspector.open_groups(["Context", "Model"])
    bar = window.settings_controller.memory_bars[CacheSettings]
    qtbot.waitUntil(bar.isVisible)
    before = bar.accessibleName()
    assert "Weights: 562 kB" in before
    assert not bar.warning.isVisible()
    editor = window.inspector.forms[CacheSettings].editor("context_length")
    editor.typed.emit(512)  # the slider is being moved; nothing is in force yet
    assert session.settings(CacheSettings).context_length != 512
    moved = bar.accessibleName()
    assert moved != before
    draft = hand.folder / "small.gguf"
    draft.touch()
    session.set_settings(SpeculationSettings(method="model", draft_model=str(draft)))
    qtbot.waitUntil(lambda: "Draft model: 0 B" not in bar.accessibleName())
    session.unload_model()
    hand.wait_for("no_model")
    assert bar.words.isVisible()
    assert "Load a model" in bar.accessibleName()


def test_words_and_numbers() -> None:
    now = Measured(1000, 100, 500, 50, cached=400, starts=((1, 100, 300), (2, 300, 600)), rate=20.0)
    assert (now.cost_of_editing(1), now.cost_of_editing(2), now.cost_of_editing(9), now.next_read) == (
        200,
        300,
        0,
        250,
    )
    assert cost_words(3120, 780) == "about 3,120 tokens, about 4 s"
    assert cost_words(1, 0) == "about 1 token"
    assert cost_words(9000, 30) == "about 9,000 tokens, about 5 min"
    assert cost_words(5, 30).endswith("less than 1 s")
    assert ("Draft", "about 50") in lines(now._replace(about=True, dropped=2))
    assert [nice_top(value) for value in (0, 0.03, 0.7, 42, 100, 101)] == [1.0, 0.05, 1.0, 50.0, 100.0, 200.0]
    assert (
        Compared(0, 2, "a", "b").sentence
        == "The first token already differs; then the reply has “a”, and the replay writes “b”."
    )
    assert Compared(2, 2, "", "c").sentence.endswith("then the reply ends, and the replay writes “c”.")
    assert fit_words((Place("Memory", 10, (2, 3)),)) == ""
    assert fit_words((Place("Memory", 10_000, (9000, 3000)),)).startswith(
        "This will not fit: 2 kB more memory is needed."
    )


def test_each_gpu_has_its_bar() -> None:
    gb = 10**9
    gpus = Usable((Gpu(0, "A", 8 * gb, 7 * gb), Gpu(1, "B", 8 * gb, 5 * gb)))
    info = dataclasses.replace(ECHO_INFO, weights_bytes=4 * gb)
    places = forecast(info, None, CacheSettings(), LoadSettings(backend="cuda", gpus="0,1"), gpus)
    assert [place.name for place in places] == ["GPU 0, A", "GPU 1, B", "Memory"]
    assert [place.parts[0] for place in places[:2]] == [gb, 3 * gb]
    assert [place.parts[1] for place in places] == [2 * gb, 2 * gb, 0]
    (alone,) = forecast(info, info, CacheSettings(), LoadSettings(backend="cpu"), gpus)
    assert alone.parts[1] == 4 * gb
    assert alone.parts[3] > 4 * gb


@pytest.mark.slow
@pytest.mark.real_model
def test_the_starter_replays_bit_for_bit_in_the_window(qtbot, qapp, tmp_path, starter_path) -> None:
    hand = Hand(qtbot, tmp_path, api=EngineApi())
    session = hand.session
    for settings in (
        CacheSettings(context_length=1024), StopSettings(max_tokens=40),
        SamplerSettings(temperature=1.0, repetition_penalty=1.2),
    ):  # fmt: skip
        session.set_settings(settings)
    for restarted in (False, True):
        if restarted:
            hand.restart()
        hand.window.model_controller.open(starter_path)
        hand.wait_for("idle", timeout=300_000)
        for text in ("Tell me about foxes and 🔥.", "Go on, please."):
            hand.session.submit(text)
            qtbot.waitUntil(
                lambda: hand.session.state == "idle" and not hand.session.replying_in, timeout=300_000
            )
        for item in [item for item in hand.items() if item.role == "assistant"]:
            hand.window.reply_details.open(item.id)
            dialog = hand.window.reply_details.dialog
            assert dialog.words.text().startswith("The reply can be generated again")
            dialog.replay.click()
            qtbot.waitUntil(lambda dialog=dialog: dialog.replay.text() == "Replay", timeout=300_000)
            assert dialog.words.text().startswith("Identical: ")
            dialog.close()
    hand.close()


def test_the_system_prompt_says_how_many_tokens_it_has(hand: Hand) -> None:
    count = hand.window.inspector.prompt_field._count
    hand.load()
    hand.session.set_system_prompt("You are a patient teacher.")
    hand.qtbot.waitUntil(lambda: "tokens" in count.text() and not count.isHidden())
    size = hand.desktop.services.context_meter.measured.system
    assert size >= 5
    assert count.text() == f"{size} tokens"
    hand.window.inspector.prompt_field.show_size(3, about=True)
    assert count.text() == "~3 tokens"
    hand.session.set_system_prompt("")
    hand.qtbot.waitUntil(count.isHidden)
