"""LongCat-Flash-Lite, which transformers has no class for: its LongCat-Flash over embeddings of n-grams that
are made here as the makers' code makes them.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from engine.backends.base import Backend
from engine.backends.cpu.backend import CpuBackend
from engine.backends.reference.backend import ReferenceBackend
from engine.errors import BadCheckpoint, EngineError, UnsupportedModel
from engine.models.base import read_bytes
from engine.models.describe import cpu_only
from engine.models.load import read_config
from engine.weights import open_checkpoint
from tests.engine.models.architectures import Case, Floats, ids, transformers_model, write_checkpoint
from tests.engine.models.cases.longcat_emu import LONG_CAT
from tests.engine.models.oracle import after_rewinding, load, logits

WIDTH, VOCAB, END, SIZE, EACH = 64, 307, 5, 3, 2
HEADS = (SIZE - 1) * EACH
COUNTS = [VOCAB * 5 // 2 + 2 * head + 1 for head in range(HEADS)]
TOKENS = [token if token != END else 6 for token in ids(60)]
TOKENS[11] = TOKENS[30] = TOKENS[31] = END  # texts begin behind these
CUTS = [1, 7, 8, 12, 31, 32, 59]
CASE = Case("LongCat-Flash", "", "longcat_flash", {**LONG_CAT, "eos_token_id": END})
CONFIG = {
    **LONG_CAT, "architectures": ["LongcatFlashNgramForCausalLM"], "model_type": "longcat_flash_ngram",
    "emb_neighbor_num": SIZE, "emb_split_num": EACH, "ngram_vocab_size_ratio": 2.5, "eos_token_id": END,
    "bos_token_id": 1, "tie_word_embeddings": False, "head_dim": 8,
}  # fmt: skip


@cache
def tables() -> tuple[list[Floats], list[Floats]]:
    """Of each head, the table and what projects its rows."""
    rng, dim = np.random.default_rng(4), WIDTH // HEADS
    drawn = [rng.standard_normal((count, dim)).astype(np.float32) for count in COUNTS]
    return drawn, [0.4 * rng.standard_normal((WIDTH, dim)).astype(np.float32) for _unused in drawn]


def embedded(words: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    """The embeddings (T, E) of tokens with those of their n-grams."""
    rows = []
    for place, token in enumerate(tokens):
        row = words[token].double()
        for head, (table, projection) in enumerate(zip(*tables(), strict=True)):
            number = token
            for back in range(1, 2 + head // EACH):
                between = tokens[max(0, place - back) : place]
                if len(between) == back and END not in between:
                    number += between[0] * VOCAB**back
            found = torch.from_numpy(projection @ table[number % COUNTS[head]])
            row = row + found.double()
        rows.append(row / (1 + HEADS))
    return torch.stack(rows)


@cache
def expected() -> Floats:
    model = transformers_model(CASE).double()
    with torch.inference_mode():
        x = embedded(model.get_input_embeddings().weight, TOKENS)
        found: Floats = model(inputs_embeds=x[None], use_cache=False).logits[0].numpy()
    assert found.std() > 0.5
    return found


def write_folder(folder: Path, **changed: Any) -> Path:
    tensors, at = load_file(write_checkpoint(CASE, folder) / "model.safetensors"), "model.ngram_embeddings."
    for head, (table, projection) in enumerate(zip(*tables(), strict=True)):
        tensors[f"{at}embedders.{head}.weight"] = table
        tensors[f"{at}post_projs.{head}.weight"] = projection
    (folder / "config.json").write_text(json.dumps(CONFIG | changed), "utf-8")
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("backend", [ReferenceBackend, CpuBackend])
def test_folder_agrees_with_the_makers_forward(backend: type[Backend], tmp_path: Path) -> None:
    """At once, in steps, and after tokens that are taken back."""
    model, right = load(write_folder(tmp_path / "m"), backend()), expected()
    most = (1e-4 if backend is ReferenceBackend else 1e-3) * np.abs(right).max()
    for found in (
        logits(model, TOKENS), logits(model, TOKENS, CUTS), after_rewinding(model, TOKENS, 33, TOKENS[:9]),
    ):  # fmt: skip
        assert np.abs(found - right).max() <= most
    model.close()


def test_the_table_of_tokens_as_mlx_names_it(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    tensors = load_file(folder / "model.safetensors")
    words = tensors.pop("model.embed_tokens.weight")
    tensors["model.ngram_embeddings.word_embeddings.weight"] = words
    save_file(tensors, folder / "model.safetensors")
    found, right = logits(load(folder), TOKENS), expected()
    assert np.abs(found - right).max() <= 1e-4 * np.abs(right).max()


def test_the_tables_are_looked_up_on_the_processor(tmp_path: Path) -> None:
    """A step reads one row of each."""
    model = load(write_folder(tmp_path / "m"))
    assert cpu_only(model.config) == "embeddings of n-grams"
    unread = sum(4 * (count - 1) * WIDTH // HEADS for count in COUNTS) + 4 * (VOCAB - 1) * WIDTH
    assert 10_000_000 - read_bytes(model.config, 10_000_000, 0, model.parts) == unread


def test_defaults_are_those_of_the_makers(tmp_path: Path) -> None:
    kept = {key: CONFIG[key] for key in ("architectures", "vocab_size")}
    (tmp_path / "config.json").write_text(json.dumps({**kept, "vocab_size": 131_072}), "utf-8")
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    config = read_config(open_checkpoint(tmp_path))
    assert (config.layers, config.width, config.heads, config.ffn_width) == (28, 3072, 32, 6144)
    assert config.experts is not None
    assert (config.experts.active, config.experts.idle, config.experts.width) == (256, 128, 1024)
    assert config.ngrams is not None
    hashes = config.ngrams.hashes
    assert (hashes.lengths, hashes.reset, config.ngrams.dim) == ((2,) * 4 + (3,) * 4 + (4,) * 4, 2, 256)
    assert hashes.counts == tuple(78 * 131_072 + 2 * head + 1 for head in range(12))


@pytest.mark.parametrize(
    ("key", "value", "error", "words"),
    [
        ("emb_split_num", 3, UnsupportedModel, "sets emb_split_num to 3"),
        ("emb_neighbor_num", 1, BadCheckpoint, "emb_neighbor_num is 1"),
        ("eos_token_id", VOCAB, BadCheckpoint, "eos_token_id is 307"),
        ("ngram_vocab_size_ratio", -1.0, BadCheckpoint, "ngram_vocab_size_ratio is -1"),
    ],
)  # fmt: skip
def test_what_is_refused(
    key: str, value: object, error: type[EngineError], words: str, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "m", **{key: value})
    with pytest.raises(error, match=words):
        read_config(open_checkpoint(folder))


def test_tables_of_more_rows_than_numbers(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", vocab_size=1 << 20, ngram_vocab_size_ratio=4000.0)
    with pytest.raises(UnsupportedModel, match="sets ngram_vocab_size_ratio to 4000"):
        read_config(open_checkpoint(folder))
