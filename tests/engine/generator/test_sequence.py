"""Text, ids and reasons of one sequence, token by token."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.generator.params import GenerationParams, ReturnOptions
from engine.generator.sequence import StepOutput, TokenSequence
from engine.sampling.sampler import Sampled
from engine.settings import SamplerSettings
from engine.text.stops.conditions import StopRules
from tests.engine.generator.fakes import tokenizer
from tests.engine.text.tokenizer.vocabularies import random_text

EOS = 2  # <|im_end|>


def sequence(
    strings: Sequence[str] = (), *, limit: int = 0, context: int = 10_000, special: bool = False
) -> TokenSequence:
    rules = StopRules(frozenset({EOS}), tuple(strings), max_tokens=limit)
    params = GenerationParams(SamplerSettings(), 0, rules, ReturnOptions(special=special))
    return TokenSequence(tokenizer(), [50], params, context_length=context)


def feed(target: TokenSequence, ids: Sequence[int]) -> list[StepOutput]:
    """Emissions of `ids` until the end."""
    out: list[StepOutput] = []
    for token in ids:
        out.append(target.feed(Sampled(token, 0.5, 0.25)))
        if out[-1].reason:
            break
    return out


def text_of(emissions: Sequence[StepOutput]) -> str:
    return "".join(output.text for output in emissions)


def ids_of(emissions: Sequence[StepOutput]) -> list[int]:
    return [token.info.id for output in emissions for token in output.tokens]


def token_texts(emissions: Sequence[StepOutput]) -> str:
    return "".join(token.info.text for output in emissions for token in output.tokens)


def byte_ids(text: str) -> list[int]:
    """One token a byte: the hardest tokenisation."""
    alphabet = {tokenizer().token_bytes(i): i for i in range(tokenizer().vocab_size)}
    return [alphabet[bytes([byte])] for byte in text.encode()]


@pytest.mark.parametrize("split", [byte_ids, lambda text: tokenizer().encode(text)])
def test_chunks_join_to_the_decode_and_no_id_is_lost(split):
    draw = random.Random(7)
    for _ in range(200):
        text = random_text(draw)
        ids = split(text) + [EOS]
        emissions = feed(sequence(["###", "no such text"]), ids)
        required = text.partition("###")[0]
        assert text_of(emissions) == required == token_texts(emissions)
        if "###" not in text:
            assert ids_of(emissions) == ids[:-1]
            assert emissions[-1].reason == "stop_token"
            assert emissions[-1].trigger == "<|im_end|>"


def test_ids_never_run_ahead_of_their_text():
    shown, expected = 0, tokenizer()
    emissions = feed(sequence(["dog days"]), [*byte_ids("a dog, 🦊 dog day"), EOS])
    for output in emissions:
        shown += len(output.text)
        ids = ids_of(emissions[: emissions.index(output) + 1])
        assert len(expected.decode(ids)) <= shown
    assert text_of(emissions) == "a dog, 🦊 dog day"


def test_a_character_that_is_never_finished_belongs_to_the_token_that_began_it():
    """Also where that token has text of its own, which is out long before the end."""
    both = next(i for i in range(tokenizer().vocab_size) if _begins_a_character(tokenizer().token_bytes(i)))
    for rest in ([EOS], [*byte_ids("\nUs"), EOS]):
        emissions = feed(sequence(["\nUser:"]), [60, both, *rest])
        assert text_of(emissions) == token_texts(emissions) == tokenizer().decode([60, both, *rest[:-1]])
        assert ids_of(emissions) == [60, both, *rest[:-1]]


def _begins_a_character(data: bytes) -> bool:
    """Whether whole characters are followed by the first byte of another one."""
    return len(data) > 1 and data[-1] >= 0xC2 and "\ufffd" not in data[:-1].decode("utf-8", "replace")


@pytest.mark.parametrize("cut", range(1, 7))
def test_stop_string_over_token_boundaries(cut):
    stop = "\nUser:"
    head, tail = tokenizer().encode("Hello there" + stop[:cut]), tokenizer().encode(stop[cut:] + " next")
    emissions = feed(sequence([stop]), [*head, *tail])
    assert text_of(emissions) == "Hello there" == token_texts(emissions)
    assert (emissions[-1].reason, emissions[-1].trigger) == ("stop_string", stop)


def test_a_token_that_runs_into_the_stop_string_keeps_its_id_and_loses_its_end():
    ids = tokenizer().encode(" quick")
    assert len(ids) == 1
    emissions = feed(sequence(["ick"]), ids)
    assert text_of(emissions) == " qu" == token_texts(emissions)
    assert ids_of(emissions) == ids


def test_the_stop_strings_own_tokens_are_not_reported():
    emissions = feed(sequence(["abc"]), byte_ids("xyabcz"))
    assert ids_of(emissions) == byte_ids("xy")


def test_a_partial_match_of_one_string_does_not_hide_a_full_match_of_another():
    emissions = feed(sequence(["dog and cat", "and"]), tokenizer().encode("a dog and a cat"))
    assert text_of(emissions) == "a dog "
    assert emissions[-1].trigger == "and"


def test_text_held_for_a_stop_string_comes_out_with_its_ids_at_the_stop_token():
    emissions = feed(sequence(["dog days"]), [*byte_ids("a dog d"), EOS])
    assert emissions[-2].text == ""
    assert text_of(emissions) == "a dog d"
    assert ids_of(emissions) == byte_ids("a dog d")


def test_unfinished_character_becomes_one_replacement_character():
    emissions = feed(sequence(), [*byte_ids("a🦊")[:-1], EOS])
    assert text_of(emissions) == "a\ufffd" == token_texts(emissions)
    assert ids_of(emissions) == byte_ids("a🦊")[:-1]


def test_a_stop_string_that_waits_for_a_longer_one_still_counts_at_the_end():
    emissions = feed(sequence(["ab", "abc"]), [*byte_ids("xab"), EOS])
    assert (text_of(emissions), emissions[-1].reason, emissions[-1].trigger) == ("x", "stop_string", "ab")
    assert ids_of(emissions) == byte_ids("x")


def test_limits():
    assert [e.reason for e in feed(sequence(limit=3), byte_ids("abcdef"))] == ["", "", "max_tokens"]
    # The prompt has one token: ids 1 ... 4 fill the context, and the fifth needs no room of its own.
    full = feed(sequence(context=4), byte_ids("abcdef"))
    assert [e.reason for e in full] == ["", "", "", "context_full"]
    assert ids_of(full) == byte_ids("abcd")


def test_special_tokens_are_hidden_unless_asked_for():
    start = tokenizer().encode("<|im_start|>", special=True)
    ids = [*byte_ids("a"), *start, *byte_ids("b"), EOS]
    hidden, shown = feed(sequence(), ids), feed(sequence(special=True), ids)
    assert (text_of(hidden), text_of(shown)) == ("ab", "a<|im_start|>b")
    assert ids_of(hidden) == ids_of(shown) == ids[:-1]


@pytest.mark.slow
@settings(max_examples=150)
@given(
    st.text(alphabet="abc 🦊é", max_size=30),
    st.lists(st.text(alphabet="abc 🦊", min_size=1, max_size=4), max_size=3),
    st.integers(0, 40),
)
def test_against_plain_search(text, strings, limit):
    """Over bytes as tokens: the text before the first stop string, the token texts the same, ids a
    beginning of those fed.
    """
    ids = byte_ids(text)
    emissions = feed(sequence(strings, limit=limit), [*ids, EOS])
    seen = tokenizer().decode(ids[:limit] if limit else ids)
    starts = [at for string in strings if (at := seen.find(string)) >= 0]
    shown = text_of(emissions)
    if starts and emissions[-1].reason == "stop_string":
        assert shown == seen[: min(starts)]
    else:
        assert not starts
        assert shown == seen
    assert token_texts(emissions) == shown
    assert ids_of(emissions) == ids[: len(ids_of(emissions))]


def test_other_rules_count_from_the_next_token_on_and_the_limit_stays() -> None:
    """Text that was held for the old rules is looked at by the new ones."""
    one = sequence(["dog days"], limit=9)
    first = feed(one, byte_ids("a dog"))
    assert text_of(first) == "a "
    one.change_rules(StopRules(frozenset({EOS}), ("g!", "q")))
    assert text_of(feed(one, byte_ids(" d"))) == "dog d"
    last = feed(one, byte_ids("abcdef"))
    assert (len(last), last[-1].reason) == (2, "max_tokens")
    one = sequence(["dog days"])
    feed(one, byte_ids("a dog"))
    one.change_rules(StopRules(frozenset({EOS}), ("g!",), max_tokens=6))
    (last_one,) = feed(one, byte_ids("!"))
    assert (last_one.text, last_one.reason, last_one.trigger) == ("do", "stop_string", "g!")
    one = sequence(limit=9)
    one.change_rules(StopRules(frozenset({EOS}), max_tokens=2))
    assert [e.reason for e in feed(one, byte_ids("abc"))] == ["", "max_tokens"]
