"""What programs over ExLlamaV2 do: text-generation-webui, tabbyAPI, ExUI and LangChain."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time

import pytest
import torch

from engine.compat.exllamav2 import (
    ExLlamaV2,
    ExLlamaV2Cache,
    ExLlamaV2Cache_Q4,
    ExLlamaV2Config,
    ExLlamaV2Tokenizer,
)
from engine.compat.exllamav2.generator import (
    ExLlamaV2BaseGenerator,
    ExLlamaV2DynamicGenerator,
    ExLlamaV2DynamicGeneratorAsync,
    ExLlamaV2DynamicJobAsync,
    ExLlamaV2PrefixFilter,
    ExLlamaV2Sampler,
    ExLlamaV2SelectFilter,
    ExLlamaV2StreamingGenerator,
)
from engine.errors import BadSetting

Settings = ExLlamaV2Sampler.Settings
GREEDY = Settings.greedy()


@pytest.fixture(scope="module")
def cache(model):
    cache = ExLlamaV2Cache(model, max_seq_len=512)
    yield cache
    cache.close()


def test_text_generation_webui_sets_experts_for_every_model(tiny_file):
    config = ExLlamaV2Config(tiny_file)
    config.num_experts_per_token = 2
    model = ExLlamaV2(config)
    model.load()
    assert model.loaded
    model.unload()


def test_tabby(model, cache, tokenizer):
    class Own(ExLlamaV2Tokenizer):
        """A subclass, so that nothing is left of what tabbyAPI writes to the class."""

    Own.extended_id_to_piece, Own.extended_piece_to_id = {}, {}
    tokenizer = Own(model.config)
    assert tokenizer.extended_id_to_piece[2] == "<|im_end|>"
    model.forward(torch.zeros((1, 64), dtype=torch.long), cache=cache, preprocess_only=True)
    special = [tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token, tokenizer.unk_token]
    assert special == ["<|endoftext|>", "<|im_end|>", "<|im_end|>", ""]
    settings = Settings.greedy()
    settings.disallow_tokens(tokenizer, tokenizer.eos_token_id)
    assert settings.token_bias.shape == (-(-tokenizer.config.vocab_size // 32) * 32,)
    settings.token_bias[40] = 100.0

    async def written():
        generator = ExLlamaV2DynamicGeneratorAsync(model=model, cache=cache, tokenizer=tokenizer)
        inner = generator.generator
        assert (inner.max_batch_size > 1, inner.current_loras, inner.max_total_tokens) == (True, [], 512)
        job = ExLlamaV2DynamicJobAsync(
            generator, input_ids=[tokenizer.encode("the cat", embeddings=[])], max_new_tokens=4,
            gen_settings=settings, filters=[], filter_prefer_eos=False, banned_strings=[], embeddings=[],
        )  # fmt: skip
        ids = [id async for result in job for id in result.get("token_ids", torch.zeros((1, 0)))[0].tolist()]
        await generator.close()
        return ids, job.job.is_finished

    assert asyncio.run(written()) == ([40] * 4, True)


def test_exui(model, tokenizer):
    model.config.max_attn_size = 256**2
    cache = ExLlamaV2Cache_Q4(model, max_seq_len=256)
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    settings = Settings.greedy()
    settings.filters = [ExLlamaV2SelectFilter(model, tokenizer, ["User:", "Bot:"])]
    generator.begin_stream_ex(
        tokenizer.encode("the"), settings, filters=settings.filters, filter_prefer_eos=settings.filters
    )
    text, eos = "", False
    while not eos:
        chunk, eos, _ = generator.stream()
        text += chunk
    assert text in ("User:", "Bot:")
    cache.close()


def test_langchain(tokenizer):
    settings = Settings()
    settings.stop_sequences = ["stop"]
    with pytest.raises(TypeError, match="stop_sequences"):
        Settings(stop_sequences=["stop"])
    settings.disallow_tokens(tokenizer, [1, 2])
    assert settings.tables(tokenizer.engine_tokenizer).banned == {1, 2}


def test_filters_of_the_settings(model, cache, tokenizer):
    settings = Settings.greedy(filters=[ExLlamaV2PrefixFilter(model, tokenizer, "{")])
    copy = settings.clone()
    assert copy.filters == settings.filters
    assert copy.filters is not settings.filters
    dynamic = ExLlamaV2DynamicGenerator(model, cache, tokenizer)
    base = ExLlamaV2BaseGenerator(model, cache, tokenizer)
    texts = [
        dynamic.generate("the", 4, gen_settings=settings, completion_only=True),
        base.generate_simple("the", settings, 4, completion_only=True),
    ]
    assert [text[0] for text in texts] == ["{", "{"]
    with pytest.raises(BadSetting, match="share a filter"):
        dynamic.generate(["the", "a"], 4, gen_settings=settings)


def test_allowed_tokens(tokenizer):
    settings, a = Settings(), tokenizer.single_id("a")
    settings.allow_tokens(tokenizer, ["a", 7])
    tables = settings.tables(tokenizer.engine_tokenizer)
    assert (tables.allowed, tables.banned, tables.bias) == ({a, 7}, frozenset(), ())
    settings.allow_tokens(tokenizer, [5])
    assert settings.tables(tokenizer.engine_tokenizer).allowed == {a, 5, 7}
    other = Settings()
    other.disallow_tokens(tokenizer, [5, 6])
    other.allow_tokens(tokenizer, [5])
    tables = other.tables(tokenizer.engine_tokenizer)
    assert (tables.allowed, tables.banned) == (None, {6})
    with pytest.raises(ValueError, match="'one two three' is not one token"):
        settings.allow_tokens(tokenizer, ["one two three"])


def test_seeds(model, cache, tokenizer):
    generator = ExLlamaV2BaseGenerator(model, cache, tokenizer)
    wild = Settings(temperature=1.5, top_k=0, top_p=0.0)
    rows = generator.generate_simple(["the cat"] * 2, wild, 8, seed=7)
    assert rows[0] != rows[1]
    assert rows == [generator.generate_simple("the cat", wild, 8, seed=7 + row) for row in range(2)]
    texts = []
    for _ in range(2):
        random.seed(3)  # as scripts do that give no seed
        texts.append(generator.generate_simple("the cat", wild, 8))
    assert texts[0] == texts[1]


def test_a_prompt_that_is_too_long_loses_its_beginning(model, cache, tokenizer):
    generator = ExLlamaV2BaseGenerator(model, cache, tokenizer)
    long = "the cat and the dog " * 200
    end = tokenizer.decode(tokenizer.encode(long)[0, -(512 - 6) :])
    assert generator.generate_simple(long, GREEDY, 6, completion_only=True) == generator.generate_simple(
        end, GREEDY, 6, completion_only=True
    )


def test_a_mask_that_is_added(model, tokenizer):
    cache = ExLlamaV2Cache(model, batch_size=2, max_seq_len=256)
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    ids, offsets = tokenizer.encode(["the dog", "the quick brown fox"], return_offsets=True)
    mask = torch.where(tokenizer.padding_mask(ids), 0.0, -65504.0)
    replies = []
    for given, scale, more in ((ids, 1.0, (mask, offsets)), (tokenizer.encode("the dog"), None, ())):
        generator.begin_stream(given, Settings.greedy(cfg_scale=scale), False, None, *more)
        replies.append([generator.stream()[2].tolist() for _ in range(4)])
    assert replies[0] == replies[1]
    cache.close()


def test_the_trie_of_tokens(tokenizer):
    place = tokenizer.get_char_trie()
    for char in tokenizer.id_to_piece[40]:
        place = place.children[char]
    assert 40 in place.leaf
    tokenizer = ExLlamaV2Tokenizer(tokenizer.config)
    tokenizer.pad_token_id = 0
    assert tokenizer.encode(["a", "the quick brown fox"])[0, 0] == 0


def helper_threads():
    return {thread for thread in threading.enumerate() if thread.name.startswith("cpu-kernel")}


def test_a_model_that_nobody_unloads_ends_its_threads(tiny_file):
    before = helper_threads()
    model = ExLlamaV2(ExLlamaV2Config(tiny_file))
    model.load()
    if model.model.backend.name != "cpu":
        pytest.skip("the threads are the CPU's")
    model.forward(torch.tensor([[40, 41]]))
    cache = ExLlamaV2Cache(model, max_seq_len=256)
    model.forward(torch.tensor([[40, 41]]), cache)
    del model, cache
    gc.collect()
    end = time.monotonic() + 20
    while helper_threads() - before and time.monotonic() < end:
        time.sleep(0.01)
    assert not helper_threads() - before
