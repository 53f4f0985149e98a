"""What a reply is asked with, branches, figures, draft models that do not fit, preferences."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator

import pytest

from desktop.settings import Appearance
from desktop.store.settings.preferences import Preferences
from engine.core import Loading, Stats
from engine.errors import BadTemplate, DeviceLost, EngineError, ModelNotFound, NotEnoughMemory
from engine.settings import (
    ConstraintSettings,
    GuidanceSettings,
    OutputSettings,
    SamplerSettings,
    Settings,
    SpeculationSettings,
    StopSettings,
    ThinkingSettings,
)
from tests.desktop.services.conftest import Harness

CHANGED: tuple[Settings, ...] = (
    SamplerSettings(top_k=7),
    StopSettings(max_tokens=99),
    SpeculationSettings(method="ngram"),
    ConstraintSettings(banned_strings=("no",), heal=True),
    GuidanceSettings(negative_prompt="Be rude.", cfg_scale=2.0),
    OutputSettings(alternatives=3),
    ThinkingSettings("low"),
)


def test_the_request_has_all_settings(talking: Harness) -> None:
    for settings in CHANGED:
        assert talking.session.set_settings(settings)
    talking.ask("hello")
    asked = talking.chat.requests[-1]
    assert (
        asked.sampler,
        asked.stops,
        asked.speculation,
        asked.constraint,
        asked.guidance,
        asked.output,
        asked.thinking,
    ) == CHANGED
    assert not asked.continue_last
    assert asked.continue_ids == ()


def test_a_preview_has_what_cannot_be_left_out(talking: Harness) -> None:
    talking.session.set_system_prompt("Be brief.")
    talking.ask("one")

    def previewed(opening: str = "") -> tuple[list[str], bool]:
        request = talking.session.preview_request("two", opening)
        return [message.content for message in request.messages], request.continue_last

    assert previewed() == (["Be brief.", "two"], False)
    assert previewed(" So") == (["Be brief.", "two", " So"], True)
    assert previewed("  ") == (["Be brief.", "two"], False)
    talking.session.set_settings(StopSettings(when_full="stop"))
    assert previewed()[0] == ["Be brief.", "one", talking.session.messages.items()[-1].text, "two"]


def test_a_branch_begins_with_its_text_and_continues(talking: Harness) -> None:
    talking.session.set_settings(ConstraintSettings(heal=True))
    talking.chat.reply = "one two three four"
    talking.ask("count")
    talking.ask("more")
    reply = talking.ids()[1]
    talking.chat.hold = threading.Event()
    assert talking.session.branch(reply, "one TWO", [1, 1002])
    item = talking.session.messages.items()[-1]
    assert (item.text, item.running, item.variant_index, item.variant_count) == ("one TWO", True, 1, 2)
    assert talking.saved() == ["count", "one TWO"]
    talking.chat.hold.set()
    talking.until_idle()
    assert talking.texts() == ["count", "one TWO three four"] == talking.saved()
    asked = talking.chat.requests[-1]
    assert [message.content for message in asked.messages] == ["count", "one TWO"]
    assert (asked.continue_last, asked.continue_ids) == (True, (1, 1002))
    assert not asked.constraint.heal  # the chosen token stays
    assert talking.session.show_variant(item.id, -1)
    assert talking.texts() == ["count", "one two three four", "more", "one two three four"]


def test_a_branch_of_white_space_is_continued_too(talking: Harness) -> None:
    talking.ask("count")
    assert talking.session.branch(talking.ids()[1], "\n", [198])
    talking.until_idle()
    assert talking.chat.requests[-1].continue_last
    assert talking.chat.requests[-1].messages[-1].content == "\n"
    assert talking.texts()[1].startswith("\n")


@pytest.mark.parametrize("what", ["own message", "unknown", "busy"])
def test_branches_that_are_refused(talking: Harness, what: str) -> None:
    talking.ask("one two")
    own, reply = talking.ids()
    if what == "busy":
        talking.chat.hold = threading.Event()
        talking.session.submit("three")
    before = talking.saved()
    assert not talking.session.branch({"own message": own, "unknown": 999, "busy": reply}[what], "one", [1])
    assert talking.saved() == before
    assert ("still being" if what == "busy" else "Only a reply that is shown") in talking.notices()[-1]
    if talking.chat.hold is not None:
        talking.chat.hold.set()
    talking.until_idle()


def test_figures_of_a_running_reply(talking: Harness) -> None:
    talking.session.set_settings(SpeculationSettings(method="ngram"))
    talking.chat.running_every = 5
    talking.ask(" ".join("abcdefghijk"))
    reported = [stats for (stats,) in talking.said["running_changed"]]
    assert {stats.new_tokens for stats in reported} <= {5, 10}  # those of one frame are reported once
    assert reported[-1].new_tokens == 10
    assert all(isinstance(stats, Stats) for stats in reported)
    assert reported[-1].acceptance_rate == 0.75
    footer = talking.session.messages.items()[-1].footer
    assert "3.3 tokens per pass, 75 % of drafts accepted" in footer


def test_figures_of_a_running_reply_are_shown_when_its_chat_is_opened(talking: Harness) -> None:
    talking.ask("elsewhere")
    other = talking.session.conversation
    talking.session.new_conversation()
    mine = talking.session.conversation
    talking.chat.running_every, talking.chat.delay_s = 1, 0.005
    talking.chat.reply = "word " * 2000
    talking.session.submit("go")
    talking.qtbot.waitUntil(lambda: bool(talking.said["running_changed"]))
    talking.session.open_conversation(other)
    reported = len(talking.said["running_changed"])
    talking.qtbot.wait(60)
    assert len(talking.said["running_changed"]) == reported
    talking.session.open_conversation(mine)
    assert len(talking.said["running_changed"]) == reported + 1
    talking.session.stop()
    talking.until_idle()


def test_avoided_phrases_are_reported_and_counted(talking: Harness) -> None:
    talking.chat.suppressed = {2: " very bad", 3: " worse"}
    seen: list[str] = []
    talking.session.messages.dataChanged.connect(
        lambda first, last: seen.append(talking.session.messages.items()[-1].footer)
    )
    talking.ask("a b c d")
    assert talking.said["avoided"] == [(1, " very bad"), (2, " worse")]
    assert "1 banned phrase avoided" in seen
    reply = talking.session.messages.items()[-1]
    assert reply.footer.endswith("2 banned phrases avoided")
    assert reply.text == "a b c d"
    assert talking.store.message(reply.id).stats["avoided"] == 2
    assert talking.session.avoided_count == 0, "of none that runs"


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (DeviceLost("The GPU stopped working: load the model again."), "no_model"),
        (NotEnoughMemory("The GPU has no room left."), "idle"),
    ],
)
def test_a_reply_that_a_gpu_error_ends(talking: Harness, error: EngineError, state: str) -> None:
    """The chat stays, with the error below the reply; it can be regenerated, once a lost model is loaded."""
    broken, talking.chat.error, talking.chat.error_after = talking.chat, error, 2
    talking.ask("one two three")
    reply = talking.session.messages.items()[1]
    assert (reply.text, reply.notice, talking.session.state) == ("one two", str(error), state)
    assert (talking.session.model is None, broken.closed) == (state == "no_model", state == "no_model")
    assert talking.saved() == ["one two three", "one two"]
    broken.error = None
    if state == "no_model":
        assert not talking.session.regenerate(reply.id)
        talking.load()
    assert talking.session.regenerate(reply.id)
    talking.until_idle()
    assert talking.texts() == ["one two three", "one two three"]


def test_a_reply_that_fails_before_its_prompt_is_read(talking: Harness) -> None:
    talking.chat.error, talking.chat.prefill_steps = EngineError("The template refuses this."), 0
    talking.ask("one")
    reply = talking.session.messages.items()[1]
    assert (reply.text, reply.notice, reply.running) == ("", "The template refuses this.", False)
    assert talking.store.message(reply.id).state == "failed"


def test_a_task_that_loses_the_device_leaves_no_model(talking: Harness) -> None:
    broken = talking.chat

    def measure(stop: threading.Event) -> Generator[None, None, None]:
        raise DeviceLost("The GPU stopped working: load the model again.")
        yield

    results: list[object] = []
    talking.session.measure(measure, results.append)
    talking.qtbot.waitUntil(lambda: results == [None])
    talking.qtbot.waitUntil(lambda: talking.session.state == "no_model")
    assert talking.session.model is None
    assert broken.closed


def drafting_with(harness: Harness, name: str) -> SpeculationSettings:
    (harness.folder / name).write_bytes(b"x")
    return SpeculationSettings(method="model", draft_model=str(harness.folder / name))


def load_big(harness: Harness, name: str = "big.gguf") -> None:
    (harness.folder / name).write_bytes(b"x")
    harness.load(str(harness.folder / name))


def test_a_draft_model_that_fits_is_asked_for(harness: Harness) -> None:
    load_big(harness)
    drafting = drafting_with(harness, "small.gguf")
    with harness.qtbot.waitSignal(harness.session.drafts.answered):
        harness.session.set_settings(drafting)
    harness.ask("hello")
    assert harness.chat.requests[-1].speculation == drafting
    assert harness.said["draft_refused"] == []


def test_a_draft_model_that_does_not_fit_is_reported_at_once_and_nothing_is_sent(harness: Harness) -> None:
    harness.session.set_settings(drafting_with(harness, "other.gguf"))
    with harness.qtbot.waitSignal(harness.session.draft_refused) as reported:
        load_big(harness)
    assert reported.args == ["The draft model “other” cannot be used: Its vocabulary is not that of big."]
    assert not harness.session.submit("hello")
    assert harness.said["draft_refused"][-1][0].endswith(
        "Its vocabulary is not that of big. Your text is kept."
    )
    assert harness.texts() == []
    assert harness.session.switch_drafting_off()
    # for the next time
    assert harness.session.settings(SpeculationSettings).draft_model.endswith("other.gguf")
    harness.ask("hello")
    assert harness.texts() == ["hello", "hello"]


def test_switching_between_chats_reports_once(harness: Harness) -> None:
    load_big(harness)
    harness.session.set_settings(drafting_with(harness, "other.gguf"))
    harness.session.save_as_defaults()
    harness.qtbot.waitUntil(lambda: bool(harness.said["draft_refused"]))
    harness.qtbot.wait(50)
    reported = len(harness.said["draft_refused"])
    for _ in range(3):
        with harness.qtbot.waitSignal(harness.session.drafts.answered):
            harness.session.open_conversation(harness.session.conversation)
    assert len(harness.said["draft_refused"]) == reported


def test_the_draft_model_does_not_fit_another_model(harness: Harness) -> None:
    load_big(harness)
    harness.session.set_settings(drafting_with(harness, "other.gguf"))
    harness.qtbot.waitUntil(lambda: bool(harness.said["draft_refused"]))
    with harness.qtbot.waitSignal(harness.session.draft_refused) as reported:
        load_big(harness, "large.gguf")
    assert "not that of large" in reported.args[0]
    with harness.qtbot.waitSignal(harness.session.draft_refused):
        load_big(harness, "large.gguf")


def test_drafting_is_on_without_a_draft_model(talking: Harness) -> None:
    talking.session.set_settings(SpeculationSettings(method="model"))
    assert not talking.session.submit("hello")
    assert "no draft model is chosen" in talking.said["draft_refused"][-1][0]


def test_a_model_without_a_head_of_its_own_cannot_draft_with_it(talking: Harness) -> None:
    talking.session.set_settings(SpeculationSettings(method="mtp"))
    assert not talking.session.submit("hello")
    assert talking.said["draft_refused"][-1][0].startswith("echo has no head of its own for drafting.")
    assert talking.texts() == []


def test_the_engines_error_about_the_draft_model_is_saved_with_the_reply(harness: Harness) -> None:
    load_big(harness)
    with harness.qtbot.waitSignal(harness.session.drafts.answered):
        harness.session.set_settings(drafting_with(harness, "small.gguf"))
    harness.chat.draft_error = NotEnoughMemory(
        "The draft model needs 2 GB, but 1 GB is free: choose a smaller one."
    )
    harness.ask("hello")
    assert harness.session.messages.items()[-1].notice == str(harness.chat.draft_error)
    assert harness.said["draft_refused"] == [(str(harness.chat.draft_error),)]
    harness.session.switch_drafting_off()
    assert harness.session.regenerate(harness.ids()[-1])
    harness.until_idle()
    assert harness.texts() == ["hello", "hello"]
    harness.chat.error = BadTemplate("The template refuses this.")
    harness.ask("again")
    assert len(harness.said["draft_refused"]) == 1


def test_an_error_of_an_adapter_is_not_blamed_on_drafting(
    talking: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stream(request: object, stop: threading.Event) -> Iterator[Loading]:
        yield Loading("Loading the adapters", 0, 1)
        raise ModelNotFound("There is no adapter there.")

    monkeypatch.setattr(talking.chat, "stream", stream)
    talking.ask("hello")
    assert talking.session.messages.items()[-1].notice == "There is no adapter there."
    assert talking.said["draft_refused"] == []


def test_a_draft_model_that_was_deleted_after_the_check(harness: Harness) -> None:
    load_big(harness)
    with harness.qtbot.waitSignal(harness.session.drafts.answered):
        harness.session.set_settings(drafting_with(harness, "small.gguf"))
    (harness.folder / "small.gguf").unlink()
    harness.chat.error = ModelNotFound("There is no model there.")
    harness.ask("hello")
    harness.qtbot.waitUntil(lambda: bool(harness.said["draft_refused"]))
    assert "There is no model at" in harness.said["draft_refused"][-1][0]


def test_stopping_while_the_draft_model_is_loaded(harness: Harness) -> None:
    load_big(harness)
    harness.session.set_settings(drafting_with(harness, "small.gguf"))
    harness.chat.draft_error, harness.chat.hold = EngineError("never"), threading.Event()
    assert harness.session.submit("hello")
    harness.qtbot.waitUntil(lambda: ("Draft model: weights", 1, 2) in harness.said["progress"])
    harness.session.stop()
    harness.until_idle()
    reply = harness.session.messages.items()[-1]
    assert (reply.footer, reply.notice) == ("stopped by you", "")
    assert harness.said["draft_refused"] == []


def test_preferences_are_written_a_little_later_and_together(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    real = Preferences.save
    monkeypatch.setattr(Preferences, "save", lambda self: (written.append(1), real(self))[1])
    for scale in range(80, 200, 10):
        assert harness.session.set_settings(Appearance(text_scale=scale))
    assert written == []
    assert harness.preferences().settings(Appearance).text_scale == 190
    assert len(written) == 1


def test_preferences_are_written_at_the_end(harness: Harness) -> None:
    harness.session.set_settings(Appearance(theme="dark"))
    assert harness.session.preferences.unsaved
    harness.close_session()
    assert Preferences(harness.folder / "preferences.json").settings(Appearance).theme == "dark"


def test_preferences_that_cannot_be_written_are_reported(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    harness.preferences()
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", full)
        harness.session.set_settings(Appearance(theme="dark"))
        harness.qtbot.waitUntil(lambda: any("cannot be saved" in sentence for sentence in harness.notices()))
    harness.session.set_settings(Appearance(theme="light"))
    assert harness.preferences().settings(Appearance).theme == "light"
