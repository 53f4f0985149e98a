"""Chats about pictures: tiny models of each family reply as those of transformers do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.core import ChatRequest, Message
from tests.engine.vision.tiny.chats import Reply, asked, by_transformers, opened
from tests.engine.vision.tiny.encoding import picture
from tests.engine.vision.tiny.families import FAMILIES, Case

TOKENS = 6


@pytest.fixture(scope="module", params=FAMILIES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return FAMILIES[request.param](tmp_path_factory.mktemp("model"))


@pytest.fixture
def case(made: Case) -> Iterator[Case]:
    made.chat = opened(made.folder)
    yield made
    made.chat.close()


def assert_as_transformers(case: Case, reply: Reply, *sizes: tuple[int, int]) -> None:
    """The tokens, and the probabilities of each and of its alternatives, are those of transformers."""
    images = [picture(*size) for size in sizes]
    ids = case.plain(reply.rendered.ids, images) if case.plain else reply.plain_ids(case.token)
    inputs = case.inputs(images, ids) if sizes else {}
    written, likely = by_transformers(case.model, ids, TOKENS, eos_token_id=case.end, **inputs)
    assert reply.ids == written
    for token, probabilities in zip(reply.tokens, likely, strict=True):
        for each in token.alternatives:
            assert each.raw_probability == pytest.approx(probabilities[each.id], rel=0.02, abs=2e-4)


@pytest.mark.slow_after(10)
def test_a_reply_about_a_picture_is_that_of_transformers(case: Case) -> None:
    assert case.chat.info.reads_pictures
    reply = Reply(case.chat, [asked("What is this?", (60, 40))], TOKENS)
    assert_as_transformers(case, reply, (60, 40))
    other = Reply(case.chat, [asked("What is this?", (60, 41))], TOKENS)
    assert_as_transformers(case, other, (60, 41))
    assert other.tokens[0].alternatives != reply.tokens[0].alternatives


@pytest.mark.slow_after(10)
def test_a_second_turn_reads_only_what_is_new(case: Case) -> None:
    first = [asked("One?", (50, 50))]
    begun = Reply(case.chat, first, TOKENS)
    again = Reply(case.chat, first, TOKENS)
    assert again.ids == begun.ids
    assert again.cached == len(begun.rendered.ids) - 1
    turns = [*first, Message("assistant", begun.text), asked("And this, beside it?", (30, 70), (64, 64))]
    reply = Reply(case.chat, turns, TOKENS)
    assert reply.cached >= len(begun.rendered.ids) - 1
    assert_as_transformers(case, reply, (50, 50), (30, 70), (64, 64))


@pytest.mark.slow_after(10)
def test_the_length_is_known_before_a_picture_is_read(case: Case) -> None:
    message = asked("How long is it?", (80, 35))
    bare = asked("How long is it?", (80, 35))
    foreseen = case.chat.foresee(ChatRequest((message,)))
    assert foreseen.prompt_tokens == case.chat.size(ChatRequest((bare,))).prompt
    reply = Reply(case.chat, [message], 1)
    assert len(reply.rendered.ids) == foreseen.prompt_tokens == sum(foreseen.messages)


@pytest.mark.slow_after(10)
def test_a_text_is_read_as_without_an_encoder(case: Case) -> None:
    reply = Reply(case.chat, [Message("user", "No picture here.")], TOKENS)
    assert_as_transformers(case, reply)
