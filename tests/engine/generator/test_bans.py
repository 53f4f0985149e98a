"""Banned strings: never shown, never half shown, and everything goes back with them."""

from __future__ import annotations

import numpy as np
import pytest

from engine.constraint.grammar import GrammarFilter
from engine.constraint.prefix import PrefixFilter
from engine.core import Done, Text
from engine.errors import NothingAllowed
from engine.settings import ConstraintSettings, SamplerSettings, SpeculationSettings, StopSettings
from tests.engine.generator.fakes import Scripted, make, random_logits, stepping, stream, tokenizer

GREEDY = SamplerSettings(temperature=0.0)
WARM = SamplerSettings(temperature=1.2, top_k=0, top_p=1.0, min_p=0.0)


class Insisting:
    """Wants to write a text, and after each detour goes on with it where it can; every other token is a
    bit likely, too.
    """

    def __init__(self, text: str) -> None:
        self.ids = tokenizer().encode(text)

    def __call__(self, sequence: list[int]) -> np.ndarray:
        logits = random_logits(sequence).copy() / 10
        place = min(len(sequence) - 1, len(self.ids) - 1)
        logits[self.ids[place]] = 8.0
        logits[tokenizer().encode(" fox")[0]] += 4.0
        return logits


def run(answering, banned, *, sampler=GREEDY, count=40, **more):
    generator, model = make(answering)
    constraint = ConstraintSettings(banned_strings=banned, **more.pop("constraint", {}))
    events = list(
        stream(generator, [9], sampler, StopSettings(max_tokens=count), constraint=constraint, **more)
    )
    generator.cache.table.check()
    return events, model


def text_of(events):
    return "".join(event.text for event in events if isinstance(event, Text))


def suppressed(events):
    return [event.suppressed for event in events if isinstance(event, Text) and event.suppressed]


def test_a_banned_string_over_several_tokens():
    events, _ = run(Insisting("one two lazy dog days are over"), ("LAZY dog",))
    assert "lazy dog" not in text_of(events).lower()
    assert text_of(events).startswith("one two")
    assert any("lazy" in text for text in suppressed(events))
    tokens = [token for event in events if isinstance(event, Text) for token in event.tokens]
    assert "".join(token.text for token in tokens) == text_of(events)
    assert events[-1].stats.new_tokens == len(tokens) == 40


def test_going_back_needs_no_pass_of_its_own():
    """The logits at the offending token are kept: a run follows each token that stays, and those that were
    taken back.
    """
    events, model = run(Insisting("one two lazy dog"), ("lazy dog",), count=8)
    taken_back = len(tokenizer().encode(suppressed(events)[0]))
    assert len(suppressed(events)) == 1
    assert len(model.program.ran) == 1 + 7 + taken_back - 1


def letter(text):
    (token,) = (i for i in range(tokenizer().vocab_size) if tokenizer().token_bytes(i) == text.encode())
    return token


def test_a_draft_is_void_after_going_back():
    """The token that takes the place of a banned beginning may be the one that was guessed for the next
    place: its row is another's.
    """
    a, b, c, d, x = map(letter, "abcdx")

    def answering(sequence):
        logits = random_logits(sequence).copy()
        expected = {
            x: {a: 20.0, b: 15.0},
            a: {b: 20.0},
            b: {c if sequence[-2] == a else d: 20.0},
            c: {x: 20.0},
            d: {x: 20.0},
        }
        for token, score in expected.get(sequence[-1], {x: 20.0}).items():
            logits[token] += score
        return logits

    prompt, replies = [x, a, b, c] * 6 + [x], []
    for method in ("none", "ngram"):
        generator, _ = make(answering)
        constraint, speculation = (
            ConstraintSettings(banned_strings=("ab",)),
            SpeculationSettings(method=method, adaptive=False),
        )
        events = list(
            stream(
                generator,
                prompt,
                GREEDY,
                StopSettings(max_tokens=12),
                constraint=constraint,
                speculation=speculation,
            )
        )
        generator.cache.table.check()
        assert suppressed(events)
        replies.append(text_of(events))
    assert replies == ["bdx" * 4] * 2
    assert events[-1].stats.drafted_tokens > 0


def test_no_more_is_taken_back_than_the_token_the_banned_text_begins_in():
    a, b, c, d = map(letter, "abcd")

    def answering(sequence):
        logits = np.zeros(tokenizer().vocab_size, np.float32)
        logits[{a: b, b: c, c: d}.get(sequence[-1], a)] = 9.0
        logits[d] += 5.0
        return logits

    # "a" is held for the first when the second is complete
    events, _ = run(answering, ("abz", "bc"), count=4)
    assert suppressed(events)[0] == "bc"
    assert text_of(events).startswith("ad")


def test_case():
    answering = Insisting("one two Lazy dog")
    assert "Lazy" in text_of(run(answering, ("lazy",), constraint={"ban_ignore_case": False})[0])
    assert "lazy" not in text_of(run(answering, ("lazy",))[0]).lower()


@pytest.mark.slow
@pytest.mark.parametrize("drafting", ["none", "ngram"])
def test_no_leak_in_200_replies(drafting):
    from engine.settings import SpeculationSettings

    banned = ("the", "an", "o d", "e", "xy", " ")
    generator, _ = make()
    for seed in range(200):
        events = stream(generator, [9, seed + 20], WARM, StopSettings(max_tokens=25), seed=seed,
            constraint=ConstraintSettings(banned_strings=banned),
            speculation=SpeculationSettings(method=drafting, adaptive=False),
        )  # fmt: skip
        text = text_of(events).lower()
        assert not any(string in text for string in banned), text


def test_the_rest_is_as_if_the_offending_token_had_been_blocked():
    """With mirostat, whose level moves with each token, and a filter: both go back with the text."""
    sampler = SamplerSettings(
        temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, mirostat=True, repetition_penalty=1.2
    )
    script = tokenizer().encode("one two lazy dog")
    generator, _ = make(Insisting("one two lazy dog"))
    prefix = PrefixFilter(tokenizer(), ["one two "])
    events = stream(
        generator,
        [9],
        sampler,
        StopSettings(max_tokens=12),
        seed=4,
        filters=[prefix],
        constraint=ConstraintSettings(banned_strings=("lazy dog",)),
    )
    tokens = [token for event in events if isinstance(event, Text) for token in event.tokens]
    blocked = len(tokenizer().encode("one two"))
    assert tokenizer().decode(token.id for token in tokens).startswith("one two ")
    assert tokens[blocked].id != script[blocked]
    # The same from the beginning, with the token blocked at its place instead: only the number of tries
    # differs there.
    other, _ = make(Insisting("one two lazy dog"))
    prefix = PrefixFilter(tokenizer(), ["one two "])
    steps = stepping(other, [9], sampler, filters=[prefix], seed=4, max_new_tokens=12, probabilities=True)
    probabilities = []
    for place, token in enumerate(tokens):
        allowed = [i for i in range(tokenizer().vocab_size) if i != token.id] if place == blocked else []
        result = steps.step(allowed)
        assert result["chunk_token_ids"].tolist() in ([[token.id]], [[]])
        probabilities += result["probs"][0].tolist()
        if place == blocked:
            break
        assert probabilities[-1] == pytest.approx(token.probability, rel=1e-5)


def test_bans_and_stops_overlap():
    events, _ = run(Insisting("one two STOPPER three"), ("stopper",))
    assert "stopper" not in text_of(events).lower()
    generator, _ = make(Insisting("one two STOPPER three"))
    stops = StopSettings(max_tokens=30, stop_strings=("STOP",))
    events = list(
        stream(generator, [9], GREEDY, stops, constraint=ConstraintSettings(banned_strings=("stop sign",)))
    )
    assert text_of(events) == "one two "
    assert (events[-1].reason, events[-1].trigger) == ("stop_string", "STOP")


def test_a_stop_token_lets_go_what_was_no_banned_string():
    ids = tokenizer().encode("a lazy")
    generator, _ = make(Scripted(1, [*ids, tokenizer().eos_token_id]))
    events = list(stream(generator, [9], GREEDY, constraint=ConstraintSettings(banned_strings=("lazy dog",))))
    assert text_of(events) == "a lazy"
    assert isinstance(events[-1], Done)
    assert events[-1].reason == "stop_token"


def test_when_every_way_is_closed():
    letters = [tokenizer().encode(c)[0] for c in "ab"]
    constraint = ConstraintSettings(banned_strings=("a", "b"), allowed_tokens=tuple(letters))
    generator, _ = make()
    with pytest.raises(NothingAllowed, match="banned"):
        list(stream(generator, [9], GREEDY, constraint=constraint))
    # Further back there is another way: after "a" nothing may follow, after "b" something may.
    c = tokenizer().encode("c")[0]
    generator, _ = make(Insisting("a"))
    constraint = ConstraintSettings(
        banned_strings=("aa", "ab", "ac", "ba", "bb"), allowed_tokens=(*letters, c)
    )
    text = text_of(stream(generator, [9], GREEDY, StopSettings(max_tokens=12), constraint=constraint))
    assert len(text) == 12
    assert not any(string in text[:-1] for string in constraint.banned_strings)


def test_where_nothing_can_follow_only_the_last_token_is_taken_back():
    """After "ab" one filter is at its end and the other is not; both know "acd".

    The text is held for bans meanwhile.
    """
    letters = tuple(map(letter, "abcd"))
    filters = [GrammarFilter.regex(tokenizer(), "ab|acd"), GrammarFilter.regex(tokenizer(), "abc|acd")]
    constraint = {"allowed_tokens": letters}
    events, _ = run(Insisting("ab"), ("abz", "acz"), filters=filters, constraint=constraint)
    assert text_of(events) == "acd"
    assert suppressed(events) == ["b"]
