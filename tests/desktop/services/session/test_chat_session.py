"""Models that load and fail, chats that come and go, settings of a chat and of the program."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from desktop.items.chats.conversations import ID_ROLE
from desktop.services.engine.reply_record import message_item
from desktop.settings import Appearance
from desktop.store.database.database import StoreError
from engine.errors import NotEnoughMemory
from engine.settings import CacheSettings, LoadSettings, SamplerSettings, StopSettings
from tests.desktop.services.conftest import Harness


def test_loading_a_model(harness: Harness) -> None:
    harness.session.set_settings(LoadSettings(threads=3))
    harness.load("/models/one.gguf")
    assert harness.states() == ["loading", "idle"]
    assert [stage for stage, _, _ in harness.said["progress"]] == [
        "Reading the model's headers",
        "Loading weights",
        "Loading weights",
    ]
    assert [info.name for (info,) in harness.said["model_changed"]] == ["one"]
    assert harness.echo.settings == [(LoadSettings(threads=3), CacheSettings())]
    harness.load("/models/two.gguf")
    assert [info.name if info else None for (info,) in harness.said["model_changed"]] == ["one", "two"]
    preferences = harness.preferences()
    assert preferences.last_model == "/models/two.gguf"
    assert preferences.recent_models == ("/models/two.gguf", "/models/one.gguf")
    harness.session.unload_model()
    harness.until_idle()
    assert harness.session.state == "no_model"
    assert harness.said["model_changed"][-1] == (None,)
    assert harness.chat.closed


@pytest.mark.parametrize(
    ("failure", "text", "details"),
    [
        (NotEnoughMemory("The model needs 9 GB, but 4 GB are free: choose a smaller one."), "needs 9 GB", ""),
        (OSError("bad sector"), "Something went wrong in Inglenook", "bad sector"),
    ],
)
def test_a_model_that_does_not_load(harness: Harness, failure: Exception, text: str, details: str) -> None:
    harness.echo.fail_with = failure
    harness.load()
    assert harness.session.state == "no_model"
    assert text in harness.notices()[-1]
    assert details in harness.session.error_details
    harness.echo.fail_with = None
    harness.load()
    harness.ask("all is well")
    assert harness.texts() == ["all is well"] * 2


def test_a_file_that_cannot_be_loaded_does_not_cost_the_loaded_model(talking: Harness) -> None:
    talking.session.open_model("/models/missing.gguf")
    talking.until_idle()
    assert "There is no model at" in talking.notices()[-1]
    assert talking.session.model is not None
    assert talking.session.model.name == "echo"
    talking.ask("still here")
    assert talking.preferences().last_model == "/models/echo.gguf"


def test_opening_a_model_stops_the_reply(talking: Harness) -> None:
    talking.chat.reply = "word " * 3000
    talking.chat.delay_s = 0.002
    talking.session.submit("go")
    talking.qtbot.waitUntil(lambda: talking.session.state == "answering")
    talking.session.open_model("/models/other.gguf")
    talking.until_idle()
    assert talking.session.model is not None
    assert talking.session.model.name == "other"
    assert talking.session.messages.items()[1].footer.endswith("stopped to load a model")
    assert talking.states()[-3:] == ["stopping", "loading", "idle"]


@pytest.mark.parametrize(
    ("acts", "words"),
    [
        (("stop",), "stopped by you"), (("unload_model",), "stopped to unload the model"),
        (("stop", "unload_model"), "stopped by you"), (("reload_model", "stop"), "stopped to load a model"),
        (("close",), "stopped when Inglenook was closed"),
    ],
)  # fmt: skip
def test_a_reply_says_what_stopped_it(talking: Harness, acts: tuple[str, ...], words: str) -> None:
    talking.chat.reply = "word " * 3000
    talking.chat.delay_s = 0.002
    talking.session.submit("go")
    talking.qtbot.waitUntil(lambda: talking.session.state == "answering")
    for act in acts:
        getattr(talking.session, act)()
    if acts != ("close",):
        talking.until_idle()
    assert message_item(talking.store.message(talking.ids()[1])).footer.endswith(words)


def test_all_listeners_hear_a_state_before_the_next_one(talking: Harness) -> None:
    """The first listener that hears "idle" sends another message."""
    again = iter(("two", "three"))
    first, last = [], []

    def hear(state: str) -> None:
        first.append(state)
        if state == "idle" and (text := next(again, "")):
            talking.session.submit(text)

    talking.session.state_changed.connect(hear)
    talking.session.state_changed.connect(last.append)
    talking.session.submit("one")
    talking.qtbot.waitUntil(lambda: len(talking.texts()) == 6 and talking.session.state == "idle")
    assert first == last
    assert last[-1] == "idle"
    assert last.count("prefill") == 3


def test_the_last_of_many_models_wins(harness: Harness) -> None:
    harness.echo.load_delay_s = 0.05
    for name in ("a", "b", "c"):
        harness.session.open_model(f"/models/{name}.gguf")
    harness.qtbot.waitUntil(lambda: harness.session.model is not None and harness.session.model.name == "c")
    harness.until_idle()
    assert harness.notices() == []


def test_closing_cancels_a_load(harness: Harness) -> None:
    harness.echo.load_delay_s = 30.0
    harness.session.open_model("/models/slow.gguf")
    harness.qtbot.waitUntil(lambda: harness.echo.opened != [])
    harness.close()


def test_settings_of_the_model_take_effect_at_the_next_load(talking: Harness) -> None:
    talking.session.set_settings(CacheSettings(context_length=1024))
    talking.session.set_settings(CacheSettings(context_length=2048))
    assert talking.notices() == ["This takes effect when the model is reloaded."]
    talking.session.reload_model()
    talking.until_idle()
    assert talking.echo.settings[-1][1] == CacheSettings(context_length=2048)


def test_an_empty_chat_is_reused(talking: Harness) -> None:
    first = talking.session.conversation
    talking.session.new_conversation()
    assert talking.session.conversation == first
    talking.ask("hello")
    talking.session.new_conversation()
    second = talking.session.conversation
    assert second != first
    talking.session.open_conversation(first)
    talking.session.new_conversation()
    assert talking.session.conversation == second
    assert talking.session.conversations.rowCount() == 2


def test_the_sidebar_follows_the_session(talking: Harness) -> None:
    def rows() -> list[str]:
        model = talking.session.conversations
        return [str(model.data(model.index(row))) for row in range(model.rowCount())]

    assert rows() == ["New chat"]
    talking.ask("apples")
    first = talking.session.conversation
    talking.session.new_conversation()
    talking.ask("pears")
    assert rows() == ["pears", "apples"]
    talking.session.open_conversation(first)
    talking.ask("more apples")
    assert rows() == ["apples", "pears"]
    talking.session.rename_conversation(first, "Fruit")
    assert rows() == ["Fruit", "pears"]
    assert talking.said["title_changed"][-1] == ("Fruit",)
    talking.session.delete_conversation(first)
    assert rows() == ["pears"]
    assert talking.texts() == ["pears", "pears"]
    talking.session.delete_conversation(talking.session.conversation)
    assert rows() == ["New chat"]
    talking.session.undo()
    talking.session.undo()
    assert sorted(rows()) == ["Fruit", "New chat", "pears"]
    assert talking.session.title == "Fruit"


def test_everything_survives_a_restart(qtbot: QtBot, tmp_path: Path) -> None:
    harness = Harness(qtbot, tmp_path)
    harness.session.restore()
    harness.load()
    harness.ask("apples")
    harness.session.set_settings(SamplerSettings(temperature=0.1))
    number = harness.session.conversation
    harness.session.new_conversation()
    harness.ask("pears")
    harness.session.open_conversation(number)
    before = harness.session.messages.items()
    harness.close()
    harness = Harness(qtbot, tmp_path)
    harness.session.restore()
    assert harness.session.conversation == number
    assert harness.session.messages.items() == before
    assert harness.session.settings(SamplerSettings).temperature == 0.1
    assert harness.session.conversations.rowCount() == 2
    stats, reason = harness.said["stats_changed"][-1]
    assert (stats.new_tokens, reason) == (1, "")
    assert harness.session.preferences.last_model == "/models/echo.gguf"
    harness.close()


def test_damage_is_reported_at_the_start(qtbot: QtBot, tmp_path: Path) -> None:
    (tmp_path / "conversations.sqlite3").write_bytes(b"no database" * 500)
    (tmp_path / "preferences.json").write_bytes(b"no json")
    harness = Harness(qtbot, tmp_path)
    harness.session.restore()
    assert [level for _, level in harness.said["notice"]] == ["warning", "warning"]
    assert all("damaged" in sentence for sentence in harness.notices())
    assert harness.session.conversation > 0
    harness.close()


def test_a_search_hit_opens_its_version(talking: Harness) -> None:
    talking.ask("apples")
    first = talking.ids()[1]
    talking.chat.reply = "bananas"
    talking.session.regenerate(first)
    talking.until_idle()
    talking.session.new_conversation()
    hit = talking.session.search("apples")[0]
    assert hit.message_id == first
    assert talking.session.open_message(first)
    assert talking.texts() == ["apples", "apples"]


def test_layers_of_settings(talking: Harness) -> None:
    session = talking.session

    def source(name: str) -> str:
        return session.source_of(SamplerSettings, name)

    assert source("temperature") == "default"
    session.set_settings(dataclasses.replace(session.settings(SamplerSettings), temperature=0.2))
    assert (source("temperature"), source("top_k")) == ("conversation", "default")
    assert talking.said["settings_changed"][-1] == (SamplerSettings,)
    session.save_as_defaults()
    assert source("temperature") == "saved default"
    session.set_settings(dataclasses.replace(session.settings(SamplerSettings), temperature=0.9, top_k=5))
    assert (source("temperature"), source("top_k")) == ("conversation", "conversation")
    first = session.conversation
    talking.ask("hello")
    session.new_conversation()
    assert session.settings(SamplerSettings) == SamplerSettings(temperature=0.2)
    session.open_conversation(first)
    assert session.settings(SamplerSettings) == SamplerSettings(temperature=0.9, top_k=5)
    session.reset_setting(SamplerSettings, "temperature")
    assert (session.settings(SamplerSettings).temperature, source("temperature")) == (0.2, "saved default")
    session.reset_setting(SamplerSettings, "temperature")
    assert (session.settings(SamplerSettings).temperature, source("temperature")) == (0.7, "default")
    assert session.settings(SamplerSettings).top_k == 5
    session.open_conversation(first)
    assert session.settings(SamplerSettings) == SamplerSettings(top_k=5)


def test_settings_of_the_whole_program(harness: Harness) -> None:
    harness.session.set_settings(Appearance(theme="dark"))
    assert harness.session.source_of(Appearance, "theme") == "saved default"
    harness.session.new_conversation()
    assert harness.session.settings(Appearance).theme == "dark"
    assert harness.preferences().settings(Appearance).theme == "dark"
    harness.session.reset_setting(Appearance, "theme")
    assert harness.session.settings(Appearance) == Appearance()


def test_a_bad_saved_setting_is_reported_and_replaced(harness: Harness) -> None:
    bad: dict[str, dict[str, object]] = {
        "SamplerSettings": {"temperature": -3, "top_k": 9},
        "StopSettings": {"max_tokens": "x"},
    }
    harness.store.set_settings(harness.session.conversation, bad)
    harness.session.open_conversation(harness.session.conversation)
    assert harness.session.settings(SamplerSettings) == SamplerSettings(top_k=9)
    assert harness.session.settings(StopSettings) == StopSettings()
    assert len(harness.notices()) == 2


def test_an_error_of_the_store_is_a_notice(talking: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not talking.session.open_conversation(999)
    assert "no chat number 999" in talking.notices()[-1]
    assert not talking.session.delete_message(999)
    assert not talking.session.open_message(999)

    def fail(*values: object, **named: object) -> None:
        raise StoreError("The disk is gone: plug it in.")

    monkeypatch.setattr(talking.store, "add_message", fail)
    monkeypatch.setattr(talking.store, "search", fail)
    assert not talking.session.submit("hello")
    assert talking.session.search("hello") == ()
    assert talking.notices()[-2:] == ["The disk is gone: plug it in."] * 2
    assert talking.session.state == "idle"


def test_row_ids(harness: Harness) -> None:
    model = harness.session.conversations
    assert model.data(model.index(0), ID_ROLE) == harness.session.conversation
