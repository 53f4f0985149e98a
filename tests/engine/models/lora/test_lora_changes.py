"""What adapters change besides low-rank products equals merged weights: DoRA, biases, whole modules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from engine.backends.cpu.backend import CpuBackend
from engine.errors import BadCheckpoint, BadSetting, EngineError, UnsupportedModel
from engine.models.lora.apply import apply_adapters
from engine.weights.lora_adapter import open_adapter
from tests.engine.models.oracle import load, logits
from tests.tiny import TINY, tiny_weights, write_folder, write_gguf

Floats = npt.NDArray[np.float32]
IDS = list(np.random.default_rng(9).integers(0, 307, 20))
BIASED = TINY.but(attention_bias=True)
PREFIX = "base_model.model."
LAYER = "model.layers.0."
DORA = ("self_attn.q_proj", "self_attn.k_proj", "mlp.down_proj")
RANK, SCALE = 4, 2.0


def write_adapter(folder: Path, weights: dict[str, Floats]) -> tuple[Path, dict[str, Floats]]:
    """An adapter with everything, and what it makes of the weights that it changes, each by its formula."""
    rng, tensors, made = np.random.default_rng(3), {}, {}
    for module in (LAYER + name for name in (*DORA, "self_attn.v_proj")):
        weight = weights[module + ".weight"]
        down = rng.standard_normal((RANK, weight.shape[1]), np.float32)
        up = 0.05 * rng.standard_normal((weight.shape[0], RANK), np.float32)
        tensors |= {f"{module}.lora_A.weight": down, f"{module}.lora_B.weight": up}
        merged = weight + SCALE * up @ down
        if module.endswith(DORA):
            magnitude = rng.uniform(0.5, 3, len(weight)).astype(np.float32)
            tensors[f"{module}.lora_magnitude_vector"] = magnitude
            merged *= (magnitude / np.sqrt((merged**2).sum(1)))[:, None]
        else:
            bias = tensors[f"{module}.lora_B.bias"] = rng.standard_normal(len(weight), np.float32)
            made[module + ".bias"] = weights[module + ".bias"] + np.float32(SCALE) * bias
        made[module + ".weight"] = merged.astype(np.float32)
    for name, stored in (
        (LAYER + "self_attn.k_proj.bias", LAYER + "self_attn.k_proj.base_layer.bias"),
        (LAYER + "self_attn.o_proj.weight", LAYER + "self_attn.o_proj.modules_to_save.weight"),
        ("lm_head.weight", "lm_head.weight"),
        ("model.embed_tokens.weight", "model.embed_tokens.weight"),
    ):
        made[name] = weights[name] + 0.2 * rng.standard_normal(weights[name].shape, np.float32)
        tensors[stored] = made[name]
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 8, "bias": "lora_only"}
    config["modules_to_save"] = ["lm_head", "embed_tokens", "o_proj"]
    write(folder, tensors, config)
    return folder, made


def write(folder: Path, tensors: dict[str, Floats], config: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    save_file(
        {PREFIX + name: values for name, values in tensors.items()}, folder / "adapter_model.safetensors"
    )
    (folder / "adapter_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("form", ["folder", "gguf"])
@pytest.mark.parametrize("strengths", [(1.0,), (0.75, -0.5)])
def test_as_if_merged(tmp_path: Path, form: str, backend: str, strengths: tuple[float, ...]) -> None:
    """Of one adapter, and of one put on twice: each adds its strength times what it changes."""
    weights = dict(tiny_weights(BIASED))
    adapter, changed = write_adapter(tmp_path / "a", weights)
    if form == "folder":
        path = write_folder(tmp_path / "m", BIASED)
    else:
        path = write_gguf(tmp_path / "m.gguf", BIASED, "F32")
    model = load(path, CpuBackend(threads=1)) if backend == "cpu" else load(path)
    plain = logits(model, IDS)
    apply_adapters(model, [(open_adapter(adapter), strength) for strength in strengths])
    found = logits(model, IDS)
    amount = np.float32(sum(strengths))
    merged = {name: weights[name] + amount * (values - weights[name]) for name, values in changed.items()}
    folder = write_folder(tmp_path / "merged", BIASED)
    save_file({**weights, **merged}, folder / "model.safetensors")
    np.testing.assert_allclose(found, logits(load(folder), IDS), atol=1e-3 if backend == "cpu" else 3e-4)
    assert np.abs(found - plain).max() > 0.1
    apply_adapters(model, [])
    np.testing.assert_array_equal(logits(model, IDS), plain)


def test_rows_of_zeros(tmp_path: Path) -> None:
    """A row of zeros has no length: it stays as it is, and nothing is divided by zero."""
    weights = dict(tiny_weights(TINY))
    name = LAYER + "mlp.down_proj"
    weights[name + ".weight"] = np.zeros_like(weights[name + ".weight"])
    folder = write_folder(tmp_path / "m", TINY)
    save_file(weights, folder / "model.safetensors")
    rows, columns = weights[name + ".weight"].shape
    tensors = {
        f"{name}.lora_A.weight": np.ones((2, columns), np.float32),
        f"{name}.lora_B.weight": np.zeros((rows, 2), np.float32),
        f"{name}.lora_magnitude_vector": np.ones(rows, np.float32),
    }
    write(tmp_path / "a", tensors, {"use_dora": True, "lora_alpha": 2})
    model = load(folder)
    plain = logits(model, IDS)
    with np.errstate(all="raise", under="ignore"):
        apply_adapters(model, [(open_adapter(tmp_path / "a"), 1.0)])
    np.testing.assert_array_equal(logits(model, IDS), plain)


PAIR = {
    "x.lora_A.weight": np.ones((2, 3), np.float32), "x.lora_B.weight": np.ones((5, 2), np.float32),
}  # fmt: skip


@pytest.mark.parametrize(
    ("tensors", "config", "words"),
    [
        (PAIR, {"use_dora": True}, "use_dora without lora_magnitude_vector"),
        (PAIR | {"x.lora_magnitude_vector": np.ones(4, np.float32)}, {}, r"magnitude_vector .* shape \(4,\)"),
        (PAIR | {"x.lora_B.bias": np.ones((5, 1), np.float32)}, {}, "lora_B.bias"),
        (PAIR | {"x.lora_A.bias": np.ones(2, np.float32)}, {}, "lora_A.bias"),
        (PAIR | {"x.original_module.weight": np.ones(2, np.float32)}, {}, "original_module"),
        (
            PAIR | {f"x.{name}": np.ones(5, np.float32) for name in ("lora_B.bias", "lora_magnitude_vector")},
            {},
            "use_dora, lora_bias",
        ),
        (PAIR, {"alora_invocation_tokens": [5, 6]}, "alora_invocation_tokens"),
        (PAIR, {"layer_replication": [[0, 2], [1, 3]]}, "layer_replication"),
        (PAIR, {"use_qalora": True}, "use_qalora"),
        (PAIR, {"target_parameters": ["mlp.experts.up"]}, "target_parameters"),
        (PAIR, {"init_lora_weights": "pissa_niter_16"}, "init_lora_weights: pissa_niter_16"),
        (PAIR, {"init_lora_weights": "OLoRA"}, "init_lora_weights: olora"),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, tensors: dict[str, Floats], config: dict[str, Any], words: str) -> None:
    """What an adapter has besides is refused by one sentence, and never left out."""
    write(tmp_path / "a", tensors, config)
    with pytest.raises(UnsupportedModel, match=words):
        open_adapter(tmp_path / "a")


@pytest.mark.parametrize(
    "tensors",
    [
        {"model.embed_tokens.weight": np.ones((308, 96), np.float32)},
        {"model.embed_tokens.bias": np.ones(307, np.float32)},
        {"model.norm.weight": np.ones((96, 1), np.float32)},
        {"lm_head.weight": np.ones((307, 95), np.float32)},
        {"lm_head.bias": np.ones(300, np.float32)},
        {
            "model.embed_tokens.lora_A.weight": np.ones((2, 96), np.float32),
            "model.embed_tokens.lora_B.weight": np.ones((307, 2), np.float32),
        },
    ],
)
def test_no_place(tmp_path: Path, tensors: dict[str, Floats]) -> None:
    """A resized vocabulary, norms and low-rank embeddings are refused, with the model as before."""
    model = load(write_folder(tmp_path / "m", TINY))
    plain = logits(model, IDS)
    name = LAYER + "mlp.down_proj"
    pair = {
        f"{name}.lora_A.weight": np.ones((1, 160), np.float32),
        f"{name}.lora_B.weight": np.ones((96, 1), np.float32),
    }
    write(tmp_path / "a", pair | tensors, {})
    adapter = open_adapter(tmp_path / "a")
    resized = any(len(values) == 308 for values in tensors.values())
    named = next(iter(tensors)).split(".")[0]
    with pytest.raises(BadSetting, match="vocabulary of 308 tokens" if resized else named):
        apply_adapters(model, [(adapter, 1.0)])
    np.testing.assert_array_equal(logits(model, IDS), plain)


TOKENS = [77, 5, 300]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("form", ["folder", "gguf"])
@pytest.mark.parametrize("modules", ["list", "dict"])
def test_trained_tokens(tmp_path: Path, form: str, tied: bool, modules: str) -> None:
    """`trainable_token_indices`: rows of some tokens take the place of the table's, and with tied tables of
    the head's, too; PEFT 0.21.2's own logits of such adapters were the same.
    """
    tiny, rng = TINY.but(tied=tied), np.random.default_rng(4)
    weights = dict(tiny_weights(tiny))
    path = (
        write_folder(tmp_path / "m", tiny)
        if form == "folder"
        else write_gguf(tmp_path / "m.gguf", tiny, "F32")
    )
    rows = {"model.embed_tokens": rng.standard_normal((3, tiny.width), np.float32)}
    indices: Any = TOKENS if modules == "list" else {"embed_tokens": TOKENS}
    if modules == "dict" and not tied:
        rows["lm_head"], indices["lm_head"] = rng.standard_normal((3, tiny.width), np.float32), TOKENS
    query = LAYER + "self_attn.q_proj"
    low = {f"{query}.lora_A.weight": rng.standard_normal((2, tiny.width), np.float32)}
    low[f"{query}.lora_B.weight"] = rng.standard_normal((tiny.heads * tiny.head_dim, 2), np.float32)
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "trainable_token_indices": indices}
    delta = ".token_adapter.trainable_tokens_delta"
    write(tmp_path / "a", {module + delta: values for module, values in rows.items()} | low, config)
    for module, values in rows.items():
        changed = weights[module + ".weight"].copy()
        changed[TOKENS] += np.float32(0.5) * (values - changed[TOKENS])
        weights[module + ".weight"] = changed
    product = low[f"{query}.lora_B.weight"] @ low[f"{query}.lora_A.weight"]
    weights[query + ".weight"] = weights[query + ".weight"] + np.float32(0.5) * product
    save_file(weights, write_folder(tmp_path / "merged", tiny) / "model.safetensors")
    model, ids = load(path), [5, 1, 77, 77, 300, *IDS]
    plain = logits(model, ids)
    apply_adapters(model, [(open_adapter(tmp_path / "a"), 0.5)])
    found = logits(model, ids)
    np.testing.assert_allclose(found, logits(load(tmp_path / "merged"), ids), atol=2e-4)
    assert np.abs(found - plain)[:, TOKENS].max() > 0.1
    apply_adapters(model, [])
    np.testing.assert_array_equal(logits(model, ids), plain)


@pytest.mark.parametrize(
    ("indices", "module", "rows", "kind", "message"),
    [
        ([5, 6, 7], "model.embed_tokens", 2, BadCheckpoint, "rows of model.embed_tokens do not belong"),
        ([5, 5], "model.embed_tokens", 2, BadCheckpoint, "do not belong together"),
        ([5, -1], "model.embed_tokens", 2, BadCheckpoint, "do not belong together"),
        ({"lm_head": [5, 6]}, "model.embed_tokens", 2, BadCheckpoint, "do not belong together"),
        (None, "model.embed_tokens", 2, BadCheckpoint, "do not belong together"),
        ([5, 307], "model.embed_tokens", 2, BadSetting, "a matrix of 308 x 96, but it has 307 x 96"),
        ([5, 6], LAYER + "self_attn.q_proj", 2, BadSetting, "self_attn.q_proj"),
    ],
)  # fmt: skip
def test_tokens_that_do_not_fit(
    tmp_path: Path, indices: Any, module: str, rows: int, kind: type[EngineError], message: str
) -> None:
    model = load(write_folder(tmp_path / "m", TINY))
    plain = logits(model, IDS)
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "trainable_token_indices": indices}
    name = module + ".token_adapter.trainable_tokens_delta"
    write(tmp_path / "a", {name: np.ones((rows, 96), np.float32)}, config)
    with pytest.raises(kind, match=message):
        apply_adapters(model, [(open_adapter(tmp_path / "a"), 1.0)])
    np.testing.assert_array_equal(logits(model, IDS), plain)
