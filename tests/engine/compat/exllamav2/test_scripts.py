"""What scripts for ExLlamaV2's streaming generator do besides the usage examples: its older calls, its
attributes, its habits.
"""

from __future__ import annotations

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
    ExLlamaV2Sampler,
    ExLlamaV2StreamingGenerator,
)
from tests.tiny import write_gguf

GREEDY = ExLlamaV2Sampler.Settings.greedy()


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    config = ExLlamaV2Config()
    config.model_dir = str(write_gguf(tmp_path_factory.mktemp("scripts") / "tiny.gguf"))
    config.max_batch_size = 2
    config.no_flash_attn = True
    config.prepare()
    config.max_seq_len = 1 << 20  # more than the model has
    config.arch_compat_overrides()
    model = ExLlamaV2(config, lazy_load=True)
    cache = ExLlamaV2Cache(model, batch_size=2, lazy=True)
    model.load_autosplit(cache, [1024, 0])
    yield model, cache, ExLlamaV2Tokenizer(config)
    cache.close()
    model.unload()


def written(generator, count):
    """The ids of so many steps."""
    ids = [generator.stream()[2] for _ in range(count)]
    return torch.cat(ids, dim=-1)[0].tolist()


def test_a_cache_is_no_longer_than_the_model_can_address(parts):
    model, cache, _ = parts
    assert (
        cache.max_seq_len
        == cache.paged.context_length
        == model.config.info.context_length
        < model.config.max_seq_len
    )


def test_guidance_with_the_older_call(parts):
    model, cache, tokenizer = parts
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    input_ids, offsets = tokenizer.encode(["the quick brown fox and the dog", "the dog"], return_offsets=True)
    mask = tokenizer.padding_mask(input_ids)
    texts = []
    for x in range(0, 11, 5):
        settings = GREEDY.clone()
        settings.cfg_scale = x / 5
        generator.begin_stream(input_ids, settings, input_mask=mask, position_offsets=offsets)
        generator.set_stop_conditions([])
        texts.append(written(generator, 8))
    plain = []
    for prompt in ("the dog", "the quick brown fox and the dog"):  # scale 0 is the second prompt, 1 the first
        generator.begin_stream(tokenizer.encode(prompt), GREEDY)
        plain.append(written(generator, 8))
    assert texts[:2] == plain
    generator.close()


def test_a_chat_that_goes_on_from_the_sequence(parts):
    model, cache, tokenizer = parts
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    assert generator.sequence_ids is None
    for turn in ("the cat", " and the dog"):
        new = tokenizer.encode(turn)
        ids = new if generator.sequence_ids is None else torch.cat([generator.sequence_ids, new], dim=-1)
        generator.begin_stream_ex(ids, GREEDY)
        result = generator.stream_ex()
        while not result["eos"] and generator.sequence_ids.shape[-1] < ids.shape[-1] + 10:
            result = generator.stream_ex()
        assert generator.sequence_ids[:, : ids.shape[-1]].tolist() == ids.tolist()
        assert cache.current_seq_len == generator.sequence_ids.shape[-1] - 1
    generator.begin_stream_ex(generator.sequence_ids, GREEDY, max_new_tokens=1)
    assert generator.stream_ex()["stats"].cached_tokens == generator.sequence_ids.shape[-1] - 2
    cache.current_seq_len = 0
    assert cache.current_seq_len == 0
    generator.begin_stream_ex(tokenizer.encode("the cat"), GREEDY, max_new_tokens=1)
    assert generator.stream_ex()["stats"].cached_tokens == 0
    with pytest.raises(ValueError, match="set to 70, but"):
        cache.current_seq_len = 70
    generator.close()


def test_generators_that_share_a_cache(parts):
    """As in the speculative example: each in its turn, none of them closed, with all kinds of drafting."""
    model, _, tokenizer = parts
    small = ExLlamaV2Cache_Q4(model, max_seq_len=64)
    normal = ExLlamaV2StreamingGenerator(model, small, tokenizer)
    # as the model's own, so that it guesses what that writes
    draft_cache = ExLlamaV2Cache_Q4(model, max_seq_len=64)
    drafted = ExLlamaV2StreamingGenerator(
        model, small, tokenizer, model, draft_cache, num_speculative_tokens=10
    )
    drafted.speculative_prob_threshold = 0.0  # a model of random weights is sure of nothing
    ngram = ExLlamaV2StreamingGenerator(model, small, tokenizer)
    ngram.speculative_ngram = True
    ngram.ngram_preload(tokenizer.encode("the quick brown fox jumps over the lazy dog"))
    ngram.speculative_ngram_min = 2
    ids, replies = tokenizer.encode("the dog and the dog and the dog"), []
    for generator in (normal, drafted, ngram):
        generator.reset_sd_stats()
        generator.set_stop_conditions([])
        generator.begin_stream(ids, GREEDY)
        replies.append(written(generator, 25))
        assert generator.get_sd_stats()[2] == 25
    assert replies[0] == replies[1] == replies[2]
    assert drafted.get_sd_stats()[4] > 0
    with pytest.raises(RuntimeError, match="no sequence is open"):
        normal.stream_ex()
    for generator in (normal, drafted, ngram):
        generator.close()
    table = small.paged.table
    assert table.free + table.idle == table.page_count
    small.close()
    draft_cache.close()


def test_what_ngram_attributes_do(parts):
    model, cache, tokenizer = parts
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    generator.speculative_ngram = True
    for most, drafts in ((3, 2), (1, 1), (50, 7)):
        generator.speculative_ngram_max_inf = most
        assert generator._speculation().draft_tokens == drafts
    generator.speculative_ngram_min, generator.speculative_ngram_max = 4, 2
    with pytest.raises(ValueError, match="shortest match"):
        generator.begin_stream_ex(tokenizer.encode("x"), GREEDY)
    generator.close()


def test_stop_conditions_set_after_the_beginning(parts):
    """They count from the next token on, also for text that earlier ones held back."""
    model, cache, tokenizer = parts
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    text = generator.generate_simple("the cat", GREEDY, 30, stop_token=None, completion_only=True)
    stop = text[12:15]
    generator.set_stop_conditions([text[:20] + "no such text"])
    generator.begin_stream_ex(tokenizer.encode("the cat"), GREEDY)
    result = generator.stream_ex()
    assert result["chunk"] == ""
    generator.set_stop_conditions({stop})
    found = ""
    while not result["eos"]:
        result = generator.stream_ex()
        found += result["chunk"]
    assert (found, result["trigger"]) == (text[: text.index(stop)], stop)
    generator.close()


def test_the_older_tuples(parts):
    model, cache, tokenizer = parts
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    generator.begin_stream_ex(
        tokenizer.encode("the cat"), GREEDY, return_probabilities=True, return_logits=True
    )
    chunk, eos, ids, probabilities, logits = generator.stream()
    assert isinstance(chunk, str)
    assert (eos, ids.shape, probabilities.shape, logits.shape[:2]) == (False, (1, 1), (1, 1), (1, 1))
    generator.begin_stream_ex(tokenizer.encode("the cat"), GREEDY)
    assert len(generator.stream()) == 3
    with pytest.raises(ValueError, match=r"ExLlamaV2Sampler\.Settings"):
        generator.begin_stream(tokenizer.encode("the cat"), None)
    generator.close()


def test_a_base_generator(parts):
    model, cache, tokenizer = parts
    generator = ExLlamaV2BaseGenerator(model, cache, tokenizer)
    generator.warmup()
    text = generator.generate_simple("the cat", GREEDY, 6, seed=1234, add_bos=True)
    assert text.startswith("the cat")
    assert not generator.full()
    assert generator.tokenizer.decode(generator.sequence_ids)[0].endswith(text[-3:])
    generator.close()


def test_tokens_by_name(parts):
    *_, tokenizer = parts
    pieces = tokenizer.get_id_to_piece_list()
    for id, text in ((tokenizer.newline_token_id, "\n"), (tokenizer.space_token_id, " ")):
        assert id is None or pieces[id] == text
    assert tokenizer.space_token_id is not None
    assert pieces[tokenizer.eos_token_id] == ""
    assert (
        tokenizer.get_id_to_piece_list(include_special_tokens=True)[tokenizer.eos_token_id]
        == tokenizer.eos_token
    )
    ids = tokenizer.get_piece_to_id_dict()
    assert all(tokenizer.get_id_to_piece_list(True)[id] == piece for piece, id in ids.items())
    assert tokenizer.single_token(5).tolist() == [[5]]
    row = tokenizer.encode("the cat")
    assert tokenizer.decode([row[0], row[0]]) == ["the cat", "the cat"]
    assert (tokenizer.decode(row[0]), tokenizer.decode(row), tokenizer.decode(row[0].tolist())) == (
        "the cat",
        ["the cat"],
        "the cat",
    )


def test_a_draft_model_with_another_vocabulary_is_refused(parts, monkeypatch):
    model, cache, tokenizer = parts
    # without a draft model nothing is compared
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    generator.close()
    monkeypatch.setattr(
        "engine.compat.exllamav2.generator.streaming.draft_problem",
        lambda target, draft: "its vocabulary differs.",
    )
    with pytest.raises(ValueError, match=r"cannot draft: its vocabulary differs\."):
        ExLlamaV2StreamingGenerator(model, cache, tokenizer, model)
