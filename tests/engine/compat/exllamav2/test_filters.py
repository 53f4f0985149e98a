"""Filters of scripts and libraries: `ExLlamaV2Filter`, lm-format-enforcer and Formatron."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace

import pytest
import torch

from engine.compat.exllamav2 import ExLlamaV2Cache, stand_in
from engine.compat.exllamav2.generator import (
    ExLlamaV2BaseGenerator,
    ExLlamaV2Filter,
    ExLlamaV2PrefixFilter,
    ExLlamaV2Sampler,
    ExLlamaV2SelectFilter,
    ExLlamaV2StreamingGenerator,
)
from engine.compat.exllamav2.generator.filters.followed import FollowedFilter, engine_filters
from engine.errors import BadSetting, EngineError, NotSupportedYet

GREEDY = ExLlamaV2Sampler.Settings.greedy()


@pytest.fixture(scope="module")
def cache(model):
    cache = ExLlamaV2Cache(model)
    yield cache
    cache.close()


class Alternating(ExLlamaV2Filter):
    """Tokens of the first set, then of the second, and so on; after `count` of them the reply may end."""

    def __init__(self, model, tokenizer, sets, count, *, ending=False):
        super().__init__(model, tokenizer)
        self.sets, self.count, self.ending = sets, count, ending
        self.begun: list[str] = []
        self.fed: list[int] = []

    def begin(self, prefix_str):
        self.begun.append(prefix_str)
        self.fed = []

    def feed(self, token):
        assert token.shape == (1, 1)
        self.fed.append(int(token[0][0]))

    def next(self):
        done = len(self.fed)
        allowed = self.sets[done % len(self.sets)]
        if self.ending:
            return allowed, (allowed if done == self.count - 1 else [])
        return ([self.tokenizer.eos_token_id] if done >= self.count else list(allowed)), []

    def clone(self, c=None):
        c = super().clone(c)
        c.sets, c.count, c.ending, c.begun, c.fed = self.sets, self.count, self.ending, [], list(self.fed)
        return c


class Masking(ExLlamaV2Filter):
    """The same by logits: even ids, four of them."""

    def begin(self, prefix_str):
        self.number = 0

    def feed(self, token):
        self.number += 1

    def can_mask_logits(self):
        return True

    def prepare_logit_mask(self):
        return True

    def mask_logits(self, logits):
        keep = torch.zeros_like(logits, dtype=torch.bool)
        keep[100::2] = self.number < 4
        keep[self.tokenizer.eos_token_id] = self.number >= 4
        return logits.masked_fill(~keep, float("-inf"))


def written(generator, ids, filters, **more):
    generator.begin_stream_ex(ids, GREEDY, filters=filters, **more)
    tokens, last = [], {"eos": False}
    while not last["eos"]:
        last = generator.stream_ex()
        tokens += last["chunk_token_ids"][0].tolist()
        assert len(tokens) < 50
    return tokens, last["reason"]


@pytest.mark.parametrize("kind", [set, list, tuple])
def test_a_filter_of_a_script(model, cache, tokenizer, kind):
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    first, second = kind(range(100, 120)), kind(range(200, 220))
    own = Alternating(model, tokenizer, (first, second), 6)
    tokens, reason = written(generator, tokenizer.encode("the cat"), [own])
    assert [200 <= token < 220 for token in tokens] == [False, True] * 3
    assert all(100 <= token < 120 for token in tokens[::2])
    assert reason in ("end_filter", "stop_token")
    assert own.begun == [""]
    assert own.fed == tokens
    again, _ = written(generator, tokenizer.encode("the cat"), [own])  # the same object for the next reply
    assert again == tokens
    generator.close()


def test_tokens_that_end_the_reply(model, cache, tokenizer):
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    own = Alternating(model, tokenizer, (set(range(100, 120)),), 3, ending=True)
    tokens, reason = written(generator, tokenizer.encode("the cat"), [own])
    assert (len(tokens), reason) == (3, "end_filter")
    generator.close()


def test_a_filter_that_masks_logits(model, cache, tokenizer):
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    tokens, _ = written(generator, tokenizer.encode("the cat"), [Masking(model, tokenizer)])
    assert len(tokens) == 4
    assert all(token % 2 == 0 and token >= 100 for token in tokens)
    generator.close()


def test_several_filters(model, cache, tokenizer):
    """A token must be allowed by each, and drafting and a prefix filter do not get in the way."""
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    generator.speculative_ngram = True
    own = Alternating(model, tokenizer, (set(range(100, 300)),), 4)
    tokens, _ = written(
        generator, tokenizer.encode("the cat the cat the cat"), [own, Masking(model, tokenizer)]
    )
    assert all(100 <= token < 300 and token % 2 == 0 for token in tokens)
    with pytest.raises(BadSetting, match="twice"):
        generator.begin_stream_ex(tokenizer.encode("a"), GREEDY, filters=[own, own])
    with pytest.raises(BadSetting, match="object, but a filter"):
        generator.begin_stream_ex(tokenizer.encode("a"), GREEDY, filters=[object()])
    generator.close()


def test_going_back(model, tokenizer):
    """Where the engine takes tokens back, the filter begins again and is fed what is left."""
    own = Alternating(model, tokenizer, ({101}, {102}, {103}, {104}), 10)
    followed = FollowedFilter(own, tokenizer.engine_tokenizer)
    followed.begin(b"he")
    for token in (101, 102, 103):
        followed.accept(token)
    with pytest.raises(ValueError, match="not allowed"):
        followed.accept(101)
    followed.rollback(2)
    assert own.fed == [101]
    followed.accept(102)
    assert own.begun == ["he", "he"]
    assert (followed.may_end, followed.ended) == (False, False)


def test_the_filters_of_exllamav2(model, cache, tokenizer):
    generator = ExLlamaV2BaseGenerator(model, cache, tokenizer)
    select = ExLlamaV2SelectFilter(model, tokenizer, ["yes", "no"])
    prefix = ExLlamaV2PrefixFilter(model, tokenizer, ["Sure", "Well"])
    assert isinstance(select, ExLlamaV2Filter)
    assert generator.generate_simple("so, ", GREEDY, 20, completion_only=True, filters=[select]) in (
        "yes",
        "no",
    )
    text = generator.generate_simple("so, ", GREEDY, 6, completion_only=True, filters=[prefix.clone()])
    assert text.startswith(("Sure", "Well"))
    by_hand = select.clone()
    by_hand.begin("")
    while True:
        allowed, ends = by_hand.next()
        if set(allowed) == set(ends):
            break
        by_hand.feed(torch.tensor([[max(set(allowed) - set(ends))]]))
    assert by_hand.sequence_str in ("yes", "no")
    assert engine_filters([select, select.clone()], tokenizer.engine_tokenizer)[0] is select.wrapped
    generator.close()


def test_a_filter_with_half_of_the_methods_is_refused(tokenizer):
    for half in (SimpleNamespace(mask=None), SimpleNamespace(begin=None, feed=None)):
        with pytest.raises(BadSetting, match="a filter with begin, feed and next was expected"):
            engine_filters([half], tokenizer.engine_tokenizer)


def test_a_filter_without_methods_says_what_it_lacks(model, cache, tokenizer):
    generator = ExLlamaV2BaseGenerator(model, cache, tokenizer)
    with pytest.raises(NotImplementedError, match="ExLlamaV2Filter must define begin"):
        generator.generate_simple("a", GREEDY, 2, filters=[ExLlamaV2Filter(model, tokenizer)])
    generator.close()


class Slow(ExLlamaV2Filter):
    """A filter that counts what is asked of it."""

    asked = 0

    def next(self):
        self.asked += 1
        return {self.asked}, []

    def prepare_logit_mask(self):
        self.asked += 1
        return True


def test_what_a_thread_computes_is_given_once(model, tokenizer):
    slow = Slow(model, tokenizer)
    assert not slow.use_background_worker()
    with ThreadPoolExecutor(1) as pool:
        slow.background_next(pool)
        assert slow.get_next() == ({1}, [])
        slow.background_drop()  # nothing waits
        assert slow.get_next() == ({2}, [])
        slow.background_prepare_logit_mask(pool)
        assert slow.get_next(mask=True) is True
        assert (slow.get_next(mask=True), slow.asked) == (True, 4)
        slow.background_next(pool)
        slow.background_drop()
        assert (slow.get_next(), slow.background_result) == (({6}, []), None)


@pytest.mark.parametrize(
    ("method", "given"),
    [("feed", (None,)), ("next", ()), ("prepare_logit_mask", ()), ("mask_logits", (None,))],
)
def test_a_method_that_is_not_defined_names_itself(model, tokenizer, method, given):
    bare = ExLlamaV2Filter(model, tokenizer)
    assert not bare.can_mask_logits()
    with pytest.raises(NotSupportedYet, match=f"ExLlamaV2Filter must define {method}"):
        getattr(bare, method)(*given)


@pytest.fixture
def standing_in(monkeypatch):
    """This package under the name `exllamav2`, and no longer after the test."""
    before = set(sys.modules)
    stand_in()
    yield
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("exllamav2", "lmformatenforcer", "formatron"):
            del sys.modules[name]


def test_standing_in(standing_in):
    import exllamav2
    from exllamav2.generator.base import ExLlamaV2Filter as found
    from exllamav2.generator.filters import ExLlamaV2PrefixFilter as prefix

    assert exllamav2.ExLlamaV2Cache is ExLlamaV2Cache
    assert (found, prefix) == (ExLlamaV2Filter, ExLlamaV2PrefixFilter)
    sys.modules["exllamav2"] = ModuleType("exllamav2")
    with pytest.raises(EngineError, match="imported already"):
        stand_in()


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string", "maxLength": 5}, "b": {"type": "boolean"}},
    "required": ["a", "b"],
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_lm_format_enforcer(model, cache, tokenizer, standing_in):
    pytest.importorskip("lmformatenforcer")
    from lmformatenforcer import JsonSchemaParser
    from lmformatenforcer.integrations.exllamav2 import (
        ExLlamaV2TokenEnforcerFilter,
        build_token_enforcer_tokenizer_data,
    )

    data = build_token_enforcer_tokenizer_data(tokenizer)
    generator = ExLlamaV2BaseGenerator(model, cache, tokenizer)
    for kind in (data, tokenizer):
        own = ExLlamaV2TokenEnforcerFilter(JsonSchemaParser(SCHEMA), kind)
        prefix = ExLlamaV2PrefixFilter(model, tokenizer, "{")
        settings = ExLlamaV2Sampler.Settings(token_repetition_penalty=1.0)
        text = generator.generate_simple(
            "JSON: ", settings, 200, 7, completion_only=True, filters=[own, prefix], filter_prefer_eos=True
        )
        found = json.loads(text, strict=False)  # control characters count as text there
        assert (type(found["a"]), type(found["b"])) == (str, bool)
    generator.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_formatron(model, cache, tokenizer, standing_in):
    try:
        from formatron.formatter import FormatterBuilder
    except (ImportError, AttributeError) as error:  # its releases fail with some releases of pydantic
        pytest.skip(f"no Formatron that can be imported: {error}")
    from formatron.integrations.exllamav2 import create_formatter_filter

    builder = FormatterBuilder()
    builder.append_str(f"x = {builder.regex('[1-5]{3}', capture_name='digits')};")
    own = create_formatter_filter(model, tokenizer, builder)
    generator = ExLlamaV2BaseGenerator(model, cache, tokenizer)
    text = generator.generate_simple("so ", GREEDY, 40, completion_only=True, filters=[own])
    assert text.startswith("x = ")
    assert text.endswith(";")
    assert len(text) == 8
    assert own.formatter_captures["digits"].group() == text[4:7]
    generator.close()
