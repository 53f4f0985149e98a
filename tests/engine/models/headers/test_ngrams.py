"""The hashes of n-grams against transformers', and what config.json cannot say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.backends.ngrams import NGrams
from engine.backends.reference.ngrams import hashed_rows
from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.headers.keys import Keys
from engine.models.headers.ngrams import hf_ngrams, primes_from

LINEAR = frozenset(range(4))
KEYS: dict[str, Any] = {"ple_layer_ids": [4, 2], "eos_token_id": [7, 3]}


def test_primes() -> None:
    assert primes_from(1, 6) == (2, 3, 5, 7, 11, 13)
    assert primes_from(8, 3) == primes_from(11, 3) == (11, 13, 17)
    assert primes_from(0, 2) == primes_from(2, 2) == (2, 3)
    assert primes_from(90, 3) == (97, 101, 103), "of squares of primes, none is left"
    assert primes_from(9, 1) == primes_from(10, 1) == (11,)
    assert primes_from(20_000_000, 2) == (20_000_003, 20_000_023)


def test_the_numbers_are_those_of_transformers() -> None:
    """Of the second layer with default sizes, whose table would not fit here."""
    from transformers import AutoConfig
    from transformers.models.qwen4_exp.modeling_qwen4_exp import (
        Qwen4ExpTextNGramEmbedding,
        _build_layer_multipliers,
    )

    read = hf_ngrams(Keys(KEYS, "config.json"), 4096, 248_000, LINEAR)
    assert read is not None
    assert list(read.hashes) == [1, 3]
    config = AutoConfig.for_model("qwen4_exp_text", vocab_size=248_000, hidden_size=4096)
    with torch.device("meta"):
        theirs = Qwen4ExpTextNGramEmbedding(config, 4096, 3, 1)
    own = read.hashes[3]
    assert own.counts == tuple(theirs.head_vocab_sizes)
    assert own.offsets == tuple(theirs.head_offsets)
    for number, layer in enumerate((1, 3)):
        multipliers = _build_layer_multipliers(248_000, 3, number, theirs.seed)
        assert read.hashes[layer].multipliers == tuple(multipliers.tolist())
    assert (own.reset, read.width, read.taps, read.multiple) == (7, 4096, 4, 128)


def test_a_token_that_ends_texts_begins_anew() -> None:
    """What stands before it, and before the text, counts as that token; it counts itself."""
    ngrams = NGrams((5, 11, 3), (2, 2, 3, 3), (97, 101, 103, 107), (0, 97, 198, 301), 7, 7)
    last = torch.tensor([[4, 7, 9], [4, 7, 2], [4, -1, -1], [7, 9, 7], [7, 9, 2]])
    found = hashed_rows(last, ngrams)
    assert found[0].tolist() == found[1].tolist() == found[2].tolist()
    assert found[3].tolist() != found[4].tolist()
    mixed = (4 * 5) ^ (7 * 11)
    assert found[0, :2].tolist() == [mixed % 97, mixed % 101 + 97]
    assert found[0, 2:].tolist() == [(mixed ^ 21) % 103 + 198, (mixed ^ 21) % 107 + 301]


@pytest.mark.parametrize(
    "changes",
    [
        {"heads_per_ngram": 3}, {"ple_layer_ids": [5]}, {"eos_token_id": None}, {"eos_token_id": []},
        {"eos_token_id": 100}, {"eos_token_id": -1}, {"eos_token_id": "7"}, {"eos_token_id": True},
    ],
)  # fmt: skip
def test_layers_that_cannot_embed_n_grams(changes: dict[str, Any]) -> None:
    with pytest.raises(BadCheckpoint, match="cannot embed n-grams"):
        hf_ngrams(Keys(KEYS | changes, "config.json"), 64, 100, LINEAR)


@pytest.mark.parametrize(("end", "reset"), [(0, 0), (99, 99), ([0, 5], 0)])
def test_the_token_that_ends_texts_is_one_of_the_vocabulary(end: Any, reset: int) -> None:
    stated = KEYS | {"eos_token_id": end, "ngram_vocab_size_base": 50}
    read = hf_ngrams(Keys(stated, "config.json"), 64, 100, LINEAR)
    assert read is not None
    assert [own.reset for own in read.hashes.values()] == [reset, reset]


def test_tables_of_more_rows_than_numbers_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="ngram_vocab_size_base to 200000000"):
        hf_ngrams(Keys(KEYS | {"ngram_vocab_size_base": 200_000_000}, "config.json"), 64, 100, LINEAR)
    assert hf_ngrams(Keys({"ple_layer_ids": []}, "config.json"), 64, 100, LINEAR) is None
