"""Reads how a model's layers hash n-grams."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from engine.backends.ngrams import NGrams
from engine.errors import BadCheckpoint
from engine.models.config.hyper import NGramLayers, NGramTables
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import unsupported
from engine.tensors import RawTensor
from engine.words import _

_MOST_ROWS, _WORD = 1 << 31, (1 << 64) - 1
_STEP, _LAYER_STEP = 0x9E3779B97F4A7C15, 10007


def hf_ngrams(keys: Keys, width: int, vocab: int, linear: frozenset[int]) -> NGramLayers | None:
    """The layers of config.json that add embeddings of n-grams, all of them among the `linear` ones; None:
    there are none. Raises `BadCheckpoint` and `UnsupportedModel`.
    """
    if keys.raw("ple_layer_ids") is None:
        return None
    layers = sorted({number - 1 for number in keys.integers("ple_layer_ids", 1, 1 << 14)})
    if not layers:
        return None
    size, each = keys.integer("ngram_size", 2, 8, 3), keys.integer("heads_per_ngram", 1, 64, 8)
    heads, base = (size - 1) * each, keys.integer("ngram_vocab_size_base", 2, _MOST_ROWS, 20_000_000)
    width = width if keys.raw("ple_embed_dim") is None else keys.integer("ple_embed_dim", 1, 1 << 20)
    ends = keys.raw("eos_token_id")
    end = ends[0] if isinstance(ends, list) and ends else ends
    if width % heads or not set(layers) <= linear or type(end) is not int or not 0 <= end < vocab:
        raise BadCheckpoint(
            _(
                "config.json: the layers {layers} cannot embed n-grams: linear attention, an end-of-text "
                "token and a width that is a multiple of {heads} were expected.",
                layers=", ".join(str(layer) for layer in layers[:20]),
                heads=heads,
            )
        )
    if heads * (base + 50 * heads * len(layers)) >= _MOST_ROWS:
        raise unsupported("ngram_vocab_size_base", base)
    counts = primes_from(base, heads * len(layers))
    seed, hashes = keys.integer("seed", 0, 1 << 62, 1234), {}
    for i, layer in enumerate(layers):
        own = counts[heads * i : heads * (i + 1)]
        offsets = tuple(sum(own[:head]) for head in range(heads))
        multipliers = _multipliers(vocab, size, seed + _LAYER_STEP * i)
        hashes[layer] = NGrams(multipliers, lengths_of_heads(size, each), own, offsets, end, end)
    return NGramLayers(
        hashes, width, keys.integer("ple_conv_kernel_size", 1, 16, 4),
        keys.integer("make_ngram_vocab_size_divisible_by", 1, 1 << 20, 128),
    )  # fmt: skip


def gguf_ngrams(keys: Keys, tensors: Mapping[str, RawTensor], layers: int) -> NGramLayers | None:
    """The one layer of GGUF metadata that adds embeddings of n-grams, with how they are hashed; None: there
    is none. Raises `BadCheckpoint`.
    """
    chosen = keys.integers("ple.layers", 0, layers - 1)
    if not chosen:
        return None
    size, each = keys.integer("ple.ngram_size", 2, 8), keys.integer("ple.heads_per_ngram", 1, 64)
    heads, dim = (size - 1) * each, keys.integer("embedding_length_per_layer_input", 1, 1 << 20)
    multipliers = keys.integers("ple.layer_multipliers", 0, (1 << 63) - 1)[:size]
    offsets = keys.integers("ple.head_offsets", 0, _MOST_ROWS)[:heads]
    counts = keys.integers("ple.head_vocab_sizes", 1, _MOST_ROWS)[:heads]
    table = tensors.get("per_layer_token_embd.weight")
    rows = table.shape[0] if table is not None else 0
    most = max((offset + count for offset, count in zip(offsets, counts, strict=False)), default=0)
    whole = (len(multipliers), len(offsets), len(counts)) == (size, heads, heads)
    if len(chosen) > 1 or not whole or most > rows or sum(counts) > rows:
        raise BadCheckpoint(_("The file does not say rightly how n-grams are hashed. Download it again."))
    end = keys.integer("ple.eos_token_id", 0, _MOST_ROWS)
    hashes = NGrams(multipliers, lengths_of_heads(size, each), counts, offsets, end, end)
    return NGramLayers({chosen[0]: hashes}, heads * dim, keys.integer("ple.conv_kernel", 1, 16), rows)


def lengths_of_heads(size: int, each: int) -> tuple[int, ...]:
    """The tokens of the n-grams of each head: 2, 3, ... `size`, `each` of a length in turn."""
    return tuple(2 + head // each for head in range((size - 1) * each))


def hf_ngram_tables(keys: Keys, width: int, vocab: int) -> NGramTables:
    """How LongCat's folders hash n-grams: by remainders of odd numbers from a multiple of the vocabulary on.
    Raises `BadCheckpoint` and `UnsupportedModel`.
    """
    size, each = keys.integer("emb_neighbor_num", 2, 8, 4), keys.integer("emb_split_num", 1, 64, 4)
    heads, ratio = (size - 1) * each, keys.number("ngram_vocab_size_ratio", 0.0, 1e6, 78.0)
    if width % heads:
        raise unsupported("emb_split_num", each)
    counts = tuple(int(ratio * vocab + 2 * head + 1) for head in range(heads))
    if counts[-1] >= _MOST_ROWS:
        raise unsupported("ngram_vocab_size_ratio", ratio)
    hashes = NGrams(
        (1,) * size, lengths_of_heads(size, each), counts, (0,) * heads,
        keys.integer("eos_token_id", 0, vocab - 1, 2), 0, vocab,
    )  # fmt: skip
    return NGramTables(hashes, width // heads)


def _multipliers(vocab: int, size: int, seed: int) -> tuple[int, ...]:
    """Odd numbers by SplitMix64 (doi 10.1145/2714064.2660195), so small that products with tokens fit."""
    bound, made = max(1, ((1 << 63) - 1) // max(vocab, 1) // 2), []
    for index in range(size):
        value = (seed + _STEP * (index + 2)) & _WORD
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _WORD
        made.append(2 * ((value ^ (value >> 31)) % bound) + 1)
    return tuple(made)


def primes_from(start: int, count: int) -> tuple[int, ...]:
    """The first `count` primes that are at least `start`."""
    length = 64 + 2 * count * (int(math.log(max(start, 3))) + 4)
    while True:
        left = np.ones(length, bool)
        left[: max(0, 2 - start)] = False
        for divisor in range(2, math.isqrt(start + length) + 1):
            left[max(divisor * divisor, -(-start // divisor) * divisor) - start :: divisor] = False
        found = np.flatnonzero(left)[:count] + start
        if len(found) == count:
            return tuple(found.tolist())
        length *= 2
