"""Tiny random Llama models against transformers in float32, from folders and from GGUF files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.backends.base import Step
from engine.backends.reference.backend import ReferenceBackend
from engine.models import read_model
from engine.vision.describe import describe
from engine.weights import FORMATS, open_checkpoint
from tests.engine.models.oracle import finish, load, logits, transformers_logits
from tests.tiny import (
    LLAMA3_SCALING,
    TINY,
    WIDE,
    Tiny,
    read_gguf_weights,
    tiny_config,
    tiny_weights,
    write_folder,
    write_gguf,
)

IDS = [int(i) for i in np.random.default_rng(5).integers(0, TINY.vocab_size, 300)]
LINEAR_SCALING = {"rope_type": "linear", "factor": 2.5}

VARIANTS = {
    "plain": TINY,
    "tied": TINY.but(tied=True),
    "biases": TINY.but(attention_bias=True, mlp_bias=True),
    "one kv head": TINY.but(heads=3, kv_heads=1, head_dim=64),
    "as many kv heads": TINY.but(heads=2, kv_heads=2, head_dim=20),
    "other base": TINY.but(rope_theta=500000.0),
    "linear scaling": TINY.but(rope_scaling=LINEAR_SCALING),
    "llama3 scaling": TINY.but(rope_scaling=LLAMA3_SCALING, rope_theta=500.0),
    "deep": TINY.but(layers=5, seed=9),
}


def assert_agree(found: np.ndarray, expected: np.ndarray) -> None:
    """To 1e-4 up to position 100; beyond it the float32 angles of transformers deviate in proportion to the
    position.
    """
    assert expected.std() > 0.5  # lively logits, or agreement would say little
    np.testing.assert_allclose(found[:100], expected[:100], atol=1e-4)
    np.testing.assert_allclose(found, expected, atol=4e-4)


@pytest.mark.parametrize("tiny", VARIANTS.values(), ids=VARIANTS.keys())
def test_folder_and_f32_gguf_agree_with_transformers(tmp_path: Path, tiny: Tiny) -> None:
    expected = transformers_logits(tiny_config(tiny), tiny_weights(tiny), IDS)
    folder = logits(load(write_folder(tmp_path / "m", tiny)), IDS)
    assert_agree(folder, expected)
    file = logits(load(write_gguf(tmp_path / "m.gguf", tiny, "F32")), IDS)
    np.testing.assert_allclose(file, folder, atol=1e-4)


RARE = (
    "Q5_1",
    "Q3_K",
    "IQ4_NL",
    "IQ3_XXS",
    "IQ2_S",
    "IQ2_XS",
    "IQ2_XXS",
    "IQ1_M",
    "IQ1_S",
    "TQ1_0",
    "TQ2_0",
    "NVFP4",
)
"""Types whose whole models are slow tests; their decoders and kernels are tested by themselves in every
run.
"""
TYPES = [
    pytest.param(entry.name, marks=[pytest.mark.slow] if entry.name in RARE else []) for entry in FORMATS
]


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("type_name", TYPES)
def test_quantised_gguf_agrees_with_its_own_numbers(tmp_path: Path, type_name: str) -> None:
    """transformers runs on the weights that the `gguf` package reads from the same file."""
    path = write_gguf(tmp_path / "m.gguf", WIDE, type_name)
    found = logits(load(path), IDS[:40])
    np.testing.assert_allclose(
        found, transformers_logits(tiny_config(WIDE), read_gguf_weights(path, WIDE), IDS[:40]), atol=1e-4
    )


def test_mixed_types_as_in_real_files(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "m.gguf", WIDE, "Q4_1", {"token_embd": "Q8_0", "ffn_down": "Q6_K", "attn_v": "BF16"}
    )
    found = logits(load(path), IDS[:40])
    np.testing.assert_allclose(
        found, transformers_logits(tiny_config(WIDE), read_gguf_weights(path, WIDE), IDS[:40]), atol=1e-4
    )


@pytest.mark.parametrize(
    ("dtype", "shards", "tied"), [("F32", 3, False), ("F16", 1, True), ("BF16", 2, False), ("BF16", 1, True)]
)
def test_folder_types_and_shards(tmp_path: Path, dtype: str, shards: int, tied: bool) -> None:
    tiny = TINY.but(tied=tied)
    kind = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[dtype]
    rounded = {
        name: torch.from_numpy(values).to(kind).float().numpy() for name, values in tiny_weights(tiny).items()
    }
    found = logits(load(write_folder(tmp_path / "m", tiny, dtype, shards)), IDS[:50])
    np.testing.assert_allclose(found, transformers_logits(tiny_config(tiny), rounded, IDS[:50]), atol=1e-4)


def test_any_cut_into_steps_gives_the_same(tmp_path: Path) -> None:
    model = load(write_folder(tmp_path / "m"))
    whole = logits(model, IDS)
    for cuts in ([1, 2, 3, 100, 256], [255, 257], list(range(100, len(IDS)))):
        np.testing.assert_allclose(logits(model, IDS, cuts), whole, atol=1e-4)
    assert 0 < np.abs(logits(model, IDS, [17], dtype="fp16") - whole).max() < 0.05


def test_token_by_token_equals_the_whole(tmp_path: Path) -> None:
    model = load(write_gguf(tmp_path / "m.gguf"))
    np.testing.assert_allclose(logits(model, IDS[:40], range(1, 40)), logits(model, IDS[:40]), atol=2e-5)


def test_a_conversation_never_sees_pages_of_another(tmp_path: Path) -> None:
    """Stale keys and values beyond the end are ignored."""
    model = load(write_folder(tmp_path / "m"))
    whole = logits(model, IDS[:20])
    cache = model.new_cache(300, "fp32")
    for array in (*cache.keys, *cache.values):  # type: ignore[attr-defined]
        array.fill_(100.0)
    program = model.record(cache, 20)
    rows = np.arange(20, dtype=np.int32)
    out = program.run(Step(np.array(IDS[:20], np.int32), rows, np.array([1], np.int32), 20))
    np.testing.assert_allclose(out, whole, atol=1e-5)


def test_mistral_honours_its_window(tmp_path: Path) -> None:
    """Beyond the window each token sees the latest ones only."""
    tiny = TINY.but(context_length=128)
    config = tiny_config(tiny, "MistralForCausalLM") | {"sliding_window": 7}
    folder = write_folder(tmp_path / "m", tiny, architecture="MistralForCausalLM")
    _write_config(folder, config)
    model = load(folder)
    assert model.config.windows == (7, 7)
    config.pop("attention_bias")
    config.pop("mlp_bias")
    np.testing.assert_allclose(
        logits(model, IDS[:48]), transformers_logits(config, tiny_weights(tiny), IDS[:48]), atol=1e-4
    )
    _write_config(folder, config | {"sliding_window": None})
    assert load(folder).config.windows == ()
    del config["sliding_window"]  # then Mistral's default of 4096 holds
    _write_config(folder, config | {"max_position_embeddings": 8192})
    assert load(folder).config.windows == (4096, 4096)


def test_transformers_5_writes_rope_parameters(tmp_path: Path) -> None:
    """The newer names of the same settings."""
    from transformers import LlamaConfig

    tiny = VARIANTS["llama3 scaling"]
    folder = write_folder(tmp_path / "m", tiny)
    expected = logits(load(folder), IDS[:60])
    config = {
        k: v for k, v in tiny_config(tiny).items() if k not in ("architectures", "model_type", "torch_dtype")
    }
    LlamaConfig(**config, architectures=["LlamaForCausalLM"]).save_pretrained(folder)
    assert "rope_parameters" in (folder / "config.json").read_text()
    np.testing.assert_allclose(logits(load(folder), IDS[:60]), expected, atol=1e-6)


def test_sizes(tmp_path: Path) -> None:
    tied, untied = load(write_folder(tmp_path / "t", TINY.but(tied=True))), load(write_folder(tmp_path / "u"))
    table = TINY.vocab_size * TINY.width * 4
    assert untied.resident_bytes == 4 * untied.parameters == 4 * describe(tmp_path / "u").parameters
    assert untied.resident_bytes - tied.resident_bytes == table
    assert tied.weight_bytes_per_token == tied.resident_bytes
    assert untied.weight_bytes_per_token == untied.resident_bytes - table + TINY.width * 4
    cache = untied.new_cache(257)
    assert cache.page_count == 2 + 2
    assert cache.nbytes == 4 * 256 * describe(tmp_path / "u").kv_bytes_per_token * 2  # fp32 is twice fp16


def test_describe_gguf_and_folder_of_the_same_model(tmp_path: Path) -> None:
    folder = describe(write_folder(tmp_path / "some-name"))
    file = describe(write_gguf(tmp_path / "m.gguf", TINY, "F32"))
    assert (folder.name, file.name) == ("some-name", "m")
    assert (folder.format, file.format) == ("safetensors", "gguf")
    assert folder.stop_token_ids == (2, 0)
    assert file.stop_token_ids == (2,)
    for info in (folder, file):
        assert info.parameters == sum(values.size for values in tiny_weights(TINY).values())
        assert info.bits_per_weight == 32
        assert (info.layers, info.context_length, info.vocab_size, info.kv_bytes_per_token) == (
            2,
            1024,
            307,
            2 * 2 * 2 * 2 * 32,
        )
        assert info.has_chat_template
        assert info.fallback_template == ""
    bare = describe(write_gguf(tmp_path / "n.gguf", tokenizer__chat_template=None))
    assert (bare.has_chat_template, bare.fallback_template) == (False, "chatml")
    blank = describe(write_gguf(tmp_path / "n.gguf", tokenizer__chat_template=" "))
    assert dataclasses.replace(blank, file_bytes=bare.file_bytes) == bare
    for name in ("chat_template.jinja", "tokenizer_config.json"):
        (tmp_path / "some-name" / name).unlink(missing_ok=True)
    assert describe(tmp_path / "some-name").fallback_template == "chatml"


def test_llama3_factors_and_config_give_the_same_table(tmp_path: Path) -> None:
    tiny = VARIANTS["llama3 scaling"]
    folder, file = (
        load(write_folder(tmp_path / "m", tiny)),
        load(write_gguf(tmp_path / "m.gguf", tiny, "F32")),
    )
    np.testing.assert_allclose(folder.config.rope.divisors, file.config.rope.divisors, rtol=1e-6)
    assert len({round(d, 3) for d in folder.config.rope.divisors}) > 2  # all three cases occur
    assert (folder.config.rope.interleaved, file.config.rope.interleaved) == (False, True)


def test_the_checkpoint_may_be_closed_after_loading(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf"))
    model = finish(read_model(checkpoint, ReferenceBackend()))
    checkpoint.close()
    assert not checkpoint.tensors
    assert np.isfinite(logits(model, IDS[:5])).all()


def _write_config(folder: Path, config: dict[str, object]) -> None:
    (folder / "config.json").write_text(json.dumps(config), "utf-8")


@pytest.mark.real_model
def test_starter_knows_the_capital_of_france(starter_path: Path) -> None:
    from engine.text.tokenizer.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_gguf(dict(open_checkpoint(starter_path).metadata))
    model = load(starter_path)
    ids = tokenizer.encode("The capital of France is")
    ids.append(int(logits(model, ids)[-1].argmax()))
    assert tokenizer.decode(ids) == "The capital of France is Paris"
    info = describe(starter_path)
    assert (info.layers, info.context_length, info.vocab_size, info.kv_bytes_per_token) == (
        30,
        8192,
        49152,
        23040,
    )
    assert info.parameters == model.parameters == 134515008


def test_the_size_is_that_of_the_files(tmp_path: Path) -> None:
    file, folder = write_gguf(tmp_path / "m.gguf"), write_folder(tmp_path / "folder")
    assert describe(file).size == file.stat().st_size > describe(file).weights_bytes
    shards = list(folder.glob("*.safetensors"))
    assert describe(folder).size == sum(shard.stat().st_size for shard in shards)
    assert dataclasses.replace(describe(file), file_bytes=0).size == describe(file).weights_bytes
