"""A reply in a format ends within the tokens it has, or says beforehand that it cannot; jsonschema judges
what was written.
"""

from __future__ import annotations

import contextvars
import json
import random
import re
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, FormatChecker

from engine.constraint import completion
from engine.constraint.budget import Budget
from engine.constraint.closing import JsonPlace
from engine.constraint.completion import GIVEN_UP, Completer
from engine.constraint.filter import Filter
from engine.constraint.filter_set import FilterSet
from engine.constraint.grammar import GrammarFilter
from engine.constraint.grammar_source import json_source, regex_source
from engine.constraint.prefix import PrefixFilter
from engine.constraint.select import SelectFilter
from engine.constraint.vocabulary import vocabulary_of
from engine.core import Done, Text
from engine.errors import BadSetting
from engine.settings import ConstraintSettings, SamplerSettings, SpeculationSettings, StopSettings
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.constraint.fakes import bytes_of, ids, text_of, tokenizer_of
from tests.engine.generator.fakes import make, stream, tokenizer

WARM = SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
START = tokenizer().encode("the quick ")
CHECKER = FormatChecker()


def one_property(**what: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"it": what}, "required": ["it"], "additionalProperties": False}


FORMATS = ("date", "date-time", "time", "email", "uuid", "ipv4", "ipv6", "hostname", "uri", "duration")
SCHEMAS: dict[str, dict[str, Any]] = {name: one_property(type="string", format=name) for name in FORMATS} | {
    "long text": one_property(type="string", minLength=20),
    "pattern": one_property(type="string", pattern="^[A-Z]{3}-[0-9]{2,}(x|yy)$"),
    "number": one_property(type="number"),
    "list": one_property(type="array", items={"type": "number"}, minItems=4),
    "dear option": {
        "type": "object", "properties": {"long": {"type": "array",
        "items": {"type": "object", "required": ["name"]}, "minItems": 12}},
    },
    "dear branch": {"anyOf": [one_property(const="a"), one_property(type="array",
    items=one_property(type="integer"), minItems=8)]},
    "everything required": {
        "type": "object", "properties": {f"field {i}": {} for i in range(8)},
        "required": [f"field {i}" for i in range(8)],
    },
}  # fmt: skip


def write(seed: int, count: int, constraint: ConstraintSettings, **more: Any) -> tuple[str, int, str]:
    generator, _ = make()
    events = list(
        stream(
            generator, START, WARM, StopSettings(max_tokens=count), constraint=constraint, seed=seed, **more
        )
    )
    assert isinstance(events[-1], Done)
    text = "".join(event.text for event in events if isinstance(event, Text))
    return text, events[-1].stats.new_tokens, events[-1].reason


def needed(constraint: ConstraintSettings) -> int:
    """The least tokens that a reply may be limited to; each refusal names a larger number."""
    limit, refused = 1, refusal(1, constraint)
    assert refused
    while refused:
        named = int(re.findall(r"at least (\d+) tokens, but a reply may have", refused)[0])
        assert named > limit
        limit, refused = named, refusal(named, constraint)
    return limit


def refusal(limit: int, constraint: ConstraintSettings) -> str:
    """Why a reply with at most `limit` tokens is refused; "" if it is not."""
    try:
        write(0, limit, constraint)
    except BadSetting as refused:
        return str(refused)
    return ""


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("name", SCHEMAS)
def test_every_budget_is_kept(name: str) -> None:
    constraint = ConstraintSettings(format="json_schema", pattern=json.dumps(SCHEMAS[name]))
    validator = Draft202012Validator(SCHEMAS[name])
    least = 1 if name == "dear option" else needed(constraint)
    assert 1 <= least <= 120
    for seed, spare in enumerate((0, 0, 1, 2, 5, 13, 40)):
        method = ("none", "ngram")[seed % 2]
        text, tokens, reason = write(
            seed, least + spare, constraint, speculation=SpeculationSettings(method=method, adaptive=False)
        )
        validator.validate(json.loads(text))
        assert tokens <= least + spare
        assert reason in ("end_filter", "stop_token")
    if least > 1:
        assert (
            f"has at least {least} tokens, but a reply may have {least - 1}; allow longer replies"
            in refusal(least - 1, constraint)
        )


@pytest.mark.parametrize("name", ["date", "date-time", "email", "uuid", "ipv4"])
def test_the_shortest_text_is_what_the_format_means(name: str) -> None:
    one = GrammarFilter.json_schema(tokenizer(), {"type": "string", "format": name})
    text = one.completion(b"")
    assert text is not None
    CHECKER.check(json.loads(text), name)


@pytest.mark.parametrize("seed", range(4))
def test_expressions_choices_and_beginnings_keep_it_too(seed: int) -> None:
    cases = {
        r"[a-z ]+: (yes|not [a-z]{9}!)": 4, r"(ab){12}|[0-9]{3,}\.": 4, r"[a-f0-9]{16}-?": 1,
    }  # fmt: skip
    for pattern, spare in cases.items():
        constraint = ConstraintSettings(format="regex", pattern=pattern)
        text, _, _ = write(seed, needed(constraint) + spare, constraint)
        assert re.fullmatch(pattern, text)
    choices = ["a long answer of many words that goes on and on and on", "short one"]
    constraint = ConstraintSettings(format="choices", pattern="\n".join(choices))
    text, _, _ = write(seed, needed(constraint), constraint)
    assert text == choices[1]
    constraint = ConstraintSettings(format="json", begin_with='[{"quick": ["brown", ')
    text, _, _ = write(seed, needed(constraint) + seed, constraint)
    assert json.loads(text)[0]["quick"][0] == "brown"


def test_a_context_that_is_nearly_full() -> None:
    constraint = ConstraintSettings(format="json_schema", pattern=json.dumps(SCHEMAS["uuid"]))
    least = needed(constraint)
    for room in (least - 1, least):
        generator, _ = make(context=len(START) + room - 1)
        reply = stream(generator, START, WARM, StopSettings(max_tokens=0), constraint=constraint, seed=1)
        if room < least:
            with pytest.raises(BadSetting, match=f"the context has room for {room}; shorten the chat"):
                list(reply)
        else:
            json.loads("".join(event.text for event in reply if isinstance(event, Text)))


def test_a_continued_reply_counts_what_is_left() -> None:
    begun = tokenizer().encode('{"it": "12')
    constraint = ConstraintSettings(
        format="json_schema", pattern=json.dumps(one_property(type="string", minLength=4))
    )
    generator, _ = make()
    ids_ = [*START, *begun]
    text = "".join(
        event.text
        for event in stream(
            generator, ids_, WARM, StopSettings(max_tokens=4), constraint=constraint, given=len(begun), seed=3
        )
        if isinstance(event, Text)
    )
    assert len(json.loads('{"it": "12' + text)["it"]) >= 4
    with pytest.raises(BadSetting, match=r"has at least [234] tokens"):
        list(
            stream(
                generator,
                ids_,
                WARM,
                StopSettings(max_tokens=1),
                constraint=constraint,
                given=len(begun),
                seed=3,
            )
        )


def test_bans_hold_before_the_end() -> None:
    """What must not be drawn is not drawn, even where the reply's end needs it: the way to the end goes
    around, or the limit cuts.
    """
    closing = [
        i
        for i in range(tokenizer().vocab_size)
        if b"}" in tokenizer().token_bytes(i) and tokenizer().token_bytes(i) != b"}"
    ]
    constraint = ConstraintSettings(
        format="json_schema", pattern=json.dumps(SCHEMAS["list"]), banned_tokens=tuple(closing)
    )
    for seed in range(3):
        text, _, _ = write(seed, needed(constraint) + seed, constraint)
        assert len(json.loads(text)["it"]) >= 4
    constraint = ConstraintSettings(format="json", banned_strings=("]", "}"))
    text, tokens, reason = write(0, 12, constraint)
    assert (tokens, reason) == (12, "max_tokens")
    assert not set(text) & set("]}")


def test_a_seed_gives_one_reply_with_and_without_drafts() -> None:
    constraint = ConstraintSettings(format="json_schema", pattern=json.dumps(SCHEMAS["list"]))
    least = needed(constraint)
    for seed in range(4):
        plain = write(seed, least + 3, constraint)
        assert plain == write(seed, least + 3, constraint)
        assert plain == write(
            seed, least + 3, constraint, speculation=SpeculationSettings(method="ngram", adaptive=False)
        )


WORDS = [
    *bytes_of('{}[]",:0123456789abit rueflsn.-'),
    b'":',
    b'"}',
    b"}]",
    b'","',
    b"12",
    b"ab",
    b"true",
    b"aaaa",
]


@pytest.mark.slow
@settings(max_examples=40)
@given(st.data())
def test_endings_follow_the_text_forwards_and_back(data: st.DataObject) -> None:
    """After any steps the known ending completes the text, and is that of a set that never went back."""
    words = tokenizer_of(WORDS)
    schema = one_property(
        type="array", items={"anyOf": [{"type": "number"}, {"type": "string", "maxLength": 6}]}, minItems=2
    )
    limit = data.draw(st.integers(20, 60))
    one = GrammarFilter.json_schema(words, schema)
    together, taken = FilterSet([one]), list[int]()
    together.begin()
    for _ in range(30):
        together.remaining = limit - len(taken)
        assert together.needed() <= together.remaining
        if together.ended:
            break
        allowed = ids(together.mask())
        token = data.draw(st.sampled_from(allowed))
        if not together.fits(token):
            forced = ids(together.forced())
            assert len(forced) == 1
            token = forced[0]
            assert together.fits(token)
        together.accept(token)
        taken.append(token)
        if taken and data.draw(st.integers(0, 4)) == 0:
            back = data.draw(st.integers(1, len(taken)))
            together.rollback(back)
            del taken[len(taken) - back :]
    text = b"".join(words.token_bytes(token) for token in taken)
    rest = one.completion(b"")
    assert rest is not None
    Draft202012Validator(schema).validate(json.loads(text + rest))


def test_the_fewest_tokens_among_those_that_can_be_drawn() -> None:
    words = tokenizer_of([*bytes_of("abcd"), b"ab", b"bcd", b"abc"])
    vocabulary = vocabulary_of(words)

    def cut(drawable: list[bytes] | None = None) -> list[bytes] | None:
        mask = (
            None
            if drawable is None
            else vocabulary.mask_of(i for i, text in enumerate(vocabulary.texts) if text in drawable)
        )
        ending = Budget([GrammarFilter.regex(words, "abcd")], mask).ending()
        return None if ending is None else [vocabulary.texts[token] for token in ending.tokens]

    assert cut() in ([b"a", b"bcd"], [b"abc", b"d"])
    assert cut([b"a", b"b", b"c", b"d", b"ab"]) == [b"ab", b"c", b"d"]
    assert cut([b"a", b"b", b"c"]) is None


def test_filters_without_an_end_and_those_that_contradict_each_other_promise_nothing() -> None:
    words = tokenizer_of(bytes_of("abcd"))
    filters: list[Filter] = [GrammarFilter.regex(words, "a[bc]+d"), PrefixFilter(words, "acb")]
    ending = Budget(filters).ending()
    assert ending is not None
    assert ending.data == b"acbd"
    assert Budget(filters[::-1]).ending() == ending
    assert Budget([SelectFilter(words, ["ab"]), SelectFilter(words, ["cd"])]).ending() is None
    assert Budget([]).ending() is None
    assert Budget([]).fits(3, 0)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.text('ab{}[]":,1\\ ', max_size=30), st.integers(0, 30), st.integers(0, 30))
def test_the_completer_goes_anywhere(text: str, first: int, second: int) -> None:
    """Asked about one continuation after another, with the text cut and lengthened between, it says what a
    new one says.
    """
    used = Completer(json_source())
    for cut in (first, second, 30):
        data = text[:cut].encode()
        place = JsonPlace().after(data)
        new = Completer(json_source())
        assert used.shortest(data, place) == new.shortest(data, place)


@pytest.mark.parametrize(
    "cut", [b'{"', b'{"\\u', b'{"a": {"\\', b'["\\u00', '{"caf\u00e9'.encode()[:-1], b'[{"a":1,"']
)
def test_a_search_looks_at_few_places(cut: bytes) -> None:
    """Free names, escapes and half characters offer very many ways that come to the same."""
    one = Completer(json_source())
    one.follow(0, cut)
    looked = []
    allowed = one._allowed
    one._allowed = lambda: looked.append(1) or allowed()  # type: ignore[func-returns-value,method-assign]
    text = cut + (one.shortest(b"", JsonPlace().after(cut)) or b"")
    json.loads(text)
    assert len(looked) < 2000


def test_the_completer_goes_back_with_the_text() -> None:
    one = Completer(regex_source("(ab|cd)*e"))
    one.follow(0, b"abcd")
    assert one.completes(b"abe")
    assert not one.completes(b"ab")
    assert not one.completes(b"be")
    one.follow(3, b"")
    assert one.shortest(b"", JsonPlace()) == b"de"
    one.follow(1, b"bab")
    assert one.shortest(b"c", JsonPlace(), b"de") == b"de"
    assert one.shortest(b"\xff", JsonPlace()) is None
    assert one.shortest(b"x", JsonPlace()) is None


def test_searches_of_a_closed_reply_are_given_up() -> None:
    """One that looks at thousands of places would keep a core busy after Stop."""
    one, closed = Completer(json_source()), threading.Event()
    context = contextvars.copy_context()
    context.run(GIVEN_UP.set, closed)
    cut = b'[{"a":1,"'
    assert context.run(one.shortest, cut, JsonPlace().after(cut)) is not None
    closed.set()
    assert context.run(one.shortest, cut, JsonPlace().after(cut)) is None
    assert one.shortest(cut, JsonPlace().after(cut)) is not None


@pytest.mark.parametrize("seed", range(5))
def test_random_walks_end_within_the_limit(seed: int) -> None:
    draw, together = random.Random(seed), FilterSet([GrammarFilter.json(tokenizer())])
    together.begin()
    vocabulary, taken = vocabulary_of(tokenizer()), list[int]()
    while not together.ended:
        together.remaining = 140 - len(taken)
        mask = together.mask()
        assert mask is not None
        token = draw.choice(ids(mask))
        if not together.fits(token):
            token = ids(together.forced())[0]
        together.accept(token)
        taken.append(token)
        if draw.random() < 0.1 and len(taken) > 3:
            together.rollback(2)
            del taken[-2:]
    assert len(taken) <= 140
    json.loads(b"".join(vocabulary.texts[i] for i in taken))
    assert np.count_nonzero(together.mask()) <= 1


class Counted:
    """Searches for a way to the end, and the places they look at; no search looks at more than `most`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
        self.searches = self.places = 0
        searched, way = Completer._searched, Completer._way
        monkeypatch.setattr(completion, "MOST_STEPS", most)
        monkeypatch.setattr(Completer, "_searched", lambda *rest: self._count(1, 0) or searched(*rest))
        monkeypatch.setattr(Completer, "_way", lambda *rest: self._count(0, 1) or way(*rest))

    def _count(self, searches: int, places: int) -> None:
        self.searches, self.places = self.searches + searches, self.places + places


def written(filters: list[Filter], words: Tokenizer, limit: int, seed: int, most: int = 1000) -> bytes:
    """A reply of random allowed tokens, of which `limit` may be written; no more than `most` are."""
    draw, together, taken = random.Random(seed), FilterSet(filters), list[int]()
    together.begin()
    together.needed()
    while not together.ended and len(taken) < min(limit, most):
        together.remaining = limit - len(taken)
        token = draw.choice(ids(together.mask()))
        if not together.fits(token):
            token = ids(together.forced())[0]
        if token in words.stop_token_ids:
            break
        together.accept(token)
        taken.append(token)
    return text_of(words, taken)


def test_a_search_that_fails_is_not_repeated_for_every_token(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, words = Counted(monkeypatch, 100), tokenizer_of([*bytes_of("abc"), b"abba"])
    written([GrammarFilter.regex(words, "[ab]{9000,}c")], words, 4000, 1, 500)
    assert counted.searches == 6  # after 0, 16, 48, 112, 240 and 496 tokens
    counted.searches = 0
    written([GrammarFilter.regex(words, "[ab]{9000,}c")], words, 200, 1)
    assert counted.searches == 4 + 6  # 100 left, then 50, 25, 12, 6, 3, 1: one of each kind is both
    counted.searches = 0
    written([GrammarFilter.regex(words, "[ab]{9000,}c"), PrefixFilter(words, "a")], words, 4000, 1, 10)
    assert counted.searches == 2  # once for each order of the filters


@pytest.mark.parametrize("limit", [205, 230, 300, 1000])
def test_a_reply_whose_end_is_found_late_is_ended_in_time(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end is found when a few dozen bytes are left to it, whatever the limit: the nearer that is, the
    more often it is looked for.
    """
    Counted(monkeypatch, 100)
    words = tokenizer_of(bytes_of("abc"))
    assert re.fullmatch(
        b"[ab]{200,}c", written([GrammarFilter.regex(words, "[ab]{200,}c")], words, limit, limit)
    )


def test_half_of_a_small_budget_is_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    Counted(monkeypatch, 100)
    words = tokenizer_of([b"a" * 20, b"c"])
    for seed in range(20):
        assert re.fullmatch(b"a{200,}c", written([GrammarFilter.regex(words, "a{200,}c")], words, 12, seed))


def test_the_known_way_is_followed_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, words = Counted(monkeypatch, 2000), tokenizer_of([*bytes_of("abc"), b"ab"])
    together = FilterSet([GrammarFilter.regex(words, "(ab){10}c")])
    together.begin()
    for needed in range(11, 0, -1):
        assert together.needed() == needed
        together.accept(ids(together.forced())[0])
    assert together.ended
    assert counted.searches == 1
    other = FilterSet([GrammarFilter.regex(words, "c|a(b|bb)c")])
    other.begin()
    other.remaining = 20
    assert other.needed() == 1
    assert other.fits(ids(other.mask())[0])
    other.accept(ids(other.mask())[0])
    assert other.needed() == 2
    assert counted.searches == 3  # what a token that was tried leads to is known once it is taken


def test_patience_with_what_is_too_large_wears_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A way to the end is known, and again and again something may begin that is too large to find its
    end.
    """
    counted, words = Counted(monkeypatch, 2000), tokenizer_of(bytes_of("abcx.,"))
    monkeypatch.setattr(completion, "MIN_STEPS", 20)
    text = written([GrammarFilter.regex(words, "((a|b),|x[abc]{900},){60,}[.]")], words, 2000, 1)
    assert re.fullmatch(b"([ab],){60,}[.]", text)
    assert counted.searches > 30
    assert counted.places < 3 * 2000 + 100 * counted.searches
    assert re.search(
        b"x[abc]{30},", written([GrammarFilter.regex(words, "((a|b),|x[abc]{30},){9,}[.]")], words, 400, 1)
    )
