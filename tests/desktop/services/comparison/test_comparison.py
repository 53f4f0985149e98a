"""Several replies to one message, at the same time or one model after another; one is kept."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from desktop.services.comparison.columns import FEWEST, MOST, Column, Comparison, seeds
from desktop.services.comparison.comparison import ComparisonService
from desktop.services.composer.queue import MessageQueue
from desktop.services.models.file_hashes import HashService
from desktop.services.provenance.provenance import ProvenanceService
from desktop.services.session.several import ColumnSettings
from desktop.store.conversations.participants import Cast, Participant
from desktop.store.conversations.personas import Persona, PersonaStore
from desktop.store.conversations.records import StoredMessage
from desktop.store.database.database import StoreError
from engine.core import Priority
from engine.errors import EngineError
from engine.settings import SamplerSettings
from tests.desktop.services.conftest import Harness
from tests.desktop.services.session.test_store_faults import FAULT, failing


class Compared:
    """The service over a harness whose chat has one message with its reply."""

    def __init__(self, harness: Harness) -> None:
        self.harness, self.session = harness, harness.session
        self.service = ComparisonService(harness.session, harness.session)
        self.changed: list[int] = []
        self.service.changed.connect(self.changed.append)

    @property
    def comparison(self) -> Comparison:
        found = self.service.of(self.session.conversation)
        assert found is not None
        return found

    def wait(self, reached: Callable[[], bool]) -> None:
        self.harness.qtbot.waitUntil(reached)

    def until_written(self) -> None:
        self.wait(lambda: not self.session.busy and not any(map(self._waits, self.comparison.columns)))

    @staticmethod
    def _waits(column: Column) -> bool:
        return column.waits

    def states(self) -> list[tuple[str, str]]:
        found = [self.harness.store.message(column.message) for column in self.comparison.columns]
        return [(message.text, message.state) for message in found]

    def growing(self) -> list[str]:
        """What the running replies have said so far."""
        running = [self.session.replies.growing(column.message) for column in self.comparison.columns]
        return [reply.text if reply is not None else "" for reply in running]

    def sampled(self, count: int) -> list[SamplerSettings]:
        return [request.sampler for request in self.harness.chat.requests[-count:]]


@pytest.fixture
def compared(talking: Harness) -> Compared:
    talking.ask("question")
    return Compared(talking)


def test_seeds_are_different_and_follow_a_fixed_one() -> None:
    assert seeds(7, 3) == [7, 8, 9]
    assert seeds((1 << 63) - 1, 2) == [(1 << 63) - 1, 0]
    drawn = seeds(None, 8)
    assert len(set(drawn)) == 8
    assert all(0 <= seed < 1 << 31 for seed in drawn)
    assert seeds(None, 8) != drawn


def test_best_of_n_writes_versions_with_seeds_of_their_own(compared: Compared) -> None:
    session, harness = compared.session, compared.harness
    session.set_settings(dataclasses.replace(session.settings(SamplerSettings), seed=40))
    user, reply = harness.ids()
    assert compared.service.write_several(reply, 3)
    assert session.replies.engine.writing == 3
    assert session.replying_in == (session.conversation,)
    compared.until_written()
    assert [each.seed for each in compared.sampled(3)] == [40, 41, 42]
    assert compared.states() == [("question", "complete")] * 3
    messages = [column.message for column in compared.comparison.columns]
    assert [harness.store.message(each).parent_id for each in messages] == [user] * 3
    assert harness.ids() == [user, messages[0]], "the first of them is shown"
    assert session.messages.items()[1].variant_count == 4
    assert session.messages.items()[1].footer.startswith("Seed 40 · 1 token")


@pytest.mark.parametrize(("asked", "made"), [(1, FEWEST), (2, 2), (8, 8), (20, MOST)])
def test_the_number_of_replies_has_bounds(compared: Compared, asked: int, made: int) -> None:
    assert compared.service.write_several(compared.harness.ids()[0], asked)
    compared.until_written()
    assert len({each.seed for each in compared.sampled(made)}) == made
    assert len(compared.comparison.columns) == made


@pytest.mark.parametrize("change", [{"temperature": 0.0}, {"top_k": 1}])
def test_greedy_sampling_is_refused(compared: Compared, change: dict[str, float]) -> None:
    session = compared.session
    session.set_settings(dataclasses.replace(session.settings(SamplerSettings), **change))
    before = compared.harness.ids()
    assert not compared.service.write_several(before[1], 4)
    assert "would be the same" in compared.harness.notices()[-1]
    assert compared.harness.ids() == before
    assert compared.service.of(session.conversation) is None


def test_each_reply_has_its_own_stop_and_one_stop_ends_all(compared: Compared) -> None:
    harness, session = compared.harness, compared.session
    gate = harness.chat.hold = threading.Event()
    assert compared.service.write_several(harness.ids()[0], 3)
    compared.wait(lambda: len(harness.chat.requests) == 4)
    first, second, third = compared.comparison.columns
    compared.service.stop(session.conversation, second)
    assert session.replies.engine.state_of(second.message) == "stopping"
    assert session.state == "prefill"
    compared.wait(lambda: session.replies.growing(second.message) is None)
    assert compared.states() == [("", "running"), ("", "stopped"), ("", "running")]
    assert not session.submit("more")
    session.stop()
    assert session.state == "stopping"
    compared.wait(lambda: session.state == "idle")
    assert compared.states() == [("", "stopped")] * 3
    assert not gate.is_set()
    assert [each.message for each in (first, third)] == sorted(each.message for each in (first, third))


def test_all_replies_of_the_chat_in_front_come_first(compared: Compared) -> None:
    harness = compared.harness
    gate = harness.chat.hold = threading.Event()
    compared.service.write_several(harness.ids()[0], 2)
    compared.wait(lambda: len(harness.chat.requests) == 3)
    running = [request.priority for request in harness.chat.requests[1:]]
    assert [each.value for each in running if isinstance(each, Priority)] == [1, 1]
    compared.session.new_conversation()
    assert [each.value for each in running if isinstance(each, Priority)] == [0, 0]
    gate.set()
    compared.wait(lambda: not compared.session.busy)


def test_keeping_one_leaves_the_others_as_versions(compared: Compared) -> None:
    harness, session = compared.harness, compared.session
    compared.service.write_several(harness.ids()[0], 3)
    compared.until_written()
    kept = compared.comparison.columns[1]
    closed: list[int] = []
    compared.service.closed.connect(closed.append)
    assert compared.service.keep(session.conversation, kept)
    assert closed == [session.conversation]
    assert compared.service.of(session.conversation) is None
    assert harness.ids()[1] == kept.message
    assert session.messages.items()[1].variant_count == 4


def test_keeping_one_can_discard_the_others_and_be_undone(compared: Compared) -> None:
    harness, session = compared.harness, compared.session
    before = harness.ids()[1]
    compared.service.write_several(before, 3)
    compared.until_written()
    first, kept, last = compared.comparison.columns
    assert compared.service.keep(session.conversation, kept, discard=True)
    assert harness.store.variants(kept.message) == (before, kept.message), "what was there before stays"
    assert session.undo()
    assert harness.store.variants(kept.message) == (before, first.message, kept.message, last.message)
    assert harness.ids()[1] == kept.message


@pytest.mark.parametrize("discard", [False, True])
def test_keeping_one_stops_those_that_run(compared: Compared, discard: bool) -> None:
    harness, session = compared.harness, compared.session
    gate = harness.chat.hold = threading.Event()
    compared.service.write_several(harness.ids()[0], 3)
    compared.wait(lambda: len(harness.chat.requests) == 4)
    first, kept, last = compared.comparison.columns
    assert compared.service.keep(session.conversation, kept, discard)
    gate.set()
    compared.wait(lambda: session.state == "idle")
    assert harness.store.message(kept.message).state == "complete"
    assert {harness.store.message(each.message).state for each in (first, last)} == {"stopped"}
    assert harness.texts() == ["question", "question"]
    assert len(harness.store.variants(kept.message)) == (2 if discard else 4)


def test_a_message_that_is_sent_gets_several_replies(compared: Compared) -> None:
    harness, session = compared.harness, compared.session
    columns = [
        ColumnSettings(temperature=0.2, label="Cold"),
        ColumnSettings(preset="Creative", label="Creative"),
    ]
    assert compared.service.submit("another", columns)
    compared.until_written()
    assert harness.texts() == ["question", "question", "another", "another"]
    cold, creative = compared.sampled(2)
    usual = session.settings(SamplerSettings)
    assert cold == dataclasses.replace(usual, temperature=0.2)
    assert creative not in (usual, cold)
    assert session.messages.items()[-1].footer.startswith("Cold · ")


def test_nothing_is_sent_while_a_reply_is_written(compared: Compared) -> None:
    harness, session = compared.harness, compared.session
    gate = harness.chat.hold = threading.Event()
    assert session.submit("first")
    assert not compared.service.submit("second", [ColumnSettings(), ColumnSettings()])
    assert not compared.service.write_several(harness.ids()[0], 2)
    assert harness.texts() == ["question", "question", "first", ""]
    gate.set()
    harness.until_idle()


def test_equal_columns_differ_in_their_seeds(compared: Compared) -> None:
    session = compared.session
    session.set_settings(dataclasses.replace(session.settings(SamplerSettings), seed=5))
    usual = ColumnSettings()
    columns = [usual, ColumnSettings(preset="Precise"), usual, ColumnSettings(seed=9), usual]
    assert compared.service.begin(compared.harness.ids()[0], columns)
    compared.until_written()
    assert [each.seed for each in compared.sampled(5)] == [5, 5, 6, 9, 7]
    assert compared.service.begin(compared.harness.ids()[0], [usual, usual, ColumnSettings(seed=6)])
    compared.until_written()
    assert [each.seed for each in compared.sampled(3)] == [5, 7, 6]


def test_a_persona_brings_its_prompt_its_preset_and_its_name(compared: Compared) -> None:
    harness, session = compared.harness, compared.session
    ada = PersonaStore(harness.database).save(Persona(0, "Ada", "", "You are Ada.", "Precise"))
    assert compared.service.begin(harness.ids()[0], [ColumnSettings(), ColumnSettings(persona=ada.id)])
    compared.until_written()
    plain, own = harness.chat.requests[-2:]
    assert [message.role for message in plain.messages] == ["user"]
    assert [message.content for message in own.messages] == ["You are Ada.", "question"]
    assert own.sampler != plain.sampler
    authors = [harness.store.message(column.message).author for column in compared.comparison.columns]
    assert [author.name for author in authors] == ["", "Ada"]
    assert session.persona is None, "the chat keeps its own"


def test_participants_take_their_turn_in_every_column(compared: Compared) -> None:
    harness, session = compared.harness, compared.session
    session.set_cast(
        Cast((Participant("Bea"), Participant("Cy"), Participant("Al")), ("Di", "Eve"), writing_as="Eve")
    )
    assert compared.service.submit("Hello", [ColumnSettings(), ColumnSettings(seed=1)])
    compared.until_written()
    assert harness.store.message(harness.ids()[2]).author.name == "Eve"
    authors = [harness.store.message(column.message).author.name for column in compared.comparison.columns]
    assert authors == ["Bea", "Bea"]
    session.speak("Al")
    harness.until_idle()
    assert compared.service.write_several(harness.ids()[-1], 2)
    compared.until_written()
    authors = [harness.store.message(column.message).author.name for column in compared.comparison.columns]
    assert authors == ["Al", "Al"], "other replies of the one who wrote it"


def test_models_are_loaded_one_after_another(compared: Compared) -> None:
    harness = compared.harness
    gate = harness.chat.hold = threading.Event()
    load = harness.echo.load_hold = threading.Event()
    columns = [
        ColumnSettings(model="/models/second.gguf"),
        ColumnSettings(),
        ColumnSettings(model="/models/x.gguf"),
        ColumnSettings(model="/models/second.gguf", seed=2),
    ]
    assert compared.service.begin(harness.ids()[0], columns)
    first, loaded, third, fourth = compared.comparison.columns
    assert loaded.message
    assert [each.message for each in (first, third, fourth)] == [0, 0, 0]
    assert first.words == "Waiting for second, which is loaded when the other replies are complete."
    gate.set()
    compared.wait(lambda: first.words == "Loading second.")
    assert third.words == "Waiting for x, which is loaded when no other reply is being written."
    load.set()
    compared.until_written()
    assert [path.name for path in harness.echo.opened] == ["echo.gguf", "second.gguf", "x.gguf"]
    assert compared.states() == [("question", "complete")] * 4
    names = [harness.store.message(column.message).stats["model"] for column in compared.comparison.columns]
    assert names == ["second", "echo", "x", "second"]
    assert harness.ids()[1] == loaded.message, "what is shown stays"
    assert compared.changed


def test_a_model_that_cannot_be_loaded_costs_its_own_columns(compared: Compared) -> None:
    harness = compared.harness
    columns = [
        ColumnSettings(model="/models/missing.gguf"),
        ColumnSettings(),
        ColumnSettings(model="/models/x.gguf"),
    ]
    assert compared.service.begin(harness.ids()[0], columns)
    compared.until_written()
    missing, loaded, other = compared.comparison.columns
    assert missing.words.startswith("Not generated: There is no model at /models/missing.gguf")
    assert not missing.message
    assert loaded.message
    assert other.message
    conversation = compared.session.conversation
    assert not compared.service.keep(conversation, missing), "there is nothing to keep"
    assert compared.service.of(conversation) is not None
    compared.service.close_comparison(conversation)
    assert not compared.service.keep(conversation, loaded), "nothing is compared any more"


def test_what_could_not_be_written_is_tried_again(compared: Compared) -> None:
    """With its own model and seed, beside the replies that are there."""
    harness, service, conversation = compared.harness, compared.service, compared.session.conversation
    harness.echo.fail_with = StoreError("no memory for it")
    columns = [ColumnSettings(seed=4), ColumnSettings(seed=5, model="/models/x.gguf")]
    assert service.begin(harness.ids()[0], columns)
    compared.until_written()
    written, broken = compared.comparison.columns
    assert [service.has_failed(each) for each in (written, broken)] == [False, True]
    assert not service.try_again(conversation, written), "it is written"
    harness.echo.fail_with = None
    compared.changed.clear()
    assert service.try_again(conversation, broken)
    assert conversation in compared.changed
    assert not service.has_failed(broken), "it waits"
    assert not service.try_again(conversation, broken)
    compared.until_written()
    assert compared.states()[1][1] == "complete"
    assert compared.sampled(1)[0].seed == 5
    assert compared.session.model is not None
    assert compared.session.model.name == "x"
    service.close_comparison(conversation)
    broken.message = 0
    assert not service.try_again(conversation, broken), "nothing is compared any more"


def test_a_reply_that_failed_is_written_anew_and_stays_as_a_version(compared: Compared) -> None:
    harness, service = compared.harness, compared.service
    harness.chat.error = EngineError("the engine broke")
    assert service.begin(harness.ids()[0], [ColumnSettings(seed=4), ColumnSettings(seed=5)])
    compared.until_written()
    first, second = compared.comparison.columns
    failed = first.message
    assert [state for _, state in compared.states()] == ["failed", "failed"]
    harness.chat.error = None
    assert service.try_again(compared.session.conversation, first)
    compared.until_written()
    assert [state for _, state in compared.states()] == ["complete", "failed"]
    assert first.message not in (failed, second.message)
    assert harness.store.message(failed).state == "failed"
    assert {failed, first.message, second.message} <= set(harness.store.variants(failed))


def test_a_failed_load_that_leaves_no_model_goes_on_with_the_next(compared: Compared) -> None:
    harness = compared.harness
    harness.echo.fail_with = StoreError("broken")
    harness.chat.hold = gate = threading.Event()
    columns = [
        ColumnSettings(),
        ColumnSettings(model="/models/y.gguf"),
        ColumnSettings(model="/models/x.gguf"),
    ]
    assert compared.service.begin(harness.ids()[0], columns)
    broken, other = compared.comparison.columns[1:]

    def failed(path: str, *_more: str) -> None:
        harness.echo.fail_with = None

    compared.session.replies.engine.load_failed.connect(failed)
    gate.set()
    compared.until_written()
    assert broken.words.startswith("Not generated: ")
    assert other.message
    assert compared.session.model is not None
    assert compared.session.model.name == "x"


@pytest.mark.parametrize("how", ["column", "all", "stop"])
def test_a_column_that_waits_for_its_model_can_be_stopped(compared: Compared, how: str) -> None:
    harness, session = compared.harness, compared.session
    gate = harness.chat.hold = threading.Event()
    assert compared.service.begin(
        harness.ids()[0], [ColumnSettings(), ColumnSettings(model="/models/x.gguf")]
    )
    loaded, waits = compared.comparison.columns
    if how == "column":
        compared.service.stop(session.conversation, waits)
    elif how == "all":
        compared.service.stop_all(session.conversation)
    else:
        session.stop()
    assert waits.words == "Not generated: stopped by you."
    assert session.conversation in compared.changed
    assert (session.state == "stopping") == (how != "column")
    gate.set()
    compared.until_written()
    assert len(harness.echo.opened) == 1
    assert harness.store.message(loaded.message).state == ("complete" if how == "column" else "stopped")


@pytest.mark.parametrize(
    ("how", "words"),
    [("reply", "Not generated: stopped by you."),
     ("load", "Not generated: loading its model was cancelled.")],
)  # fmt: skip
def test_stopping_the_load_leaves_what_waits_for_it(compared: Compared, how: str, words: str) -> None:
    harness, session = compared.harness, compared.session
    harness.echo.load_hold = threading.Event()
    assert compared.service.begin(
        harness.ids()[0], [ColumnSettings(), ColumnSettings(model="/models/x.gguf")]
    )
    waits = compared.comparison.columns[1]
    compared.wait(lambda: waits.words == "Loading x." and Path("/models/x.gguf") in harness.echo.opened)
    compared.changed.clear()
    (session.stop if how == "reply" else session.stop_loading)()
    compared.wait(lambda: session.state == "no_model")
    assert waits.words == words
    assert not waits.waits
    assert session.conversation in compared.changed
    # what is loaded from now on is no longer the comparison's, even if it is the same
    harness.echo.load_hold.set()
    assert compared.service.try_again(session.conversation, waits)
    compared.until_written()
    assert waits.message


@pytest.mark.parametrize("moment", ["before", "during"])
def test_a_model_that_the_user_loads_meanwhile_stays(compared: Compared, moment: str) -> None:
    harness, session = compared.harness, compared.session
    gate = harness.chat.hold = threading.Event()
    load = harness.echo.load_hold = threading.Event()
    assert compared.service.begin(
        harness.ids()[0], [ColumnSettings(), ColumnSettings(model="/models/x.gguf")]
    )
    waits = compared.comparison.columns[1]
    if moment == "during":
        gate.set()
        compared.wait(lambda: waits.words == "Loading x.")
    session.open_model("/models/mine.gguf")
    gate.set()
    load.set()
    compared.wait(lambda: session.model is not None and session.model.name == "mine")
    compared.until_written()
    assert waits.words == "Not generated: another model was loaded."
    assert session.model is not None
    assert session.model.name == "mine"


def test_unloading_the_model_leaves_what_waits(compared: Compared) -> None:
    harness, session = compared.harness, compared.session
    harness.chat.hold = threading.Event()
    assert compared.service.begin(
        harness.ids()[0], [ColumnSettings(), ColumnSettings(model="/models/x.gguf")]
    )
    session.unload_model()
    compared.wait(lambda: session.state == "no_model")
    assert compared.comparison.columns[1].words == "Not generated: the model was unloaded."


def test_a_model_waits_for_the_replies_of_other_chats(compared: Compared) -> None:
    harness, session = compared.harness, compared.session
    mine = session.conversation
    gate = harness.chat.hold = threading.Event()
    session.new_conversation()
    assert session.submit("other")
    compared.wait(lambda: len(harness.chat.requests) == 2)
    session.open_conversation(mine)
    harness.chat.hold = None
    assert compared.service.begin(
        harness.ids()[0], [ColumnSettings(), ColumnSettings(model="/models/x.gguf")]
    )
    waits = compared.comparison.columns[1]
    compared.wait(
        lambda: waits.words == "Waiting for x, which is loaded when no other reply is being written."
    )
    assert len(harness.echo.opened) == 1
    gate.set()
    compared.until_written()
    assert waits.message


def test_columns_go_on_while_another_chat_is_open(compared: Compared) -> None:
    harness, session = compared.harness, compared.session
    mine = session.conversation
    assert compared.service.begin(
        harness.ids()[0], [ColumnSettings(), ColumnSettings(model="/models/x.gguf")]
    )
    session.new_conversation()
    compared.wait(lambda: not session.busy and session.model is not None and session.model.name == "x")
    compared.wait(lambda: not session.replying_in)
    found = compared.service.of(mine)
    assert found is not None
    assert [harness.store.message(column.message).text for column in found.columns] == ["question"] * 2
    assert harness.texts() == []


def test_a_deleted_chat_loads_no_model(compared: Compared) -> None:
    harness, session = compared.harness, compared.session
    mine = session.conversation
    harness.chat.hold = threading.Event()
    assert compared.service.begin(
        harness.ids()[0], [ColumnSettings(), ColumnSettings(model="/models/x.gguf")]
    )
    assert session.delete_conversation(mine)
    compared.wait(lambda: not session.busy and not session.replying_in)
    assert compared.service.of(mine) is None
    assert len(harness.echo.opened) == 1


def test_the_comparison_of_a_deleted_chat_ends_with_the_next_one(compared: Compared) -> None:
    harness, session = compared.harness, compared.session
    first = session.conversation
    assert compared.service.write_several(harness.ids()[0], 2)
    compared.until_written()
    assert session.delete_conversation(first)
    assert compared.service.of(first) is not None, "deleting it can be undone"
    assert session.submit("Another chat")
    compared.wait(lambda: not session.busy and not session.replying_in)
    assert compared.service.write_several(harness.ids()[0], 2)
    compared.until_written()
    assert compared.service.of(first) is None
    assert compared.service.of(session.conversation) is not None


def test_closing_lets_replies_go_on_and_begins_no_others(compared: Compared) -> None:
    harness, session = compared.harness, compared.session
    gate = harness.chat.hold = threading.Event()
    assert compared.service.begin(
        harness.ids()[0], [ColumnSettings(), ColumnSettings(model="/models/x.gguf")]
    )
    running = compared.comparison.columns[0].message
    compared.service.close_comparison(session.conversation)
    gate.set()
    compared.wait(lambda: not session.busy)
    assert harness.store.message(running).state == "complete"
    assert len(harness.echo.opened) == 1


def test_versions_that_exist_are_put_side_by_side(
    compared: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, session = compared.harness, compared.session
    only = harness.ids()[1]
    assert not compared.service.show_versions(only)
    assert harness.notices()[-1] == "This reply has only one version."
    assert compared.service.write_several(only, 8)
    compared.until_written()
    eight = [column.message for column in compared.comparison.columns]
    assert compared.service.show_versions(harness.ids()[1])
    assert [column.message for column in compared.comparison.columns] == eight, "the latest eight of nine"
    first = compared.comparison.columns[0].label
    assert first.startswith("Version 2 · Seed ")
    assert not first.endswith(" · echo"), "all are by the same model"
    read = type(harness.store).message

    def other(store: Any, number: int) -> StoredMessage:
        found = read(store, number)
        return (
            dataclasses.replace(found, stats={**found.stats, "model": "other"})
            if number == eight[1]
            else found
        )

    with monkeypatch.context() as patched:
        patched.setattr(type(harness.store), "message", other)
        assert compared.service.show_versions(harness.ids()[1])
    labels = [column.label for column in compared.comparison.columns]
    assert labels[0] == f"{first} · echo"
    assert labels[1].endswith(" · other")
    assert compared.service.keep(session.conversation, compared.comparison.columns[3])
    assert harness.ids()[1] == eight[3]


def test_without_a_model_or_a_message_nothing_begins(harness: Harness) -> None:
    service = ComparisonService(harness.session, harness.session)
    assert not service.submit("text", [ColumnSettings(), ColumnSettings()])
    assert harness.texts() == []
    message = harness.store.add_message(harness.session.conversation, None, "user", "text")
    assert not service.begin(message.id, [ColumnSettings(), ColumnSettings()])
    assert "nothing to reply to" in harness.notices()[-1]


def test_a_message_for_several_replies_follows_the_last_one(compared: Compared) -> None:
    harness, columns = compared.harness, [ColumnSettings(), ColumnSettings(seed=1)]
    assert not compared.service.submit(" \n", columns)
    before = harness.ids()
    harness.ask("more")
    path = harness.ids()
    assert path[:2] == before
    assert compared.service.submit("\n  And now?\n \n", columns)
    compared.until_written()
    message = harness.store.message(harness.ids()[4])
    assert (message.text, message.parent_id, message.role) == ("  And now?", path[-1], "user")


def test_replies_to_a_message_that_is_not_shown_show_it(compared: Compared) -> None:
    harness, session = compared.harness, compared.session
    first = harness.ids()[0]
    assert session.edit(first, "another")
    harness.qtbot.waitUntil(lambda: not session.busy)
    assert harness.ids()[0] != first
    assert session.several.write(session.conversation, first, [ColumnSettings(), ColumnSettings(seed=1)])
    harness.qtbot.waitUntil(lambda: not session.busy)
    assert harness.ids()[0] == first


def test_another_file_closes_all(compared: Compared) -> None:
    compared.service.write_several(compared.harness.ids()[0], 2)
    compared.until_written()
    chat = compared.session.conversation
    assert compared.session.start_again()
    assert compared.service.of(chat) is None


def test_deleting_a_version_stops_its_own_reply_only(compared: Compared) -> None:
    harness, session = compared.harness, compared.session
    gate = harness.chat.hold = threading.Event()
    compared.service.write_several(harness.ids()[0], 2)
    compared.wait(lambda: len(harness.chat.requests) == 3)
    first, second = (column.message for column in compared.comparison.columns)
    assert session.delete_message(first)
    assert [session.replies.engine.state_of(each) for each in (first, second)] == ["stopping", "prefill"]
    assert session.delete_message(harness.ids()[0])
    assert session.replies.engine.state_of(second) == "stopping"
    gate.set()
    compared.wait(lambda: session.state == "idle")


def test_a_queued_message_follows_the_last_of_several_replies(compared: Compared) -> None:
    harness, session = compared.harness, compared.session
    queue = MessageQueue(session, session)
    gates = []
    for _ in range(2):
        gates.append(threading.Event())
    harness.chat.hold = gates[0]
    compared.service.write_several(harness.ids()[0], 2)
    compared.wait(lambda: len(harness.chat.requests) == 3)
    assert queue.add("next")
    first = compared.comparison.columns[0]
    compared.service.stop(session.conversation, first)
    compared.wait(lambda: session.replies.growing(first.message) is None)
    assert [waiting.text for waiting in queue.waiting(session.conversation)] == ["next"]
    harness.chat.hold = None
    gates[0].set()
    compared.wait(lambda: harness.texts()[-2:] == ["next", "next"] and session.state == "idle")
    assert queue.waiting(session.conversation) == []


def test_every_reply_records_the_settings_that_it_was_written_with(compared: Compared) -> None:
    harness, session = compared.harness, compared.session
    provenance = ProvenanceService(session, HashService(session, harness.folder, session), session)
    columns = [ColumnSettings(temperature=0.2), ColumnSettings(model="/models/x.gguf", seed=3)]
    assert compared.service.begin(harness.ids()[0], columns)
    compared.until_written()
    cold, other = (provenance.of(column.message) for column in compared.comparison.columns)
    assert cold.settings(SamplerSettings)["temperature"] == 0.2
    assert (cold.model["name"], other.model["name"]) == ("echo", "x")
    assert other.settings(SamplerSettings)["seed"] == 3
    assert provenance.hashes.close()


def test_replies_that_were_running_are_kept_when_the_window_closes(compared: Compared) -> None:
    harness = compared.harness
    harness.chat.reply = "".join(f"w{number} " for number in range(4000))
    harness.chat.delay_s = 0.004
    compared.service.write_several(harness.ids()[0], 3)
    compared.wait(lambda: all(len(text) > 20 for text in compared.growing()))
    before = compared.growing()
    harness.close_session()
    for (text, state), begun in zip(compared.states(), before, strict=True):
        assert text.startswith(begun)
        assert harness.chat.reply.startswith(text)
        assert state == "stopped"


@pytest.mark.slow
def test_several_replies_at_every_call_of_the_store(
    compared: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All replies are begun or none; what is begun ends, is saved, and one can be kept."""
    harness, session, call = compared.harness, compared.session, 0
    chat, question = session.conversation, harness.ids()[0]
    while True:
        call += 1
        before = set(harness.store.variants(harness.ids()[1]))
        harness.said["notice"].clear()
        with failing(monkeypatch, call) as asked:
            compared.service.write_several(question, 3)
            compared.wait(lambda: not session.busy and not session.replying_in)
            found = compared.service.of(chat)
            if found is not None:
                compared.service.keep(chat, found.columns[2], discard=call % 2 == 0)
        reached = asked() >= call
        assert session.save_replies() == {}
        assert FAULT in harness.notices() or not reached or found is not None, call
        session.open_conversation(chat)
        made = sorted(set(harness.store.variants(harness.ids()[1])) - before)
        assert len(made) in (0, 1, 3), call
        assert [harness.store.message(each).text for each in made] == ["question"] * len(made), call
        assert {harness.store.message(each).state for each in made} <= {"complete"}, call
        compared.service.close_comparison(chat)
        if not reached:
            break
    assert call > 20
