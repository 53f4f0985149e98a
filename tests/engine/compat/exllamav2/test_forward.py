"""`ExLlamaV2.forward` and the caches it writes to."""

from __future__ import annotations

import threading

import pytest
import torch

from engine.compat.exllamav2 import (
    ExLlamaV2Cache,
    ExLlamaV2Cache_8bit,
    ExLlamaV2Cache_Q4,
    ExLlamaV2Cache_Q6,
    ExLlamaV2Cache_Q8,
    ExLlamaV2Cache_TP,
    ExLlamaV2Lora,
)
from engine.compat.exllamav2.generator import ExLlamaV2Sampler, ExLlamaV2StreamingGenerator
from engine.errors import ContextTooLong, NotSupportedYet
from tests.engine.models.lora.test_lora import write_adapter

GREEDY = ExLlamaV2Sampler.Settings.greedy()
TEXT = "the quick brown fox jumps over the lazy dog and the fire is warm"


@pytest.fixture
def cache(model):
    cache = ExLlamaV2Cache(model, batch_size=3, max_seq_len=600)
    yield cache
    table = cache.paged.table
    cache.taken_by(None)
    assert table.free + table.idle == table.page_count  # every lease was closed
    table.check()
    cache.close()


@pytest.fixture(scope="module")
def ids(tokenizer):
    return tokenizer.encode(TEXT)


def close(one, other):
    return torch.allclose(one, other, atol=2e-3, rtol=1e-3)


def test_in_parts_as_at_once(model, cache, ids):
    whole = model.forward(ids)
    assert (whole.shape, whole.dtype) == ((1, ids.shape[1], model.config.vocab_size), torch.float32)
    assert cache.current_seq_len == 0
    first, second = model.forward(ids[:, :5], cache), model.forward(ids[:, 5:], cache, cpu_logits=True)
    assert close(torch.cat([first, second], dim=1), whole)
    assert cache.current_seq_len == ids.shape[1]
    cache.reset()
    assert cache.current_seq_len == 0
    assert model.forward(ids[:, :-1], cache, preprocess_only=True) is None
    assert close(model.forward(ids[:, -1:], cache, last_id_only=True), whole[:, -1:])


def test_greedy_by_hand_is_the_generator(model, cache, tokenizer, ids):
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    generator.set_stop_conditions([])
    generator.begin_stream_ex(ids, GREEDY)
    expected = [int(generator.stream()[2][0, 0]) for _ in range(8)]
    by_hand, token = [], ids
    cache.reset()
    for _ in range(8):
        token = model.forward(token, cache, last_id_only=True).argmax(dim=-1)
        by_hand.append(int(token))
    assert by_hand == expected
    with pytest.raises(RuntimeError, match="no sequence is open"):
        generator.stream_ex()


def test_going_back_and_on(model, cache, ids):
    whole = model.forward(ids, cache)
    cache.current_seq_len = 7
    assert close(model.forward(ids[:, 7:], cache), whole[:, 7:])
    cache.current_seq_len -= 2
    assert cache.current_seq_len == ids.shape[1] - 2
    other = model.forward(ids[:, :4], cache)
    assert close(other, model.forward(torch.cat([ids[:, :-2], ids[:, :4]], dim=1))[:, -4:])
    with pytest.raises(ValueError, match="holds"):
        cache.current_seq_len = 500


def test_a_generator_s_sequence_goes_on_by_hand(model, cache, tokenizer, ids):
    generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer)
    generator.begin_stream_ex(ids, GREEDY)
    generator.stream_ex()
    sequence = generator.sequence_ids
    assert cache.current_seq_len == sequence.shape[1] - 1
    after = model.forward(sequence[:, -1:], cache)
    assert close(after, model.forward(sequence)[:, -1:])


def test_padded_rows(model, cache, tokenizer):
    texts = [TEXT, "the dog", "the cat and"]
    ids, offsets = tokenizer.encode(texts, return_offsets=True)
    mask = tokenizer.padding_mask(ids)
    found = model.forward(ids, cache, input_mask=mask, position_offsets=offsets)
    more = torch.tensor([[40], [41], [42]])
    further = model.forward(more, cache, input_mask=mask, position_offsets=offsets)
    for row, text in enumerate(texts):
        own = tokenizer.encode(text)
        alone = model.forward(torch.cat([own, more[row : row + 1]], dim=1))[0]
        pad = ids.shape[1] - own.shape[1]
        assert close(found[row, pad:], alone[:-1])
        assert close(further[row], alone[-1:])
        assert not found[row, :pad].any()
    additive = torch.zeros(ids.shape).masked_fill(~mask, -65504.0)
    cache.reset()
    assert close(model.forward(ids, cache, input_mask=additive, last_id_only=True), found[:, -1:])
    with pytest.raises(ValueError, match="begun with"):
        model.forward(more, cache, input_mask=torch.ones(3, 2))
    with pytest.raises(ValueError, match="2 rows, but the cache holds 3"):
        model.forward(more[:2], cache)
    cache.reset()
    with pytest.raises(ValueError, match="on the left"):
        model.forward(ids, cache, input_mask=mask.flip(1))
    with pytest.raises(ValueError, match="position_offsets"):
        model.forward(ids, cache, position_offsets=torch.tensor([[5], [0], [0]]))
    with pytest.raises(ValueError, match="padding mask"):
        model.forward(ids, cache, input_mask=torch.zeros(3, 4, 4))


def test_rows_of_one_prompt(model, cache, ids):
    """A prompt is run once, copied to other rows, and each row goes on by itself."""
    model.forward(ids, cache, preprocess_only=True)
    length = ids.shape[1]
    cache.copy_states(cache, 0, length, 0, length, 0, 1, 0, 3)
    more = torch.tensor([[40, 50], [41, 51], [42, 52]])
    found = model.forward(more, cache)
    for row in range(3):
        assert close(found[row], model.forward(torch.cat([ids, more[row : row + 1]], dim=1))[0, -2:])
    with pytest.raises(NotSupportedYet, match="same column"):
        cache.copy_states(cache, 0, 4, 2, 4, 0, 1, 1, 1)
    with pytest.raises(ValueError, match="from_rows"):
        cache.copy_states(cache, 0, 4, 0, 4, 0, 2, 1, 1)
    with pytest.raises(ValueError, match="from_rows"):
        cache.copy_states(cache, 0, 4, 0, 4, 0, 1, -1, 1)
    with pytest.raises(ValueError, match="to_columns equal to from_columns"):
        cache.copy_states(cache, 0, 4, 0, 3, 0, 1, 1, 1)
    for columns, row, rows in ((400, 1, 1), (4, 2, cache.batch_size - 1), (4, cache.batch_size, 1)):
        with pytest.raises(ValueError, match="are not there"):
            cache.copy_states(cache, 0, columns, 0, columns, 0, 1, row, rows)
    with pytest.raises(ValueError, match="come before"):
        cache.copy_states(cache, length + 2, 0, length + 2, 0, 0, 1, 1, 1)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "kind", [ExLlamaV2Cache, ExLlamaV2Cache_8bit, ExLlamaV2Cache_Q8, ExLlamaV2Cache_Q6, ExLlamaV2Cache_Q4]
)
def test_clones_are_equal_and_independent(model, ids, kind):
    cache = kind(model, max_seq_len=700)
    long = torch.cat([ids] * (300 // ids.shape[1] + 1), dim=1)[:, :300]  # more than one page
    model.forward(long, cache, preprocess_only=True)
    clone = cache.clone()
    assert type(clone) is kind
    assert clone.current_seq_len == 300
    token = ids[:, :1]
    found = model.forward(token, clone)
    assert torch.equal(found, model.forward(token, cache))
    assert not torch.equal(found, model.forward(token, clone))
    assert (cache.current_seq_len, clone.current_seq_len) == (301, 302)
    small = kind(model, copy_from=cache, max_seq_len=512)
    small.current_seq_len = 300
    assert torch.equal(found, model.forward(token, small))
    other = ExLlamaV2Cache_TP(model, base=kind, max_seq_len=300)
    same = other.clone()
    assert (type(same), same.dtype) == (ExLlamaV2Cache_TP, kind.dtype)
    with pytest.raises(ValueError, match="of one class"):
        cache.copy_states(other, 0, 4, 0, 4, 0, 1, 0, 1)
    for each in (cache, clone, small, other, same):
        each.close()


def test_a_cache_that_is_full_stays_as_it_is(model, ids):
    cache = ExLlamaV2Cache(model, max_seq_len=20)
    model.forward(ids[:, :10], cache)
    with pytest.raises(ContextTooLong, match="has room for 20"):
        model.forward(torch.cat([ids, ids], dim=1)[:, :11], cache)
    assert cache.current_seq_len == 10
    assert close(model.forward(ids[:, 10:12], cache), model.forward(ids[:, :12])[:, 10:])
    cache.close()


def test_stopping(model, cache, ids):
    stop = threading.Event()
    stop.set()
    model.forward(ids[:, :4], cache)
    assert model.forward(ids[:, 4:], cache, abort_event=stop) is None
    assert cache.current_seq_len == 4
    assert close(model.forward(ids[:, 4:], cache), model.forward(ids)[:, 4:])


def test_adapters(model, cache, ids, tmp_path):
    lora = ExLlamaV2Lora.from_directory(model, write_adapter(tmp_path / "a"), 2.0)
    plain, changed = model.forward(ids, cache), None
    with pytest.raises(ValueError, match="other loras"):
        model.forward(ids, cache, loras=lora)
    cache.reset()
    changed = model.forward(ids, cache, loras=[lora])
    assert not close(plain, changed)
    cache.reset()
    assert torch.equal(model.forward(ids, cache), plain)


def test_what_is_refused_by_name(model, cache, ids):
    for name, value in (
        ("return_last_state", True),
        ("indexed_embeddings", torch.zeros(1)),
        ("attn_params", object()),
    ):
        with pytest.raises(NotSupportedYet, match=f"`{name}` is not supported"):
            model.forward(ids, cache, **{name: value})
    with pytest.raises(ValueError, match="input_ids have the shape"):
        model.forward(ids[0], cache)
    with pytest.raises(ValueError, match="made for 3"):
        model.forward(ids.expand(4, -1), cache)
    with pytest.raises(ValueError, match="of this model"):
        model.forward(ids, cache=cache.paged)
    model.config.max_output_len = 4
    try:
        with pytest.raises(ValueError, match="max_output_len is 4"):
            model.forward(ids, cache)
        assert model.forward(ids, cache, last_id_only=True).shape[1] == 1
    finally:
        model.config.max_output_len = None
    with pytest.raises(NotSupportedYet, match="pages of the backend"):
        _ = cache.key_states
    with pytest.raises(NotSupportedYet, match="tokens cannot move"):
        cache.roll_left()


def test_passes_as_long_as_the_configuration_says(model, ids):
    whole = model.forward(ids)
    model.config.max_input_len = 3
    cache = ExLlamaV2Cache(model)
    model.config.max_input_len = 2048
    assert cache.paged.rows == 3
    assert close(model.forward(ids, cache), whole)
    cache.close()


def test_a_pool_longer_than_the_context(model):
    cache = ExLlamaV2Cache_Q4(model, max_seq_len=4096)
    assert cache.max_seq_len == 4096
    assert cache.paged.context_length == model.config.info.context_length == 1024
    assert cache.paged.table.page_count >= 16
    assert cache.footprint() == [cache.paged.store.nbytes]
    cache.close()
