"""Token healing and filters in the loop: what is drawn, what is shown, what ends the reply."""

from __future__ import annotations

import itertools
import json
import re
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from engine.constraint.grammar import GrammarFilter
from engine.constraint.prefix import PrefixFilter
from engine.constraint.select import SelectFilter
from engine.core import Done, Text
from engine.errors import BadSetting, NothingAllowed
from engine.settings import ConstraintSettings, SamplerSettings, SpeculationSettings, StopSettings
from tests.engine.generator.fakes import all_steps, make, random_logits, stepping, stream, tokenizer

GREEDY = SamplerSettings(temperature=0.0)
WARM = SamplerSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
START = tokenizer().encode("the quick ")


def write(ids, sampler=GREEDY, count=30, **more):
    generator, _ = make()
    events = list(stream(generator, ids, sampler, StopSettings(max_tokens=count), **more))
    generator.cache.table.check()
    assert isinstance(events[-1], Done)
    tokens = [token for event in events if isinstance(event, Text) for token in event.tokens]
    text = "".join(event.text for event in events if isinstance(event, Text))
    assert "".join(token.text for token in tokens) == text
    return text, tokens, events[-1]


def test_the_healed_token_begins_with_the_one_it_replaces():
    cut = tokenizer().encode("the quick bro")
    removed = tokenizer().token_bytes(cut[-1])
    text, tokens, done = write(cut, heal=True)
    healed = tokenizer().token_bytes(tokens[0].id)
    assert tokens[0].healed
    assert not any(token.healed for token in tokens[1:])
    assert healed.startswith(removed)
    ordinary = [i for i in range(tokenizer().vocab_size) if i not in tokenizer().special_ids]
    allowed = [i for i in ordinary if tokenizer().token_bytes(i).startswith(removed)]
    best = max(allowed, key=lambda i: random_logits(cut[:-1])[i])
    assert tokens[0].id == best
    whole = tokenizer().decode([*cut[:-1], *(token.id for token in tokens)])
    assert whole == tokenizer().decode(cut) + text
    assert done.stats.prompt_tokens == len(cut)
    assert done.stats.new_tokens == len(tokens) == 30


def test_no_healing_of_control_tokens_or_of_a_single_token():
    special = next(iter(tokenizer().special_ids))
    for ids in ([*START, special], START[:1]):
        _, tokens, _ = write(ids, heal=True, count=5)
        assert not any(token.healed for token in tokens)
        assert [token.id for token in tokens] == [token.id for token in write(ids, count=5)[1]]


@pytest.mark.parametrize("text", ["a fox 🦊", "naïve", "漢字"])
def test_healing_in_the_middle_of_a_character(text):
    data = text.encode()
    alphabet = {tokenizer().token_bytes(i): i for i in range(tokenizer().vocab_size)}
    ids = [alphabet[bytes([byte])] for byte in data[:-1]]
    shown, tokens, _ = write(ids, heal=True, count=4)
    everything = b"".join(tokenizer().token_bytes(i) for i in [*ids[:-1], *(token.id for token in tokens)])
    assert everything.startswith(data[:-1])
    assert tokenizer().decode(ids[:-1]).rstrip("\ufffd") + shown.lstrip("\ufffd") != ""


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("method", ["none", "ngram"])
def test_filters_force_their_form(seed, method):
    def forced(one, count=200):
        return write(
            START,
            WARM,
            count,
            seed=seed,
            filters=[one],
            speculation=SpeculationSettings(method=method, adaptive=False),
        )

    text, _, done = forced(GrammarFilter.regex(tokenizer(), "[a-c]{2,9}-[0-9]{3}"))
    assert re.fullmatch("[a-c]{2,9}-[0-9]{3}", text)
    assert done.reason == "end_filter"
    text, _, done = forced(SelectFilter(tokenizer(), ["yes", "no", "not at all"]))
    assert text in ("yes", "no", "not at all")
    assert done.reason in ("end_filter", "stop_token")
    text, _, _ = forced(PrefixFilter(tokenizer(), ["Sure:", "No:"]), 12)
    assert text.startswith(("Sure:", "No:"))
    schema = {
        "type": "object",
        "properties": {"a": {"enum": ["x", "y"]}, "n": {"type": "integer", "maximum": 99, "minimum": 0}},
    }
    schema |= {"required": ["a", "n"], "additionalProperties": False}
    text, _, done = forced(GrammarFilter.json_schema(tokenizer(), schema))
    assert json.loads(text)["a"] in "xy"
    assert 0 <= json.loads(text)["n"] <= 99
    assert done.reason in ("end_filter", "stop_token")


def test_several_filters_hold_at_once():
    filters = [PrefixFilter(tokenizer(), ["ab"]), GrammarFilter.regex(tokenizer(), "[a-d]+x")]
    text, _, _ = write(START, WARM, 100, seed=1, filters=filters)
    assert re.fullmatch("ab[a-d]*x?", text)


def test_healing_with_a_filter():
    """The filter is about the reply: the bytes that the healed token repeats stand before it."""
    cut = tokenizer().encode("the quick bro")
    for seed in range(6):
        text, tokens, _ = write(
            cut, WARM, 60, seed=seed, heal=True, filters=[GrammarFilter.regex(tokenizer(), "[a-z]{3,8}!")]
        )
        assert re.fullmatch("[a-z]{3,8}!", text)
        assert tokens[0].healed
        text, _, _ = write(
            cut, WARM, 60, seed=seed, heal=True, filters=[SelectFilter(tokenizer(), ["wn dog", "nze age"])]
        )
        assert text in ("wn dog", "nze age")


@pytest.mark.parametrize("heal", [False, True])
def test_a_reply_that_is_continued_goes_on_in_its_form(heal):
    state = tokenizer().encode("the ab")
    assert len(state) > 1
    constraint = ConstraintSettings(format="regex", pattern="the abc[0-9]{2}")
    text, _, _ = write([*START, *state], WARM, 50, seed=2, constraint=constraint, given=len(state), heal=heal)
    assert re.fullmatch("c[0-9]{2}", text)
    generator, _ = make()
    with pytest.raises(BadSetting, match="does not match the format"):
        list(
            stream(
                generator,
                [*START, *tokenizer().encode("xyz")],
                constraint=constraint,
                given=len(tokenizer().encode("xyz")),
            )
        )
    table = generator.cache.table
    assert table.free + table.idle == table.page_count


def test_a_form_without_a_limit_of_tokens_is_written_as_with_one_far_away():
    constraint = ConstraintSettings(format="regex", pattern="[a-z ]{3,40}!")
    texts = [write(START, WARM, count, seed=4, constraint=constraint)[0] for count in (0, 900)]
    assert texts[0] == texts[1]


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("seed", range(12))
def test_json_comes_to_its_end_before_the_limit_of_tokens(seed):
    tree = {
        "$defs": {
            "t": {
                "type": "object",
                "properties": {"label": {"type": "string"}, "children": {"type": "array", "items": {}}},
            }
        }
    }
    tree["$defs"]["t"]["properties"]["children"]["items"] = {"$ref": "#/$defs/t"}
    tree["$defs"]["t"] |= {"required": ["label", "children"], "additionalProperties": False}
    for constraint in (
        ConstraintSettings(format="json"),
        ConstraintSettings(format="json_schema", pattern=json.dumps(tree | {"$ref": "#/$defs/t"})),
        ConstraintSettings(
            format="json_schema", pattern='{"type": "array", "items": {"type": "number"}, "minItems": 3}'
        ),
    ):
        text, tokens, done = write(START, WARM, 160, seed=seed, constraint=constraint)
        json.loads(text)
        assert done.reason in ("end_filter", "stop_token")
        assert len(tokens) <= 160


def test_prefer_the_end():
    one = GrammarFilter.regex(tokenizer(), "[a-z]+")
    results = all_steps(stepping(make()[0], START, WARM, filters=[one], prefer_end=True, seed=3))
    text = "".join(result["chunk"] for result in results)
    assert re.fullmatch("[a-z]+", text)
    assert len(results) == 1
    assert results[-1]["reason"] == "end_filter"


def test_bias_and_token_lists():
    best = int(random_logits(START).argmax())
    _, tokens, _ = write(START, count=1, constraint=ConstraintSettings(banned_tokens=(best,)))
    assert tokens[0].id != best
    _, tokens, _ = write(START, count=1, constraint=ConstraintSettings(logit_bias=("333 = 100",)))
    assert tokens[0].id == 333
    _, tokens, _ = write(
        START, WARM, count=20, seed=1, constraint=ConstraintSettings(allowed_tokens=(40, 41))
    )
    assert {token.id for token in tokens} <= {40, 41}
    for outside in (tokenizer().vocab_size, 10**6):
        with pytest.raises(BadSetting, match="ids go from 0"):
            write(START, constraint=ConstraintSettings(allowed_tokens=(outside,)))


def test_probabilities_and_alternatives():
    _, tokens, _ = write(START, WARM, count=6, seed=3)
    assert all(token.alternatives == () for token in tokens)
    from engine.settings import OutputSettings

    _, tokens, _ = write(START, WARM, count=6, seed=3, output=OutputSettings(alternatives=4))
    sequence = list(START)
    for token in tokens:
        logits = random_logits(sequence).astype(np.float64)
        share = np.exp(logits - logits.max())
        share /= share.sum()
        assert token.raw_probability == pytest.approx(share[token.id], rel=1e-4)
        assert [other.id for other in token.alternatives] == np.argsort(-share, kind="stable")[:4].tolist()
        assert [other.raw_probability for other in token.alternatives] == pytest.approx(
            np.sort(share)[::-1][:4], rel=1e-4
        )
        assert token.entropy == pytest.approx(-(share * np.log(share)).sum(), rel=1e-4)
        assert token.seconds > 0
        sequence.append(token.id)


def test_limits_of_time_and_of_loops_and_the_kept_stop(monkeypatch):
    generator, _ = make(
        lambda sequence: np.eye(tokenizer().vocab_size, dtype=np.float32)[60 + len(sequence) % 3] * 30
    )
    stops = StopSettings(max_tokens=0, loop_window=24, loop_repeats=4)
    done = list(stream(generator, START, GREEDY, stops))[-1]
    assert done.reason == "loop"
    assert done.stats.new_tokens == 24
    assert done.trigger
    with monkeypatch.context() as patched:  # each token comes a second after the one before
        clock = SimpleNamespace(perf_counter=map(float, itertools.count(1)).__next__)
        patched.setattr("engine.generator.sequence.time", clock)
        done = list(stream(generator, START, GREEDY, StopSettings(max_tokens=0, time_limit=5.0)))[-1]
    assert (done.reason, done.stats.new_tokens) == ("time_limit", 6)
    piece = tokenizer().piece(60)
    events = list(
        stream(generator, START, GREEDY, StopSettings(stop_regex=f"{re.escape(piece)}", keep_stop=True))
    )
    text = "".join(event.text for event in events if isinstance(event, Text))
    assert (events[-1].reason, events[-1].trigger) == ("stop_regex", piece)
    assert text.endswith(piece)


def test_min_tokens_and_stream_interval():
    from engine.settings import OutputSettings

    eos = tokenizer().eos_token_id

    def insists(sequence):
        logits = random_logits(sequence).copy()
        logits[eos] = 50.0
        return logits

    generator, _ = make(insists)
    done = list(stream(generator, START, GREEDY, StopSettings(min_tokens=7)))[-1]
    assert (done.reason, done.stats.new_tokens) == ("stop_token", 8)
    generator, _ = make()
    events = list(
        stream(
            generator,
            START,
            GREEDY,
            StopSettings(max_tokens=10),
            output=OutputSettings(alternatives=0, stream_interval=4),
        )
    )
    assert [len(event.tokens) for event in events if isinstance(event, Text)] == [4, 4, 2]


def test_filters_that_leave_no_way_on_are_no_end():
    together = [PrefixFilter(tokenizer(), "the quick"), SelectFilter(tokenizer(), ["the dog", "brown"])]
    with pytest.raises(NothingAllowed, match="contradict"):
        write(START, filters=together)


def test_a_fulfilled_format_ends_a_reply_before_its_least_tokens():
    """Both allow only their end after "ab", which neither of them knows by itself."""
    generator, _ = make()
    together = [GrammarFilter.regex(tokenizer(), "ab|abc"), GrammarFilter.regex(tokenizer(), "ab|abd")]
    events = list(
        stream(generator, START, GREEDY, StopSettings(max_tokens=9, min_tokens=5), filters=together)
    )
    assert "".join(event.text for event in events if isinstance(event, Text)) == "ab"
    assert events[-1].reason == "end_filter"


class Open:
    """Allows everything; `asked` is set once the next mask is asked for."""

    may_end, ended = True, False

    def __init__(self):
        self.asked = threading.Event()

    def begin(self, prefix):
        self.asked.clear()

    def mask(self):
        self.asked.set()

    def accept(self, token):
        self.asked.clear()

    def rollback(self, tokens):
        self.asked.clear()


def test_each_mask_is_worked_out_while_the_model_runs():
    generator, model = make(rows=4)
    one, missing = Open(), []
    model.program.before_run = lambda: one.asked.wait(5) or missing.append(len(model.program.ran))
    events = list(stream(generator, START * 3, GREEDY, StopSettings(max_tokens=5), filters=[one]))
    assert events[-1].stats.new_tokens == 5
    assert missing == []
