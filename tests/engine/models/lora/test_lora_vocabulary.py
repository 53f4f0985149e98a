"""Adapters that give a model another vocabulary: the model with them equals the model that merging makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from engine.backends.cpu.backend import CpuBackend
from engine.errors import BadCheckpoint, BadSetting
from engine.models.lora.apply import apply_adapters
from engine.weights.lora_adapter import open_adapter
from tests.engine.models.families import test_baichuan
from tests.engine.models.lora.test_lora_changes import write
from tests.engine.models.oracle import load, logits
from tests.tiny import TINY, Tiny, tiny_config, tiny_weights, write_folder, write_gguf

Floats = npt.NDArray[np.float32]
IDS = list(np.random.default_rng(9).integers(0, 300, 20))
EMBED, HEAD, QUERY = "model.embed_tokens", "lm_head", "model.layers.0.self_attn.q_proj"


def changed(tiny: Tiny, size: int, seed: int = 3) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """The tensors of an adapter with a vocabulary of this size, and the whole model's weights with it."""
    rng, weights = np.random.default_rng(seed), dict(tiny_weights(tiny))
    tensors: dict[str, Floats] = {}
    for name in (EMBED,) if tiny.tied else (EMBED, HEAD):
        table = rng.standard_normal((size, tiny.width), np.float32)
        table[: tiny.vocab_size] += weights[name + ".weight"][:size]
        weights[name + ".weight"] = tensors[name + ".weight"] = table
    down = tensors[f"{QUERY}.lora_A.weight"] = rng.standard_normal((2, tiny.width), np.float32)
    up = rng.standard_normal((tiny.heads * tiny.head_dim, 2), np.float32)
    tensors[f"{QUERY}.lora_B.weight"] = up
    weights[QUERY + ".weight"] = weights[QUERY + ".weight"] + up @ down
    return tensors, weights


def write_whole(folder: Path, tiny: Tiny, weights: dict[str, Floats], size: int) -> Path:
    """The folder of the model that merging makes."""
    write_folder(folder, tiny)
    (folder / "config.json").write_text(json.dumps(tiny_config(tiny.but(vocab_size=size))))
    save_file(weights, folder / "model.safetensors")
    return folder


CONFIG = {"peft_type": "LORA", "r": 2, "lora_alpha": 2}


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("form", ["folder", "gguf"])
@pytest.mark.parametrize(("tied", "size"), [(False, 311), (True, 311), (False, 301), (True, 340)])
def test_another_vocabulary(tmp_path: Path, tied: bool, size: int, form: str, backend: str) -> None:
    """More tokens or fewer, with tables in two or tied: every logit as of the merged model. A tied head has
    the table that belongs to the model itself (PEFT's `save_embedding_layers`). Without the adapter, the
    model is as before.
    """
    tiny = TINY.but(tied=tied)
    path = write_folder(tmp_path / "m", tiny) if form == "folder" else None
    path = path or write_gguf(tmp_path / "m.gguf", tiny, "F32")
    tensors, weights = changed(tiny, size)
    write(tmp_path / "a", tensors, CONFIG)
    model = load(path, CpuBackend(threads=1)) if backend == "cpu" else load(path)
    plain, ids = logits(model, IDS), [*IDS, size - 1, 7, size - 2]
    apply_adapters(model, [(open_adapter(tmp_path / "a"), 1.0)])
    assert model.config.vocab_size == size
    found = logits(model, ids)
    assert found.shape == (len(ids), size)
    expected = logits(load(write_whole(tmp_path / "w", tiny, weights, size)), ids)
    np.testing.assert_allclose(found, expected, atol=2e-3 if backend == "cpu" else 3e-4)
    apply_adapters(model, [])
    np.testing.assert_array_equal(logits(model, IDS), plain)
    assert model.config.vocab_size == TINY.vocab_size


@pytest.mark.parametrize("form", ["copies", "low-rank head"])
def test_as_peft_saves_it(tmp_path: Path, form: str) -> None:
    """PEFT 0.21.2's names: a module of `modules_to_save` has its matrix twice, and the one before it; of a
    tied head with a low-rank change, the base layer is the table, too.
    """
    tiny = TINY.but(tied=form != "copies")
    tensors, weights = changed(tiny, 311)
    stored, config = {name: tensors[name] for name in tensors if "lora" in name}, dict[str, Any](CONFIG)
    if form == "copies":
        config["modules_to_save"] = ["embed_tokens", "lm_head"]
        for module in (EMBED, HEAD):
            for name in ("", "modules_to_save."):
                stored[f"{module}.{name}weight"] = tensors[module + ".weight"]
            stored[module + ".original_module.weight"] = np.ones((311, tiny.width), np.float32)
    else:
        rng, table = np.random.default_rng(8), tensors[EMBED + ".weight"]
        down = stored[f"{HEAD}.lora_A.weight"] = rng.standard_normal((2, tiny.width)).astype(np.float32)
        up = stored[f"{HEAD}.lora_B.weight"] = rng.standard_normal((311, 2)).astype(np.float32)
        stored[f"{HEAD}.base_layer.weight"] = table
        weights[HEAD + ".weight"] = table + up @ down
    write(tmp_path / "a", stored, config)
    model = load(write_folder(tmp_path / "m", tiny))
    apply_adapters(model, [(open_adapter(tmp_path / "a"), 1.0)])
    ids = [*IDS, 310, 309]
    expected = logits(load(write_whole(tmp_path / "w", TINY, weights, 311)), ids)
    np.testing.assert_allclose(logits(model, ids), expected, atol=3e-4)


def test_two_adapters(tmp_path: Path) -> None:
    """Halves of two strengths, beside one that knows only the model's own tokens: their sum."""
    model = load(write_folder(tmp_path / "m"))
    (one, whole), (other, whole_2) = changed(TINY, 311), changed(TINY, 311, seed=4)
    rng, own = np.random.default_rng(6), dict(tiny_weights(TINY))
    head = {
        f"{HEAD}.lora_A.weight": rng.standard_normal((2, TINY.width), np.float32),
        f"{HEAD}.lora_B.weight": rng.standard_normal((TINY.vocab_size, 2), np.float32),
        f"{EMBED}.token_adapter.trainable_tokens_delta": rng.standard_normal((1, TINY.width), np.float32),
    }
    write(tmp_path / "a", one, CONFIG)
    write(tmp_path / "b", other, CONFIG)
    write(tmp_path / "c", head, CONFIG | {"trainable_token_indices": [5]})
    merged = {}
    for name, values in own.items():
        base = np.zeros_like(whole[name])
        base[: len(values)] = values
        merged[name] = (
            base + np.float32(0.5) * (whole[name] - base) + np.float32(0.25) * (whole_2[name] - base)
        )
    merged[HEAD + ".weight"][:307] += head[f"{HEAD}.lora_B.weight"] @ head[f"{HEAD}.lora_A.weight"]
    delta = head[f"{EMBED}.token_adapter.trainable_tokens_delta"][0]
    merged[EMBED + ".weight"][5] += delta - own[EMBED + ".weight"][5]
    opened = [open_adapter(tmp_path / name) for name in "abc"]
    apply_adapters(model, list(zip(opened, (0.5, 0.25, 1.0), strict=True)))
    ids = [*IDS, 310, 5, 5, 309]
    expected = logits(load(write_whole(tmp_path / "w", TINY, merged, 311)), ids)
    np.testing.assert_allclose(logits(model, ids), expected, atol=5e-4)


def test_a_copy_of_a_tied_table(tmp_path: Path) -> None:
    """A table in `modules_to_save` is a copy: the tied head stays, as in PEFT 0.21.2."""
    tiny = TINY.but(tied=True)
    tensors, weights = changed(tiny, 307)
    write(tmp_path / "a", tensors, CONFIG | {"modules_to_save": ["embed_tokens"]})
    model = load(write_folder(tmp_path / "m", tiny))
    apply_adapters(model, [(open_adapter(tmp_path / "a"), 1.0)])
    weights[HEAD + ".weight"] = tiny_weights(tiny)[EMBED + ".weight"]
    expected = logits(load(write_whole(tmp_path / "w", TINY, weights, 307)), IDS)
    np.testing.assert_allclose(logits(model, IDS), expected, atol=3e-4)


WIDE = np.ones((311, TINY.width), np.float32)
PAIR = {f"{HEAD}.lora_A.weight": WIDE[:2], f"{HEAD}.lora_B.weight": np.ones((311, 2), np.float32)}


@pytest.mark.parametrize(
    ("tensors", "tied", "config"),
    [
        ({f"{EMBED}.weight": WIDE}, False, {}),
        ({f"{HEAD}.weight": WIDE}, False, {}),
        ({f"{HEAD}.weight": WIDE}, True, {"modules_to_save": ["lm_head"]}),
        ({f"{EMBED}.weight": WIDE}, True, {"modules_to_save": ["embed_tokens"]}),
        ({f"{EMBED}.weight": WIDE, f"{HEAD}.weight": WIDE[:309]}, False, {}),
    ],
)
def test_half_a_vocabulary(
    tmp_path: Path, tensors: dict[str, Floats], tied: bool, config: dict[str, Any]
) -> None:
    """An adapter with rows of new tokens for the table or the head alone is refused by one sentence."""
    model = load(write_folder(tmp_path / "m", TINY.but(tied=tied)))
    plain = logits(model, IDS)
    low, _weights = changed(TINY, 307)
    write(tmp_path / "a", {name: low[name] for name in low if "lora" in name} | tensors, CONFIG | config)
    with pytest.raises(BadSetting, match=r"The adapter a has a vocabulary of 3(11|09) tokens, but not both"):
        apply_adapters(model, [(open_adapter(tmp_path / "a"), 1.0)])
    np.testing.assert_array_equal(logits(model, IDS), plain)


def test_of_two_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two adapters with different vocabularies do not go together; nor does a low-rank head of a third. Such
    a head can follow the vocabulary of another adapter, but not with DoRA: the new rows have no length.
    """
    model = load(write_folder(tmp_path / "m"))
    for name, size in (("a", 311), ("b", 312)):
        write(tmp_path / name, changed(TINY, size)[0], CONFIG)
    write(tmp_path / "c", PAIR, CONFIG)
    write(tmp_path / "d", {**PAIR, f"{HEAD}.lora_magnitude_vector": WIDE[:, 0]}, CONFIG | {"use_dora": True})
    one, other, third, scaled = (open_adapter(tmp_path / name) for name in "abcd")
    with pytest.raises(BadSetting, match="a has a vocabulary of 311 tokens and the adapter b one of 312"):
        apply_adapters(model, [(one, 1.0), (other, 1.0)])
    with pytest.raises(BadSetting, match="lm_head as a matrix of 311 x 96, but it has 307 x 96"):
        apply_adapters(model, [(third, 1.0)])
    with pytest.raises(BadSetting, match="d changes lm_head, which this model does not have"):
        apply_adapters(model, [(one, 1.0), (scaled, 1.0)])
    apply_adapters(model, [(one, 1.0), (third, 1.0)])
    assert logits(model, IDS).shape == (len(IDS), 311)
    monkeypatch.setattr("engine.models.lora.checks._can_resize", lambda _model: False)
    with pytest.raises(BadSetting, match="the vocabulary of this model must keep its 307 tokens"):
        apply_adapters(model, [(one, 1.0)])


@pytest.mark.parametrize("tied", [False, True])
def test_tokens_of_a_tied_head(tmp_path: Path, tied: bool) -> None:
    """PEFT saves no rows of a head that is tied to the table. For a model with a head of its own, or for
    other tokens than the table's, they are missing.
    """
    rows = np.random.default_rng(2).standard_normal((2, TINY.width)).astype(np.float32)
    name = f"{EMBED}.token_adapter.trainable_tokens_delta"
    config: dict[str, Any] = CONFIG | {"trainable_token_indices": {"embed_tokens": [5, 6], "lm_head": [5, 6]}}
    write(tmp_path / "a", {name: rows}, config)
    tiny = TINY.but(tied=tied)
    model = load(write_folder(tmp_path / "m", tiny))
    adapter = open_adapter(tmp_path / "a")
    if tied:
        apply_adapters(model, [(adapter, 1.0)])
        weights = dict(tiny_weights(tiny))
        weights[EMBED + ".weight"] = weights[EMBED + ".weight"].copy()
        weights[EMBED + ".weight"][[5, 6]] = rows
        expected = logits(load(write_whole(tmp_path / "w", tiny, weights, 307)), [5, 6, *IDS])
        np.testing.assert_allclose(logits(model, [5, 6, *IDS]), expected, atol=3e-4)
    else:
        with pytest.raises(BadSetting, match=r"changes lm_head\.token_adapter"):
            apply_adapters(model, [(adapter, 1.0)])
    config["trainable_token_indices"]["lm_head"] = [5, 7]
    write(tmp_path / "a", {name: rows}, config)
    with pytest.raises(BadCheckpoint, match="rows of lm_head do not belong together"):
        open_adapter(tmp_path / "a")


def test_tied_head_with_tokens_of_its_own(tmp_path: Path) -> None:
    """Rows of a tied head take its place alone; those of the table are not in it then."""
    tiny, rng = TINY.but(tied=True), np.random.default_rng(2)
    weights = dict(tiny_weights(tiny))
    weights[HEAD + ".weight"] = weights[EMBED + ".weight"].copy()
    weights[EMBED + ".weight"] = weights[EMBED + ".weight"].copy()
    tensors, indices = {}, {"embed_tokens": [5, 6], "lm_head": [6, 7]}
    for module, key in ((EMBED, "embed_tokens"), (HEAD, "lm_head")):
        rows = rng.standard_normal((2, tiny.width)).astype(np.float32)
        tensors[f"{module}.token_adapter.trainable_tokens_delta"] = rows
        weights[module + ".weight"][indices[key]] = rows
    write(tmp_path / "a", tensors, CONFIG | {"trainable_token_indices": indices})
    model = load(write_folder(tmp_path / "m", tiny))
    apply_adapters(model, [(open_adapter(tmp_path / "a"), 1.0)])
    expected = logits(load(write_whole(tmp_path / "w", TINY, weights, 307)), [5, 6, 7, *IDS])
    np.testing.assert_allclose(logits(model, [5, 6, 7, *IDS]), expected, atol=3e-4)


def test_a_normed_head(tmp_path: Path) -> None:
    """Whose rows' lengths are those of the model's own tokens."""
    model = load(test_baichuan.write_folder(tmp_path / "m"))
    wide = np.ones((311, test_baichuan.WIDTH), np.float32)
    gate = "model.layers.0.mlp.gate_proj"
    pair = {f"{gate}.lora_A.weight": wide[:2], f"{gate}.lora_B.weight": np.ones((96, 2), np.float32)}
    write(tmp_path / "a", {f"{EMBED}.weight": wide, f"{HEAD}.weight": wide} | pair, CONFIG)
    with pytest.raises(BadSetting, match="311 tokens, but the vocabulary of this model must keep its 307"):
        apply_adapters(model, [(open_adapter(tmp_path / "a"), 1.0)])
