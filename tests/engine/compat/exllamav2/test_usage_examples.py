"""The seeds' usage examples, with another import line and nothing else changed; and what else such scripts
lean on.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from engine.compat.exllamav2 import (
    ExLlamaV2,
    ExLlamaV2Cache,
    ExLlamaV2Cache_8bit,
    ExLlamaV2Cache_Q4,
    ExLlamaV2Cache_Q6,
    ExLlamaV2Cache_Q8,
    ExLlamaV2Config,
    ExLlamaV2Lora,
    ExLlamaV2Tokenizer,
)
from engine.compat.exllamav2.generator import (
    ExLlamaV2PrefixFilter,
    ExLlamaV2Sampler,
    ExLlamaV2SelectFilter,
    ExLlamaV2StreamingGenerator,
)
from engine.compat.exllamav2.settings import BREAKERS
from engine.errors import ModelNotFound, NotSupportedYet
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.models.lora.test_lora import write_adapter
from tests.engine.text.tokenizer.vocabularies import sentencepiece_metadata
from tests.tiny import write_gguf

GREEDY = ExLlamaV2Sampler.Settings.greedy()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A tiny model; everything below treats it as the examples treat "/path/to/model"."""
    return write_gguf(tmp_path_factory.mktemp("exllamav2") / "tiny.gguf")


@pytest.fixture
def parts(folder):
    config = ExLlamaV2Config(str(folder))
    config.prepare()
    model = ExLlamaV2(config)
    cache = ExLlamaV2Cache(model, lazy=True)
    model.load_autosplit(cache)
    tokenizer = ExLlamaV2Tokenizer(config)
    yield model, cache, tokenizer
    cache.close()
    model.unload()


def test_the_vocabulary_is_searched_only_for_dry_and_xtc(monkeypatch):
    searched = []
    monkeypatch.setattr(
        "engine.compat.exllamav2.settings.ids_containing",
        lambda _, texts: searched.append(tuple(texts)) or frozenset({7}),
    )
    settings, asked = ExLlamaV2Sampler.Settings(), SimpleNamespace(vocab_size=10)
    tables = settings.tables(asked)
    assert (searched, tables.dry_breakers, tables.xtc_protected) == ([], frozenset(), frozenset())
    settings.dry_multiplier = 0.8
    assert settings.tables(asked).dry_breakers == {7}
    assert searched == [BREAKERS]
    settings.xtc_probability = 0.5
    assert settings.tables(asked).xtc_protected == {7}
    assert searched == [BREAKERS, BREAKERS, ("\\n",)]
    settings.dry_sequence_breakers, settings.xtc_ignore_tokens = {3}, frozenset({4})
    tables = settings.tables(asked)
    assert (len(searched), tables.dry_breakers, tables.xtc_protected) == (3, {3}, {4})


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_a_bias_over_the_vocabulary(kind):
    settings = ExLlamaV2Sampler.Settings(token_bias=kind([0.0, -1.5, 0.0, float("-inf"), 2.0, 9.0]))
    tables = settings.tables(SimpleNamespace(vocab_size=5))
    assert (tables.bias, tables.banned, tables.allowed) == (((1, -1.5), (4, 2.0)), {3}, None)


def test_basic_initialization(folder):
    config = ExLlamaV2Config(str(folder))
    config.prepare()

    model = ExLlamaV2(config)
    cache = ExLlamaV2Cache(model, lazy=True)
    model.load_autosplit(cache)

    tokenizer = ExLlamaV2Tokenizer(config)

    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)

    generator.close()
    cache.close()
    model.unload()


def test_with_speculative_decoding(folder):
    # Main model
    config = ExLlamaV2Config(str(folder))
    config.prepare()
    model = ExLlamaV2(config)
    cache = ExLlamaV2Cache(model, lazy=True)
    model.load_autosplit(cache)

    # Draft model
    draft_config = ExLlamaV2Config(str(folder))
    draft_config.prepare()
    draft_model = ExLlamaV2(draft_config)
    draft_cache = ExLlamaV2Cache(draft_model, lazy=True)
    draft_model.load_autosplit(draft_cache)

    tokenizer = ExLlamaV2Tokenizer(config)

    generator = ExLlamaV2StreamingGenerator(
        model, cache, tokenizer,
        draft_model=draft_model,
        draft_cache=draft_cache,
        num_speculative_tokens=5,
    )  # fmt: skip

    input_ids = tokenizer.encode("the quick brown fox", add_bos=True)
    generator.begin_stream_ex(input_ids, GREEDY)
    drafted = [generator.stream_ex()["chunk_token_ids"] for _ in range(30)]
    generator.close()
    alone = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    alone.begin_stream_ex(input_ids, GREEDY)
    plain = [alone.stream_ex()["chunk_token_ids"] for _ in range(30)]
    assert torch.cat(drafted, dim=-1).tolist() == torch.cat(plain, dim=-1).tolist()
    _, _, tokens, proposed, accepted = generator.get_sd_stats()
    assert (tokens, alone.get_sd_stats()[3]) == (30, 0)
    assert accepted <= proposed
    alone.close()
    for part in (cache, draft_cache):
        part.close()


def test_complete_streaming_chat_loop(parts, capsys):
    model, cache, tokenizer = parts

    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    generator.set_stop_conditions([tokenizer.eos_token_id])

    settings = ExLlamaV2Sampler.Settings()
    settings.temperature = 0.7
    settings.top_p = 0.9

    prompt = "User: Hello! How are you?\nAssistant:"
    input_ids = tokenizer.encode(prompt, add_bos=True)

    generator.begin_stream_ex(input_ids, settings)

    chunks = 0
    while True:
        result = generator.stream_ex()
        print(result["chunk"], end="", flush=True)
        chunks += 1
        if result["eos"] or chunks == 50:
            break
    print()

    assert capsys.readouterr().out.strip("\n")
    generator.close()


def test_token_healing(parts):
    model, cache, tokenizer = parts
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    input_ids = tokenizer.encode("the quick bro")
    generator.begin_stream_ex(input_ids, GREEDY, token_healing=True)
    result = generator.stream_ex()
    while result["chunk_token_ids"].shape[-1] == 0:
        result = generator.stream_ex()
    (removed,) = tokenizer.decode(input_ids[:, -1:])
    assert tokenizer.get_id_to_piece_list()[result["healed_token_id"]].startswith(removed)
    text = generator.generate_simple("the quick bro", GREEDY, 8, token_healing=True)
    assert text.startswith("the quick bro")
    generator.close()


def test_classifier_free_guidance(parts):
    model, cache, tokenizer = parts
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    positive, negative = "Answer in one short word: the quick brown fox", "the dog"
    input_ids, offsets = tokenizer.encode(
        [positive, negative], encode_special_tokens=True, return_offsets=True
    )
    mask = tokenizer.padding_mask(input_ids)
    texts = []
    for scale in (1.0, 4.0):
        settings = GREEDY.clone()
        settings.cfg_scale = scale
        generator.begin_stream_ex(input_ids, settings, input_mask=mask, position_offsets=offsets)
        texts.append([generator.stream_ex()["chunk_token_ids"].tolist() for _ in range(12)])
    generator.begin_stream_ex(tokenizer.encode(positive), GREEDY)
    plain = [generator.stream_ex()["chunk_token_ids"].tolist() for _ in range(12)]
    assert texts[0] == plain
    assert texts[1] != plain
    generator.close()


def test_everything_a_result_holds(parts):
    model, cache, tokenizer = parts
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    settings = ExLlamaV2Sampler.Settings(top_k=0, top_p=1.0, token_repetition_penalty=1.0)
    ids = tokenizer.encode("the cat")
    generator.begin_stream_ex(
        ids, settings, return_probabilities=True, return_top_tokens=3, return_logits=True, seed=1
    )
    tokens, probabilities = ids.tolist()[0], []
    for _ in range(10):
        result = generator.stream_ex()
        n = result["chunk_token_ids"].shape[1]
        assert result["logits"].shape == (1, n, model.model.config.vocab_size)
        assert result["top_tokens"].shape == result["top_probs"].shape == (1, n, 3)
        for i in range(n):
            share = torch.softmax(result["logits"][0, i][: tokenizer.get_vocab_size()] / 0.8, dim=-1)
            probabilities.append(float(share[result["chunk_token_ids"][0, i]]))
            assert float(result["probs"][0, i]) == pytest.approx(probabilities[-1], rel=1e-3)
        tokens += result["chunk_token_ids"][0].tolist()
    assert len(tokens) >= ids.shape[1] + 5
    generator.close()


def test_settings_and_filters(parts):
    model, cache, tokenizer = parts
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    select = ExLlamaV2SelectFilter(model, tokenizer, ["yes", "no"], case_insensitive=False)
    assert generator.generate_simple("well, ", GREEDY, 30, completion_only=True, filters=[select]) in (
        "yes",
        "no",
    )
    prefix = ExLlamaV2PrefixFilter(model, tokenizer, "Sure")
    assert generator.generate_simple("well, ", GREEDY, 6, completion_only=True, filters=[prefix]).startswith(
        "Sure"
    )
    settings = ExLlamaV2Sampler.Settings()
    settings.allow_tokens(tokenizer, [40, 41, 42])
    other = settings.clone()
    other.disallow_tokens(tokenizer, [41])
    generator.begin_stream_ex(tokenizer.encode("x"), other, max_new_tokens=12)
    ids = []
    while True:
        result = generator.stream_ex()
        ids += result["chunk_token_ids"][0].tolist()
        if result["eos"]:
            break
    assert set(ids) <= {40, 42}
    bias = torch.zeros(tokenizer.get_vocab_size())
    bias[77] = 1e4
    generator.begin_stream_ex(
        tokenizer.encode("x"), ExLlamaV2Sampler.Settings(token_bias=bias), max_new_tokens=3
    )
    assert 77 in [i for _ in range(3) for i in generator.stream_ex()["chunk_token_ids"][0].tolist()]
    last = ExLlamaV2Sampler.Settings(
        temperature_last=True, tfs=0.0, typical=0.0, top_p=0.0, min_p=1.0
    ).frozen()
    assert last.order.index("temperature") > last.order.index("min_p")
    assert (last.tail_free, last.typical, last.top_p, last.min_p) == (1.0, 1.0, 1.0, 0.0)
    with pytest.raises(NotSupportedYet, match="post_sampling_hooks"):
        ExLlamaV2Sampler.Settings(post_sampling_hooks=[print]).frozen()
    generator.close()


def test_texts_and_ids(parts):
    _, _, tokenizer = parts
    ids = tokenizer.encode(["one two", "a much longer text than the first"])
    assert ids.dtype == torch.int64
    mask = tokenizer.padding_mask(ids)
    assert tokenizer.decode(ids[0][mask[0]]) == "one two"
    _, offsets = tokenizer.encode(["one two", "a much longer text than the first"], return_offsets=True)
    assert (offsets.dtype, offsets.tolist()) == (torch.int32, [-int((~mask[0]).sum()), 0])
    assert tokenizer.decode(ids[1:]) == ["a much longer text than the first"]
    assert tokenizer.num_tokens("one two") == int(mask[0].sum())
    assert tokenizer.single_id(tokenizer.eos_token) == tokenizer.eos_token_id
    assert tokenizer.encode("a", add_eos=True)[0, -1] == tokenizer.eos_token_id
    assert tokenizer.single_id("one two three") is None


def test_a_single_token_is_one_of_exactly_that_text():
    """Where SentencePiece puts a space before a text, its encoding would be another token."""
    tokenizer = ExLlamaV2Tokenizer.__new__(ExLlamaV2Tokenizer)
    tokenizer.engine_tokenizer = Tokenizer.from_gguf(sentencepiece_metadata())
    special = {id: tokenizer.engine_tokenizer.texts[id] for id in tokenizer.engine_tokenizer.special_ids}
    tokenizer.extended_piece_to_id = {text: id for id, text in special.items()}
    pieces = tokenizer.get_id_to_piece_list()
    for text in ("a", " a", "e", "\n", "</s>", "<tool>"):
        id = tokenizer.single_id(text)
        assert special.get(id, pieces[id]) == text
    assert tokenizer.single_id("a") != tokenizer.single_id(" a")
    assert tokenizer.single_id("") is None


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "kind", [ExLlamaV2Cache, ExLlamaV2Cache_8bit, ExLlamaV2Cache_Q8, ExLlamaV2Cache_Q6, ExLlamaV2Cache_Q4]
)
def test_every_kind_of_cache_writes(parts, kind):
    model, _, tokenizer = parts
    cache = kind(model, max_seq_len=128)
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    generator.warmup()
    generator.begin_stream(tokenizer.encode("the cat"), GREEDY)
    count, total = 0, 0
    while not generator.full() and count < 300:
        _, eos, ids = generator.stream()
        count, total = count + 1, total + ids.shape[1]
        if eos:
            break
    assert total > 20
    generator.close()
    cache.close()


def test_several_prompts_and_wrong_batches(parts):
    model, cache, tokenizer = parts
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    texts = generator.generate_simple(["the cat", "the dog"], GREEDY, 5, stop_token=None)
    assert [text[:7] for text in texts] == ["the cat", "the dog"]
    assert texts[0] == generator.generate_simple("the cat", GREEDY, 5, stop_token=None)
    passes: list[Any] = []
    run = cache.paged.program.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache.paged.program, "run", lambda step: (passes.append(step), run(step))[1])
        together = generator.generate_simple(["the cat", "the dog"], GREEDY, 5, stop_token=None)
    assert together == texts
    assert sum(len(step.runs) == 2 for step in passes) == 3  # the first reply is a token ahead
    with pytest.raises(ValueError, match="batch_size"):
        ExLlamaV2Cache(model, batch_size=0)
    with pytest.raises(ValueError, match="loras"):
        generator.begin_stream_ex(tokenizer.encode("a"), GREEDY, loras=[object()])
    with pytest.raises(ValueError, match="input_ids"):
        generator.begin_stream_ex(np.zeros((3, 2), np.int64), GREEDY)
    with pytest.raises(NotSupportedYet, match="input_embeddings"):
        generator.begin_stream_ex(tokenizer.encode("a"), GREEDY, input_embeddings=np.zeros((1, 2, 4)))
    with pytest.raises(ValueError, match="gen_settings"):
        generator.begin_stream_ex(tokenizer.encode("a"), None)
    generator.close()


def test_loras(parts, tmp_path: Path):
    """One or several adapters for a sequence; the next one without them is as before."""
    model, cache, tokenizer = parts
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    lora = ExLlamaV2Lora.from_directory(model, write_adapter(tmp_path / "a"), 2.0)
    plain, changed, twice, again = (
        generator.generate_simple("the cat", GREEDY, 8, stop_token=None, loras=loras)
        for loras in (None, lora, [lora, lora], None)
    )
    assert plain == again
    assert len({plain, changed, twice}) == 3
    with pytest.raises(ModelNotFound, match=r"adapter_config\.json"):
        ExLlamaV2Lora.from_directory(model, tmp_path / "none")
    generator.close()
