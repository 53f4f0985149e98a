"""LoRA adapters in GGUF files equal the same adapters as PEFT folders, on GGUF files and on folders."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from engine.chat import finished, open_chat
from engine.core import ChatRequest, Message, Text
from engine.errors import BadCheckpoint, BadSetting, EngineError, ModelNotFound, UnsupportedModel
from engine.models.load import find_architecture
from engine.models.lora.apply import apply_adapters
from engine.settings import AdapterSettings, CacheSettings, LoadSettings, SamplerSettings, StopSettings
from engine.weights import open_checkpoint
from engine.weights.lora_adapter import open_adapter
from tests.engine.models.lora.lora_files import Pair, write_gguf_adapter
from tests.engine.models.lora.test_lora import IDS, matrices, write_adapter
from tests.engine.models.oracle import load, logits
from tests.tiny import (
    TINY,
    Tiny,
    _gguf_name,
    _interleaved,
    _rotary_heads,
    tiny_weights,
    write_folder,
    write_gguf,
)
from tests.tiny_quants import dequantise, quantise

Floats = npt.NDArray[np.float32]
SOME = IDS[:20]


def gguf_pairs(seed: int = 5, rank: int = 4) -> dict[str, Pair]:
    """The matrices of `write_adapter` by the names of GGUF files and in their order of rows."""
    pairs = {}
    for name, (down, up) in matrices(seed, rank).items():
        heads = _rotary_heads(name + ".weight", TINY)
        pairs[_gguf_name(name + ".weight")] = down, _interleaved(up, heads) if heads else up
    return pairs


def model_of(tmp_path: Path, form: str, tiny: Tiny = TINY) -> Path:
    if form == "folder":
        return write_folder(tmp_path / "m", tiny)
    return write_gguf(tmp_path / "m.gguf", tiny, "F32")


@pytest.mark.parametrize("form", ["folder", "gguf"])
def test_as_the_peft_folder(tmp_path: Path, form: str) -> None:
    """Two at once, each with its strength; a PEFT folder and a GGUF file may stand side by side."""
    model = load(model_of(tmp_path, form))
    plain = logits(model, SOME)
    folders = [open_adapter(write_adapter(tmp_path / str(seed), seed)) for seed in (5, 6)]
    files = [
        open_adapter(
            write_gguf_adapter(tmp_path / f"{seed}.gguf", gguf_pairs(seed), adapter__lora__alpha=8.0)
        )
        for seed in (5, 6)
    ]
    apply_adapters(model, [(folders[0], 1.0), (folders[1], -0.5)])
    expected = logits(model, SOME)
    assert np.abs(expected - plain).max() > 0.1
    for both in (files, [files[0], folders[1]], [folders[0], files[1]]):
        apply_adapters(model, [(both[0], 1.0), (both[1], -0.5)])
        np.testing.assert_allclose(logits(model, SOME), expected, atol=1e-5)
    apply_adapters(model, [])
    np.testing.assert_array_equal(logits(model, SOME), plain)


def test_alpha(tmp_path: Path) -> None:
    """It is divided by the rank; 0, or none, leaves the product as it is."""
    for alpha, scale in ((8.0, 2.0), (2.0, 0.5), (0.0, 1.0), (None, 1.0)):
        path = write_gguf_adapter(tmp_path / "a.gguf", gguf_pairs(), adapter__lora__alpha=alpha)
        assert {change.scale for change in open_adapter(path).modules.values()} == {scale}


@pytest.mark.parametrize("type_name", ["F16", "BF16", "Q8_0", "Q4_1"])
def test_types(tmp_path: Path, type_name: str) -> None:
    """The matrices count as what their types hold; a rank of 32 fits the blocks."""
    pairs = gguf_pairs(rank=32)
    path = write_gguf_adapter(tmp_path / "a.gguf", pairs, type_name=type_name)
    held = {
        name: tuple(dequantise(quantise(np.ascontiguousarray(side), type_name), type_name) for side in pair)
        for name, pair in pairs.items()
    }
    exact = write_gguf_adapter(tmp_path / "b.gguf", held)
    model, found = load(model_of(tmp_path, "gguf")), []
    for file in (path, exact):
        apply_adapters(model, [(open_adapter(file), 0.1)])
        found.append(logits(model, SOME))
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


@pytest.mark.parametrize("form", ["folder", "gguf"])
@pytest.mark.parametrize("tied", [False, True])
def test_embeddings(tmp_path: Path, form: str, tied: bool) -> None:
    """Of a table of embeddings A has its rows. The head of a tied table stays as it is, as with PEFT."""
    tiny, rng = TINY.but(tied=tied), np.random.default_rng(3)
    a, b = rng.standard_normal((307, 3), np.float32), 0.1 * rng.standard_normal((96, 3), np.float32)
    adapter = open_adapter(
        write_gguf_adapter(tmp_path / "a.gguf", {"token_embd.weight": (a, b)}, adapter__lora__alpha=6.0)
    )
    weights = dict(tiny_weights(tiny))
    path = (
        write_folder(tmp_path / "m", tiny)
        if form == "folder"
        else write_gguf(tmp_path / "m.gguf", tiny, "F32")
    )
    model = load(path)
    apply_adapters(model, [(adapter, 0.75)])
    embedding = "model.embed_tokens.weight"
    untied = write_folder(tmp_path / "n", TINY)
    head = weights[embedding] if tied else weights["lm_head.weight"]
    merged = weights | {embedding: weights[embedding] + np.float32(1.5) * (a @ b.T), "lm_head.weight": head}
    save_file(merged, untied / "model.safetensors")
    np.testing.assert_allclose(logits(model, SOME), logits(load(untied), SOME), atol=2e-4)


PAIR: Pair = np.ones((2, 96), np.float32), np.ones((64, 2), np.float32)
VALUE = "blk.0.attn_v.weight"
BAD: dict[str, tuple[dict[str, Any], type[EngineError], str]] = {
    "a model": ({"general__type": "model"}, UnsupportedModel, "holds no LoRA adapter .* 'model'"),
    "an old model": ({"general__type": None}, UnsupportedModel, "holds no LoRA adapter"),
    "a kind": ({"adapter__type": "ia3"}, UnsupportedModel, "of the kind 'ia3'; only LoRA"),
    "no kind": ({"adapter__type": None}, UnsupportedModel, "only LoRA"),
    "activated": ({"adapter__alora__invocation_tokens": [5, 6]}, UnsupportedModel, "sets adapter.alora"),
    "alpha": ({"adapter__lora__alpha": "much"}, BadCheckpoint, "adapter.lora.alpha is 'much'; a number"),
    "infinite": ({"adapter__lora__alpha": float("inf")}, BadCheckpoint, "a number was expected"),
    "no matrices": ({"pairs": {}}, BadCheckpoint, "no LoRA matrices"),
    "ranks": ({"pairs": {VALUE: (PAIR[0], PAIR[1][:, :1])}}, BadCheckpoint, "have the shapes"),
    "ranks of a table": (
        {"pairs": {"token_embd.weight": (np.ones((307, 2), np.float32), np.ones((96, 3), np.float32))}},
        BadCheckpoint, "have the shapes",
    ),
    "a stack": (
        {"pairs": {"x.weight": (np.ones((4, 2, 96), np.float32), np.ones((4, 64, 2), np.float32))}},
        UnsupportedModel, "not a LoRA matrix",
    ),
    "half": ({"others": {"blk.0.attn_q.weight.lora_a": PAIR[0]}}, BadCheckpoint, "only one of its two"),
    "a norm": ({"others": {"blk.0.attn_norm.weight": PAIR[0][0]}}, UnsupportedModel, "not a LoRA matrix"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_refused(tmp_path: Path, name: str) -> None:
    """Each with one sentence that names the file."""
    given, error, words = BAD[name]
    with pytest.raises(error, match=words) as raised:
        open_adapter(write_gguf_adapter(tmp_path / "a.gguf", **{"pairs": {VALUE: PAIR}, **given}))
    assert str(raised.value).startswith("a.gguf")
    assert "\n" not in str(raised.value)


def test_damaged_and_mistaken_files(tmp_path: Path) -> None:
    """A file that ends early, one that is no GGUF file, and an adapter as a model."""
    path = write_gguf_adapter(tmp_path / "a.gguf", {VALUE: PAIR})
    with pytest.raises(UnsupportedModel, match="choose this file as its adapter"):
        find_architecture(open_checkpoint(path))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(BadCheckpoint, match="bytes of data"):
        open_adapter(path)
    path.write_bytes(b"nothing")
    with pytest.raises(BadCheckpoint, match="not a GGUF file"):
        open_adapter(path)


def test_a_folder_with_one_file(tmp_path: Path) -> None:
    """As it is downloaded; of two files one must be chosen."""
    write_gguf_adapter(tmp_path / "a.gguf", {VALUE: PAIR})
    assert set(open_adapter(tmp_path).modules) == {"blk.0.attn_v"}
    write_gguf_adapter(tmp_path / "b.gguf", {VALUE: PAIR})
    with pytest.raises(ModelNotFound, match="or a LoRA adapter's GGUF file"):
        open_adapter(tmp_path)


WRONG: dict[str, tuple[dict[str, Pair], str, str]] = {
    "architecture": ({VALUE: PAIR}, "qwen2", "architecture 'qwen2', but this model is of 'llama"),
    "module": ({"blk.7.attn_v.weight": PAIR}, "llama", r"changes blk\.7\.attn_v"),
    "columns": ({VALUE: (PAIR[0][:, :64], PAIR[1])}, "llama", "64 x 64, but it has 64 x 96"),
    "rows": ({VALUE: (PAIR[0], PAIR[1][:63])}, "llama", "63 x 96, but it has 64 x 96|of other shapes"),
    "rows of heads": (
        {"blk.0.attn_q.weight": (PAIR[0], np.ones((63, 2), np.float32))}, "llama",
        "63 x 96, but it has 192 x 96|of other shapes",
    ),
    "table": (
        {"token_embd.weight": (np.ones((300, 2), np.float32), np.ones((96, 2), np.float32))}, "llama",
        "300 x 96, but it has 307 x 96|of other shapes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", ["folder", "gguf"])
@pytest.mark.parametrize("name", WRONG)
def test_an_adapter_of_another_model(tmp_path: Path, form: str, name: str) -> None:
    """One sentence, and the model stays as it is."""
    pairs, architecture, words = WRONG[name]
    model = load(model_of(tmp_path, form))
    before = logits(model, SOME[:8])
    adapter = open_adapter(write_gguf_adapter(tmp_path / "a.gguf", pairs, architecture))
    with pytest.raises(BadSetting, match=words):
        apply_adapters(model, [(adapter, 1.0)])
    np.testing.assert_array_equal(logits(model, SOME[:8]), before)


@pytest.mark.slow
def test_in_a_chat(tmp_path: Path) -> None:
    """A line of the settings names the file; the reply is that with the PEFT folder."""
    path = write_gguf(tmp_path / "m.gguf", TINY, "F16")
    chat = finished(open_chat(path, LoadSettings(threads=1), CacheSettings(context_length=512)))

    def reply(*lines: str) -> list[int]:
        request = ChatRequest(
            (Message("user", "tell me a story"),), SamplerSettings(temperature=0.0),
            StopSettings(max_tokens=12), adapters=AdapterSettings(lines),
        )  # fmt: skip
        events = chat.stream(request, threading.Event())
        return [token.id for event in events if isinstance(event, Text) for token in event.tokens]

    file = write_gguf_adapter(tmp_path / "a.gguf", gguf_pairs(), adapter__lora__alpha=8.0)
    plain, found, expected = reply(), reply(f"{file} = 0.5"), reply(f"{write_adapter(tmp_path / 'a')} = 0.5")
    chat.close()
    assert found == expected != plain
