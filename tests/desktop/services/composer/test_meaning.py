"""Passages of files found by meaning: which model does it, what it reads, and what is kept of that."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PySide6.QtCore import QObject, Signal

from desktop.items.models.local_models import entry
from desktop.services.composer.meaning import WORDS_ONLY, MeaningService
from desktop.store.attachments.message_format import Attachment
from desktop.store.attachments.picture_marks import PictureMark
from desktop.store.caches.vectors import FILE_NAME
from engine.errors import NotEnoughMemory
from tests.desktop.embedders import FakeEmbedder, embedding_entry
from tests.desktop.fakes import ECHO_INFO
from tests.desktop.services.conftest import Harness

CATS = Attachment("pets.txt", ("A dull paragraph. " * 40 + "\n\n") * 3 + "The kitten sleeps." + " So." * 100)
PICTURE = Attachment("x.png", "", picture=PictureMark("x.png", "key", 4, 4))


class Finished(QObject):
    finished = Signal()

    def connect(self, slot: Any) -> None:
        self.finished.connect(slot)


class Case:
    def __init__(self, harness: Harness, folder: Path) -> None:
        self.harness, self.fake = harness, FakeEmbedder()
        self.model = folder / "small.gguf"
        self.model.write_bytes(b"weights")
        self.entries = [
            entry(replace(ECHO_INFO, path="/models/chat.gguf")),
            embedding_entry("/models/large.gguf", 900, ECHO_INFO),
            embedding_entry(str(self.model), 100, ECHO_INFO),
        ]
        models: Any = SimpleNamespace(entries=self.entries, searching=False, finished=Finished())
        self.models, self.looked = models, 0
        self.service = MeaningService(harness.session, models, self.fake.open, folder)
        self.service.look = self.look
        self.percents: list[int] = []
        self.ended: list[tuple[tuple[tuple[int, ...], ...], str]] = []
        harness.load()

    def look(self) -> None:
        self.looked += 1
        self.models.searching = True

    def begin(self, *files: Attachment, question: str = "Where is the feline?", keep: bool = True) -> None:
        model = self.service.model()
        assert model is not None
        self.service.rank(
            model, files, question, keep, self.percents.append, lambda *found: self.ended.append(found)
        )

    def ranked(self, *files: Attachment, **how: Any) -> tuple[tuple[tuple[int, ...], ...], str]:
        before = len(self.ended)
        self.begin(*files, **how)
        self.harness.qtbot.waitUntil(lambda: len(self.ended) > before)
        return self.ended[-1]


@pytest.fixture
def case(harness: Harness, tmp_path: Path) -> Case:
    return Case(harness, tmp_path)


def test_the_smallest_embedding_model_or_the_chosen_one(case: Case) -> None:
    service = case.service
    assert [each.path for each in service.choices()] == [str(case.model), "/models/large.gguf"]

    def used() -> str:
        found = service.model()
        return found.path if found is not None else ""

    assert used() == str(case.model)
    service.choose("/models/large.gguf")
    assert used() == "/models/large.gguf"
    del case.entries[1]
    assert used() == str(case.model)
    service.choose(WORDS_ONLY)
    assert used() == ""
    assert case.harness.session.preferences.passage_model == WORDS_ONLY
    service.choose("")
    del case.entries[1]
    assert used() == ""


def test_the_nearest_passages_come_first_and_a_second_question_reads_nothing_again(case: Case) -> None:
    orders, sentence = case.ranked(CATS, PICTURE)
    assert (orders[0][0], orders[1], sentence) == (3, (), "")
    assert sorted(orders[0]) == list(range(4))
    assert [role for role, _text in case.fake.read] == ["query", *["document"] * 4]
    assert case.percents == [0, 25, 50, 75, 100]
    assert (case.fake.closed, case.fake.opened) == (1, [case.model])
    case.fake.read.clear()
    assert case.ranked(CATS, question="The kittens?")[0][0][0] == 3
    assert case.fake.read == [("query", "The kittens?")]
    case.model.write_bytes(b"other weights")
    case.fake.read.clear()
    case.ranked(CATS)
    assert len(case.fake.read) == 5


def test_of_temporary_chats_nothing_is_kept(case: Case, tmp_path: Path) -> None:
    case.ranked(CATS, keep=False)
    assert not (tmp_path / FILE_NAME).exists()
    case.ranked(CATS, keep=False)
    assert len(case.fake.read) == 10


def test_what_is_stopped_gives_the_memory_back_and_says_nothing(case: Case) -> None:
    case.fake.hold = threading.Event()
    case.begin(CATS)
    case.harness.qtbot.waitUntil(lambda: len(case.fake.read) == 1)
    assert case.service.running
    case.service.stop()
    assert not case.service.running
    case.harness.qtbot.waitUntil(lambda: case.fake.closed == 1)
    assert case.ended == []
    case.fake.hold = None
    assert case.ranked(CATS)[0][0][0] == 3


def test_a_later_question_that_is_stopped_goes_on_without_orders(case: Case) -> None:
    """Its message waits for passages, which are found by their words."""
    case.ranked(CATS)
    case.ended.clear()
    model, small_talk = case.service.model(), list[int]()
    assert model is not None
    case.service.rank(
        model, (CATS,), "And the dogs?", True, case.percents.append,
        lambda *found: case.ended.append(found), lambda: small_talk.append(1),
    )  # fmt: skip
    case.service.stop()
    assert (case.ended, case.service.running) == ([((), "")], False)
    case.service.stop()
    assert case.ranked(CATS)[0]
    assert (len(case.ended), small_talk) == (2, [])


def test_a_model_that_cannot_be_loaded_is_reported(case: Case) -> None:
    case.fake.error = NotEnoughMemory("It needs 2 GB, but 1 GB is free.")
    orders, sentence = case.ranked(CATS)
    assert (orders, sentence) == ((), "It needs 2 GB, but 1 GB is free.")
    assert not case.service.running


def test_models_are_searched_once_if_none_is_known_yet(case: Case) -> None:
    entries, called = list(case.entries), list[int]()
    case.service.when_known(lambda: called.append(1))
    assert (called, case.looked) == ([1], 0)
    case.entries.clear()
    case.service.when_known(lambda: called.append(2))
    assert (called, case.looked, case.service.running) == ([1], 1, True)
    case.entries.extend(entries)
    case.models.searching = False
    case.models.finished.finished.emit()
    assert (called, case.service.running) == ([1, 2], False)
    case.entries.clear()
    case.service.when_known(lambda: called.append(3))
    assert (called, case.looked) == ([1, 2, 3], 1)
    case.models.searching = True
    case.service.when_known(lambda: called.append(4))
    case.service.stop()
    case.models.finished.finished.emit()
    case.service.choose(WORDS_ONLY)
    case.service.when_known(lambda: called.append(5))
    assert called == [1, 2, 3, 5]
