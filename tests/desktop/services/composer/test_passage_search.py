"""Which files of a chat a later question is asked about, and what of the chat the model reads anyway."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from desktop.services.composer.attachments import AttachmentService
from desktop.services.composer.fitting import FittingService
from desktop.services.composer.follow_ups import FollowUps
from desktop.services.composer.passage_search import files_of, read_anyway
from desktop.store.attachments.message_format import Attachment, join
from desktop.store.attachments.picture_marks import mark_of
from desktop.store.attachments.whole_texts import WholeTextStore, packed
from desktop.store.database.database import StoreError
from tests.desktop.services.conftest import Harness

PART = join([Attachment("book.txt", "One", "1 of 9 passages")], "What?")
WHOLE = join([Attachment("list.txt", "rye, oats")], "And this?")


@pytest.mark.parametrize(
    ("texts", "kept", "found"),
    [
        (["no file", "Attached file: c.txt (no file)", WHOLE], [("c.txt", "c")], {"list.txt": "rye, oats"}),
        ([WHOLE, join([Attachment("list.txt", "rye")], "Now?")], [], {"list.txt": "rye"}),
        ([PART, PART], [("book.txt", "One, two"), ("book.txt", "One, two, three"), ("book.txt", "Three")],
         {"book.txt": "One, two, three"}),
        ([PART], [], {}),
        ([WHOLE], [("list.txt", "not trimmed in any message"), ("gone.txt", "of no message")],
         {"list.txt": "rye, oats"}),
        ([PART, join([Attachment("book.txt", "All of it")], "")], [("book.txt", "All")],
         {"book.txt": "All of it"}),
        ([join([Attachment("a.jpg", "", picture=mark_of("a.jpg", "a" * 32, 4, 3)), Attachment("b.txt", "")],
               "")], [], {}),
    ],
)  # fmt: skip
def test_the_whole_files_of_a_chat(
    texts: list[str], kept: list[tuple[str, str]], found: dict[str, str]
) -> None:
    files = files_of(texts, [packed(name, text) for name, text in kept])
    assert {file.name: file.text for file in files} == found
    assert all(not file.note and file.picture is None for file in files)


@pytest.mark.parametrize(
    ("room", "read"), [(0, "abcd\nef\ng"), (7, "abcd\nef\ng"), (6, "ef\ng"), (4, "ef\ng"), (2, "g")]
)
def test_the_last_texts_that_fit_are_read_anyway(room: int, read: str) -> None:
    assert read_anyway(["abcd", "ef", "g"], room) == read
    assert read_anyway(["abcd"], 3) == ""


def test_a_question_goes_without_passages_where_the_files_cannot_be_read(
    talking: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    attachments = AttachmentService(talking.session)
    fitting = FittingService(talking.session, attachments)
    follow_ups, said = FollowUps(talking.session, attachments, fitting), []
    follow_ups.not_kept.connect(said.append)
    talking.ask(WHOLE)

    def refuse(*_unused: object) -> None:
        raise StoreError("The disk went away.")

    with monkeypatch.context() as patch:
        patch.setattr(WholeTextStore, "of", refuse)
        assert not follow_ups.begin("And rye?")
    assert said == ["The disk went away."]
    with talking.qtbot.waitSignal(follow_ups.ready):
        assert follow_ups.begin("And rye?")
        assert follow_ups.begin("And rye?"), "it is being searched for already"
    assert not follow_ups.begin("And rye?"), "it was searched for"
    assert attachments.close()
    assert follow_ups.close()


class Ranking:
    """Stands for `MeaningService`: a question that is ranked stays so until `stop`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._ended: Callable[[tuple[()], str], object] | None = None

    def model(self) -> object:
        return self

    @property
    def running(self) -> bool:
        return self._ended is not None

    def rank(self, _model: object, _files: object, question: str, *more: Any) -> None:
        self.asked.append(question)
        self._ended = more[2]

    def stop(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended((), "")


def test_a_question_that_changes_is_ranked_anew_and_one_that_is_stopped_has_words(talking: Harness) -> None:
    ranking: Any = Ranking()
    attachments = AttachmentService(talking.session)
    fitting = FittingService(talking.session, attachments, ranking)
    follow_ups, ready = FollowUps(talking.session, attachments, fitting), list[str]()
    follow_ups.ready.connect(ready.append)
    talking.ask(WHOLE)
    for question in ("And rye?", "And oats?"):
        assert follow_ups.begin(question)
        talking.qtbot.waitUntil(lambda question=question: ranking.asked[-1:] == [question])
    assert ready == []
    with talking.qtbot.waitSignal(follow_ups.ready):
        fitting.stop_ranking()
    assert (ranking.asked, ready) == (["And rye?", "And oats?"], ["And oats?"])
    assert attachments.close()
    assert follow_ups.close()
