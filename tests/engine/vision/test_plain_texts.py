"""Texts with pictures that the model continues without a template."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from engine.chat import LocalChat
from engine.core import FIRST_PICTURE_ID, ChatRequest, Message
from engine.errors import ContextTooLong
from engine.settings import StopSettings
from tests.engine.vision.tiny.chats import opened, shown
from tests.engine.vision.tiny.families import FAMILIES


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalChat]:
    found = opened(FAMILIES["idefics3"](tmp_path_factory.mktemp("model")).folder)
    yield found
    found.close()


def ids_of(chat: LocalChat, text: str, when_full: str = "stop") -> list[int]:
    """The prompt of a text, of which each # is a picture."""
    count = text.count("#")
    pictures = tuple(replace(one, name="a") for one in shown(*[(40, 30)] * count))
    message = Message("user", text.replace("#", "[picture: a]"), pictures=pictures)
    request = ChatRequest((message,), plain=True, stops=StopSettings(max_tokens=8, when_full=when_full))
    return chat._texts.own.prompts.build(request).ids


def runs(ids: list[int]) -> list[int]:
    """How many tokens of pictures stand together, each time."""
    places = [place for place, id in enumerate(ids) if id >= FIRST_PICTURE_ID]
    breaks = [0, *(at for at in range(1, len(places)) if places[at] != places[at - 1] + 1), len(places)]
    return [end - start for start, end in itertools.pairwise(breaks) if end > start]


def test_a_picture_stands_in_the_place_of_its_words(chat: LocalChat) -> None:
    bare, seen = ids_of(chat, "One two."), ids_of(chat, "One # two.")
    own = [id for id in seen if id >= FIRST_PICTURE_ID]
    assert own == list(range(own[0], own[0] + len(own)))
    assert seen[0] == bare[0]
    assert seen[-1] == bare[-1]
    assert len(seen) > len(own) + len(bare)


def test_no_tokens_that_stand_together_are_cut(chat: LocalChat) -> None:
    context = chat.context_length
    step, one = context // 8, len(ids_of(chat, "Z" * 200)) / 200
    picture = ids_of(chat, "#")
    counts = set()
    for length in range(step - len(picture), step + 8, 5):
        before, after = "Z" * round(length / one), "Z" * round((context - length - len(picture)) / one)
        kept = runs(ids_of(chat, before + "#" + after, "drop_oldest"))
        assert kept == runs(picture)[len(runs(picture)) - len(kept) :]
        counts.add(len(kept))
    assert len(counts) > 2
    with pytest.raises(ContextTooLong):
        ids_of(chat, "#" + "Z" * round(context / one))
