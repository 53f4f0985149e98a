"""`ExLlamaV2Sampler.sample`, for scripts that run the model themselves."""

from __future__ import annotations

import math

import pytest
import torch

from engine.compat.exllamav2 import ExLlamaV2Cache
from engine.compat.exllamav2.generator import ExLlamaV2BaseGenerator, ExLlamaV2Sampler
from engine.errors import BadSetting, EngineError, NotSupportedYet

Settings = ExLlamaV2Sampler.Settings
PLAIN = {"temperature": 1.0, "top_k": 0, "top_p": 0.0, "token_repetition_penalty": 1.0}
NO_TEXT = torch.zeros(1, 1, dtype=torch.long)


def logits_of(tokenizer, weights, rows=1):
    """Logits (rows, 1, V) of tokens with these weights; the others are impossible."""
    values = torch.full((rows, 1, tokenizer.get_vocab_size()), -math.inf)
    for token, weight in weights.items():
        values[..., token] = math.log(weight)
    return values


def sampled(tokenizer, weights, random=0.0, settings=None, **more):
    settings = settings or Settings(**PLAIN)
    return ExLlamaV2Sampler.sample(
        logits_of(tokenizer, weights), settings, NO_TEXT, random, tokenizer, **more
    )


def test_a_loop_of_forward_and_sample_writes_what_a_generator_does(model, tokenizer):
    cache = ExLlamaV2Cache(model, max_seq_len=256)
    generator = ExLlamaV2BaseGenerator(model, cache, tokenizer)
    expected = generator.generate_simple("the quick", Settings.greedy(), 12, stop_token=None)
    ids = tokenizer.encode("the quick")
    cache.current_seq_len = 0
    model.forward(ids[:, :-1], cache, preprocess_only=True)
    for _ in range(12):
        logits = model.forward(ids[:, -1:], cache).float().cpu()
        token, top, shares, probability, ended = ExLlamaV2Sampler.sample(
            logits, Settings.greedy(), ids, 0.7, tokenizer
        )
        assert (token.shape, token.dtype, top, shares, ended) == ((1, 1), torch.long, None, None, False)
        assert probability.tolist() == [[1.0]]
        ids = torch.cat([ids, token], dim=1)
    assert tokenizer.decode(ids)[0] == expected
    cache.close()


def test_the_random_number_chooses(tokenizer):
    weights = {5: 0.5, 6: 0.3, 7: 0.2}
    drawn = [int(sampled(tokenizer, weights, n / 100)[0]) for n in range(100)]
    assert [drawn.count(token) for token in weights] == pytest.approx([50, 30, 20], abs=1)


def test_probabilities_are_those_after_all_steps(tokenizer):
    settings = Settings(**PLAIN | {"top_k": 2})
    found = sampled(tokenizer, {5: 0.5, 6: 0.3, 7: 0.2}, 0.0, settings, return_top_tokens=3)
    token, ids, shares, probability, _ = found
    assert int(token) == 5
    assert probability.tolist() == [[pytest.approx(0.625, abs=1e-6)]]
    assert ids.tolist() == [[[5, 6, 0]]]
    assert shares.tolist() == [[pytest.approx([0.625, 0.375, 0.0], abs=1e-6)]]


def test_the_likeliest_tokens_are_left_out(tokenizer):
    """Of those with 0.2 or more only the least likely stays: XTC."""
    settings = Settings(**PLAIN | {"xtc_probability": 1.0, "xtc_threshold": 0.2})
    drawn = {int(sampled(tokenizer, {45: 0.5, 46: 0.3, 47: 0.2}, n / 10, settings)[0]) for n in range(10)}
    assert drawn == {47}


def test_the_text_so_far_is_penalised(tokenizer):
    settings = Settings(**PLAIN | {"token_repetition_penalty": 8.0, "top_k": 1})
    logits = logits_of(tokenizer, {5: 9.0, 6: 8.0})
    for text, expected in (([[7]], 5), ([[5, 7]], 6)):
        found = ExLlamaV2Sampler.sample(logits, settings, torch.tensor(text), 0.0, tokenizer)
        assert int(found[0]) == expected


def test_blocked_tokens_and_a_beginning(tokenizer):
    pieces = tokenizer.get_id_to_piece_list()
    longer = next(i for i, piece in enumerate(pieces) if len(piece) > 2)
    start = tokenizer.get_piece_to_id_dict()[pieces[longer][0]]
    other = next(i for i, piece in enumerate(pieces) if piece and piece[0] != pieces[longer][0])
    weights = {other: 0.9, longer: 0.06, start: 0.04}
    greedy = Settings.greedy()
    assert int(sampled(tokenizer, weights, settings=greedy)[0]) == other
    assert int(sampled(tokenizer, weights, settings=greedy, blocked_tokens=[other])[0]) == longer
    prefix = torch.tensor([[start]])
    assert int(sampled(tokenizer, weights, settings=greedy, prefix_token=prefix)[0]) == longer
    only = {"prefix_token": prefix, "blocked_tokens": [longer]}
    assert int(sampled(tokenizer, weights, settings=greedy, **only)[0]) == start
    with pytest.raises(EngineError, match="banned"):
        sampled(tokenizer, {5: 1.0}, settings=greedy, blocked_tokens=[*range(tokenizer.get_vocab_size())])


def test_a_beginning_is_bytes(tokenizer):
    """Tokens that are parts of characters are alike as texts, and differ as bytes."""
    broken = [i for i, piece in enumerate(tokenizer.get_id_to_piece_list()) if piece == "\ufffd"]
    first, *_, last = sorted(broken)
    weights = {first: 0.1, last: 0.9}
    for token in (first, last):
        found = sampled(tokenizer, weights, settings=Settings.greedy(), prefix_token=torch.tensor([token]))
        assert int(found[0]) == token
    for token in (-1, tokenizer.get_vocab_size()):
        with pytest.raises(ValueError, match=f"prefix_token is {token}, but"):
            sampled(tokenizer, weights, prefix_token=torch.tensor([token]))


def test_the_rows_of_a_batch_draw_apart(tokenizer):
    weights = dict.fromkeys(range(3, 19), 1 / 16)
    texts = torch.zeros(4, 3, dtype=torch.long)
    found = ExLlamaV2Sampler.sample(
        logits_of(tokenizer, weights, rows=4), Settings(**PLAIN), texts, 0.2, tokenizer
    )
    assert found[0].shape == (4, 1)
    assert len(set(found[0].flatten().tolist())) == 4
    assert found[3].flatten().tolist() == pytest.approx([1 / 16] * 4)


def test_guidance_mixes_two_rows(tokenizer):
    logits = torch.cat([logits_of(tokenizer, {5: 0.6, 6: 0.4}), logits_of(tokenizer, {5: 0.8, 6: 0.2})])
    settings = Settings(**PLAIN | {"cfg_scale": 2.0})
    token, _, _, probability, _ = ExLlamaV2Sampler.sample(logits, settings, NO_TEXT, 0.0, tokenizer)
    weights = {5: 0.6**2 / 0.8, 6: 0.4**2 / 0.2}
    assert token.shape == (1, 1)
    assert float(probability) == pytest.approx(weights[int(token)] / sum(weights.values()), rel=1e-5)


def test_what_is_refused(tokenizer):
    logits, settings = logits_of(tokenizer, {5: 1.0}), Settings(**PLAIN)
    with pytest.raises(NotSupportedYet, match="`filters`"):
        ExLlamaV2Sampler.sample(logits, settings, NO_TEXT, 0.0, tokenizer, filters=[object()])
    with pytest.raises(NotSupportedYet, match="`mirostat`"):
        ExLlamaV2Sampler.sample(logits, Settings(mirostat=True), NO_TEXT, 0.0, tokenizer)
    with pytest.raises(ValueError, match="must be"):
        ExLlamaV2Sampler.sample(logits[0, 0], settings, NO_TEXT, 0.0, tokenizer)
    with pytest.raises(ValueError, match="2 rows"):
        ExLlamaV2Sampler.sample(logits.repeat(2, 1, 1), settings, NO_TEXT, 0.0, tokenizer)
    with pytest.raises(ValueError, match="mixes two"):
        ExLlamaV2Sampler.sample(logits, Settings(**PLAIN | {"cfg_scale": 2.0}), NO_TEXT, 0.0, tokenizer)
    with pytest.raises(BadSetting):
        ExLlamaV2Sampler.sample(logits, Settings(temperature=1e9), NO_TEXT, 0.0, tokenizer)
