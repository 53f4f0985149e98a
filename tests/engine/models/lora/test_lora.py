"""LoRA adapters on folders and GGUF files equal merged weights, without loading the model again."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from engine.chat import finished, open_chat
from engine.core import ChatRequest, Done, Loading, Message, Text
from engine.errors import BadCheckpoint, BadSetting, Cancelled, EngineError, ModelNotFound, UnsupportedModel
from engine.generator.adapter_slot import AdapterSlot, parse_adapters
from engine.models.lora.apply import apply_adapters
from engine.settings import AdapterSettings, CacheSettings, LoadSettings, SamplerSettings, StopSettings
from engine.weights.lora_adapter import open_adapter
from tests.engine.models.oracle import load, logits
from tests.tiny import TINY, tiny_weights, write_folder, write_gguf

Floats = npt.NDArray[np.float32]
IDS = list(np.random.default_rng(9).integers(0, 307, 40))
MODULES = {
    "self_attn.q_proj": (192, 96),
    "self_attn.k_proj": (64, 96),
    "self_attn.o_proj": (96, 192),
    "mlp.down_proj": (96, 160),
}


def matrices(seed: int, rank: int = 4) -> dict[str, tuple[Floats, Floats]]:
    """{module: (A, B)} for some of the tiny model's modules and its head."""
    rng = np.random.default_rng(seed)
    shapes = {f"model.layers.{layer}.{name}": shape for layer in range(2) for name, shape in MODULES.items()}
    shapes["lm_head"] = (307, 96)
    return {
        name: (rng.standard_normal((rank, k), np.float32), 0.05 * rng.standard_normal((n, rank), np.float32))
        for name, (n, k) in shapes.items()
    }


def write_adapter(folder: Path, seed: int = 5, *, prefix: str = "base_model.model.", **config: Any) -> Path:
    """Write an adapter as PEFT does, of rank 4 and alpha 8 (scale 2)."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, (down, up) in matrices(seed).items():
        tensors[f"{prefix}{name}.lora_A.weight"], tensors[f"{prefix}{name}.lora_B.weight"] = down, up
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8} | config)
    )
    return folder


def changed(*changes: tuple[int, float]) -> dict[str, Floats]:
    """The oracle: the tiny model's weights with the products of these (seed, scale) added."""
    weights = dict(tiny_weights(TINY))
    for seed, scale in changes:
        for name, (down, up) in matrices(seed).items():
            weights[name + ".weight"] = weights[name + ".weight"] + np.float32(scale) * (up @ down)
    return weights


def expected(tmp_path: Path, *changes: tuple[int, float]) -> Floats:
    """Logits of a model with the adapters merged."""
    folder = write_folder(tmp_path / "merged", TINY)
    save_file(changed(*changes), folder / "model.safetensors")
    return logits(load(folder), IDS[:20])


@pytest.mark.parametrize("form", ["folder", "gguf"])
def test_as_if_merged(tmp_path: Path, form: str) -> None:
    """Two adapters of different strengths; GGUF files have rows of queries and keys in another order."""
    path = (
        write_folder(tmp_path / "m", TINY)
        if form == "folder"
        else write_gguf(tmp_path / "m.gguf", TINY, "F32")
    )
    model = load(path)
    plain = logits(model, IDS[:20])
    first, second = (
        open_adapter(write_adapter(tmp_path / "a")),
        open_adapter(write_adapter(tmp_path / "b", 6, use_rslora=True)),
    )
    apply_adapters(model, [(first, 1.0), (second, -0.5)])
    found = logits(model, IDS[:20])
    np.testing.assert_allclose(found, expected(tmp_path, (5, 2.0), (6, -2.0)), atol=2e-4)
    assert np.abs(found - plain).max() > 0.1
    apply_adapters(model, [])
    np.testing.assert_array_equal(logits(model, IDS[:20]), plain)


def test_patterns_and_names(tmp_path: Path) -> None:
    """alpha_pattern overrides; names with the adapter's name, or without PEFT's prefix, are accepted."""
    folder = write_adapter(tmp_path / "a", alpha_pattern={"self_attn.q_proj": 4, "lm_head": 0})
    modules = open_adapter(folder).modules
    scales = {name: change.scale for name, change in modules.items()}
    assert (
        scales["model.layers.0.self_attn.q_proj"],
        scales["model.layers.1.mlp.down_proj"],
        scales["lm_head"],
    ) == (1.0, 2.0, 0.0)
    assert set(open_adapter(write_adapter(tmp_path / "b", prefix="")).modules) == set(modules)
    regular = {r"model.*layers\.0\..*(q|down)_proj": 4, "down_proj": 12}
    modules = open_adapter(write_adapter(tmp_path / "c", alpha_pattern=regular)).modules
    names = ("0.self_attn.q_proj", "0.mlp.down_proj", "1.mlp.down_proj", "1.self_attn.q_proj")
    assert [modules[f"model.layers.{name}"].scale for name in names] == [1.0, 1.0, 3.0, 2.0]


BAD: dict[str, tuple[dict[str, Any], type[EngineError], str]] = {
    "kind": ({"peft_type": "PROMPT_TUNING"}, UnsupportedModel, "only LoRA"),
    "dora": ({"use_dora": True}, UnsupportedModel, "use_dora"),
    "tokens": (
        {"trainable_token_indices": [5]},
        BadCheckpoint,
        "trainable_token_indices and the rows of emb",
    ),
    "alpha": ({"lora_alpha": "much"}, BadCheckpoint, "lora_alpha"),
    "pattern": ({"alpha_pattern": {"(a+)+": 4}}, UnsupportedModel, "sets alpha_pattern '"),
    "patterns of a text": ({"alpha_pattern": "q_proj"}, UnsupportedModel, "sets alpha_pattern 'q_proj'"),
    "pattern of many": ({"alpha_pattern": {"a{9999999999}": 4}}, UnsupportedModel, "sets alpha_pattern '"),
    "deep pattern": ({"alpha_pattern": {"(" * 499 + ")" * 499: 4}}, UnsupportedModel, "sets alpha_pattern '"),
    "broken pattern": ({"alpha_pattern": {"(": 4}}, UnsupportedModel, "sets alpha_pattern '"),
    "infinite": ({"lora_alpha": float("inf")}, BadCheckpoint, "lora_alpha"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_adapters(tmp_path: Path, name: str) -> None:
    """Each is refused with one sentence."""
    config, error, words = BAD[name]
    with pytest.raises(error, match=words):
        open_adapter(write_adapter(tmp_path / "a", **config))


def test_missing_files_and_tensors(tmp_path: Path) -> None:
    """No configuration, no weights, half a pair, another shape, an unknown tensor."""
    with pytest.raises(ModelNotFound, match=r"adapter_config\.json"):
        open_adapter(tmp_path)
    folder = write_adapter(tmp_path / "a")
    file = folder / "adapter_model.safetensors"
    for tensors, words in (
        ({"x.lora_A.weight": np.ones((2, 3), np.float32)}, "only one of its two"),
        (
            {"x.lora_A.weight": np.ones((2, 3), np.float32), "x.lora_B.weight": np.ones((5, 3), np.float32)},
            "have the shapes",
        ),
        ({"x.lora_embedding_A": np.ones((2, 3), np.float32)}, "not a LoRA matrix"),
        ({}, "no LoRA matrices"),
    ):
        save_file(tensors, file)
        with pytest.raises(EngineError, match=words):
            open_adapter(folder)
    file.unlink()
    with pytest.raises(ModelNotFound, match=r"adapter_model\.safetensors"):
        open_adapter(folder)


def test_an_adapter_of_another_model(tmp_path: Path) -> None:
    """The model stays unchanged."""
    model = load(write_folder(tmp_path / "m", TINY.but(layers=1)))
    before = logits(model, IDS[:8])
    with pytest.raises(BadSetting, match=r"changes model\.layers\.1\."):
        apply_adapters(model, [(open_adapter(write_adapter(tmp_path / "a")), 1.0)])
    np.testing.assert_array_equal(logits(model, IDS[:8]), before)
    other = load(write_folder(tmp_path / "n", TINY.but(ffn_width=128)))
    with pytest.raises(BadSetting, match="160, but it has 96 x 128"):
        apply_adapters(other, [(open_adapter(tmp_path / "a"), 1.0)])


def test_lines(tmp_path: Path) -> None:
    """ "folder = strength"; 0 means none; the name of a folder may contain an equals sign."""
    odd = tmp_path / "a=b"
    odd.mkdir()
    assert parse_adapters([" /x ", "", "/y = 0.5", "/z=0", str(odd), f"{odd} = 2"]) == (
        ("/x", 1.0), ("/y", 0.5), (str(odd), 1.0), (str(odd), 2.0),
    )  # fmt: skip
    assert parse_adapters(["/x = -100", "/y = 100"]) == (("/x", -100.0), ("/y", 100.0))
    for line in ("/x = much", "/x = nan", "/x = 100.5", "/x = -100.5"):
        with pytest.raises(BadSetting, match="strength"):
            parse_adapters([line])


def test_loading_adapters_can_be_stopped(tmp_path: Path) -> None:
    """Before each file, after its progress; the model is as before."""
    lines = [str(write_adapter(tmp_path / name)) for name in ("a", "b")]
    stop = threading.Event()
    model: Any = SimpleNamespace(key="")
    slot = AdapterSlot(model)
    loading = slot.make_usual(lines, stop)
    assert next(loading) == Loading("Loading the adapters", 0, 2)
    assert next(loading) == Loading("Loading the adapters", 1, 2)
    stop.set()
    with pytest.raises(Cancelled, match="Loading the adapters was stopped"):
        next(loading)
    assert (slot.usual, model.key) == ((), "")


@pytest.mark.slow
def test_in_a_chat(tmp_path: Path) -> None:
    """Adapters change between replies; what is cached for one set is not used for another."""
    path = write_gguf(tmp_path / "m.gguf", TINY, "F16")
    adapter = write_adapter(tmp_path / "a")
    chat = finished(open_chat(path, LoadSettings(threads=1), CacheSettings(context_length=512)))

    def reply(*lines: str) -> tuple[list[int], int]:
        request = ChatRequest(
            (Message("user", "tell me a story"),), SamplerSettings(temperature=0.0),
            StopSettings(max_tokens=12), adapters=AdapterSettings(lines),
        )  # fmt: skip
        events = list(chat.stream(request, threading.Event()))
        assert isinstance(events[-1], Done)
        assert any(isinstance(event, Loading) for event in events) == bool(lines and lines != last[0])
        last[0] = lines
        ids = [token.id for event in events if isinstance(event, Text) for token in event.tokens]
        return ids, events[-1].stats.cached_tokens

    last: list[tuple[str, ...]] = [()]
    plain, cached = reply()
    changed_ids, changed_cached = reply(str(adapter))
    again, again_cached = reply(str(adapter))
    back, back_cached = reply()
    chat.close()
    assert plain == back
    assert changed_ids == again != plain
    assert (cached, changed_cached) == (0, 0)
    assert again_cached > 0
    assert back_cached > 0
