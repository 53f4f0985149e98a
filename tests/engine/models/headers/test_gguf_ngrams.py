"""What GGUF metadata say of embeddings of n-grams (Qwen 4)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine.errors import BadCheckpoint
from engine.models.headers.keys import Keys
from engine.models.headers.ngrams import gguf_ngrams

KEYS: dict[str, Any] = {
    "ple.layers": [2], "ple.ngram_size": 2, "ple.heads_per_ngram": 3, "embedding_length_per_layer_input": 16,
    "ple.layer_multipliers": [1 << 52, 3], "ple.head_offsets": [0, 11, 24], "ple.conv_kernel": 4,
    "ple.head_vocab_sizes": [11, 13, 17], "ple.eos_token_id": 5,
}  # fmt: skip


def read(rows: int = 48, **changed: Any) -> Any:
    tables: Any = {"per_layer_token_embd.weight": SimpleNamespace(shape=(rows, 16))}
    return gguf_ngrams(Keys({**KEYS, **changed}, "GGUF"), tables, 4)


def test_numbers() -> None:
    found = read()
    hashes = found.hashes[2]
    assert hashes.multipliers == (1 << 52, 3)
    assert hashes.counts == (11, 13, 17)
    assert hashes.offsets == (0, 11, 24)
    assert hashes.reset == 5
    assert (found.width, found.taps) == (48, 4)
    assert -(-sum(hashes.counts) // found.multiple) * found.multiple == 48
    assert read(**{"ple.layers": []}) is None


def test_lists_may_be_longer_and_the_table_no_larger_than_needed() -> None:
    longer: dict[str, Any] = {
        "ple.layer_multipliers": [1 << 52, 3, 9], "ple.head_offsets": [0, 11, 24, 90],
        "ple.head_vocab_sizes": [11, 13, 17, 19],
    }  # fmt: skip
    assert read(41, **longer).hashes == read(41).hashes
    assert read(41).multiple == 41
    assert read(**{"ple.eos_token_id": 0}).hashes[2].reset == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"ple.layers": [1, 2]}, {"ple.layer_multipliers": [3]}, {"ple.head_offsets": [0, 11]},
        {"ple.head_vocab_sizes": [11, 13]}, {"rows": 40}, {"ple.head_offsets": [0, 11, 40]},
    ],
)  # fmt: skip
def test_damaged_files(changed: dict[str, Any]) -> None:
    with pytest.raises(BadCheckpoint, match="how n-grams are hashed"):
        read(**changed)
