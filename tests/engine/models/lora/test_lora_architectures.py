"""LoRA on every architecture: an adapter of each linear module equals merged matrices, in folders and GGUF
files.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.errors import BadSetting
from engine.models.lora.apply import apply_adapters
from engine.weights import open_checkpoint
from engine.weights.lora_adapter import open_adapter
from tests.engine.models.architectures import Case, ids, write_case_gguf, write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.lora.lora_files import write_gguf_adapter
from tests.engine.models.oracle import load, logits

FEW = ("InternLM 2", "GPT-2", "Phi-3, Phi-4", "GLM-4", "Qwen 3.5")
VARIANTS = ("Llama, biases, tied, own head dimension", "Molmo 2, norms behind, a rope without scaling")
"""Besides the first case of each family. Adapters of Molmo 2 have modules that its makers' files fuse."""
NAMES = [
    pytest.param(name, marks=[] if name in FEW else [pytest.mark.slow])
    for name, case in BY_NAME.items()
    if name in VARIANTS or (not case.variant and name != "Molmo 2")
]
RANK = 3
TRANSPOSED = ("gpt2", "openai-gpt")
"""Model types whose files hold matrices with the inputs first."""
SCALED = ("Falcon-H1",)
"""Cases whose GGUF files hold multipliers in their weights."""
_INKLING_2 = {
    "model.llm.unembed": "lm_head", "model.llm.embed": "model.embed_tokens", "model.llm.": "model.",
    ".attn.": ".self_attn.", ".wq_du": ".q_proj.linear", ".wk_dv": ".k_proj.linear",
    ".wv_dv": ".v_proj.linear", ".wo_ud": ".o_proj.linear", ".gate_attn": ".o_proj.gate_proj",
    ".attn_sink_proj": ".sink_proj", ".wr_du": ".relative_position_bias.linear",
}  # fmt: skip
MODULES = {
    "Inkling 2": _INKLING_2,
    "Inkling 2 Mini": _INKLING_2,
    "Cosmos 3 Edge": {
        ".to_q": ".q_proj", ".to_k": ".k_proj", ".to_v": ".v_proj", ".to_out": ".o_proj",
        "mlp.up_proj": "mlp.fc1", "mlp.down_proj": "mlp.fc2",
    },
    "DeepSeek V4": {
        ".attn.": ".self_attn.", ".ffn.": ".mlp.", ".wq_a": ".q_a_proj", ".wq_b": ".q_b_proj",
        ".wkv": ".kv_proj", ".wo_b": ".o_b_proj", ".w1": ".gate_proj", ".w2": ".down_proj",
        ".w3": ".up_proj",
    },
}  # fmt: skip
"""The names of modules that adapters are trained on, where the makers' files have others."""
FUSED = ("DBRX",)
"""Cases with three matrices a layer: of queries, keys and values, of the output and of the router. Those of
all experts are one tensor, which no adapter changes.
"""
ROUTERS = ("JetMoE",)
"""Cases whose other matrices are experts', or make keys and values at once."""


def adapter_and_merged(case: Case, folder: Path, tmp_path: Path) -> tuple[Path, Path]:
    """An adapter of all modules that a model has slots for, and the folder with its changes merged. Its table
    of embeddings is trained whole, unless it is the head, too.
    """
    rng = np.random.default_rng(3)
    tensors = load_file(folder / "model.safetensors")
    changes, model = {}, load(folder)
    for name in [key.removesuffix(".weight") for key in tensors]:
        module = name
        for theirs, trained in MODULES.get(case.name, {}).items():
            module = module.replace(theirs, trained)
        if name + ".weight" not in tensors or module not in model.slots:
            continue
        values = tensors[name + ".weight"]
        if model.slots[module].is_embedding:
            if not model.config.tied:
                tensors[name + ".weight"] = values + 0.1 * rng.standard_normal(values.shape, np.float32)
                changes[f"base_model.model.{module}.weight"] = tensors[name + ".weight"]
            continue
        (n, k) = values.shape[::-1] if case.model_type in TRANSPOSED and name != "lm_head" else values.shape
        down, up = (
            rng.standard_normal((RANK, k), np.float32),
            0.03 * rng.standard_normal((n, RANK), np.float32),
        )
        (
            changes[f"base_model.model.{module}.lora_A.weight"],
            changes[f"base_model.model.{module}.lora_B.weight"],
        ) = down, up
        product = up @ down
        tensors[name + ".weight"] = values + (
            product.T if product.shape != values.shape or case.model_type in TRANSPOSED else product
        )
    adapter, merged = tmp_path / "adapter", tmp_path / "merged"
    for made in (adapter, merged):
        made.mkdir()
    save_file(changes, adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "r": RANK, "lora_alpha": RANK})
    )
    for file in folder.iterdir():
        if file.suffix != ".safetensors":
            (merged / file.name).write_bytes(file.read_bytes())
    save_file(
        {name: np.ascontiguousarray(values).reshape(values.shape) for name, values in tensors.items()},
        merged / "model.safetensors",
    )
    return adapter, merged


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("name", NAMES)
def test_as_if_merged(name: str, tmp_path: Path) -> None:
    """GGUF files may have the rows in another order."""
    case = BY_NAME[name]
    folder = write_checkpoint(case, tmp_path / "model")
    adapter, merged = adapter_and_merged(case, folder, tmp_path)
    tokens = ids(24)
    expected, plain = (logits(load(path), tokens, context=case.length) for path in (merged, folder))
    config = load(folder).config
    least = 2 if config.one_part or name in ROUTERS else 3 if name in FUSED else 4
    assert len(open_adapter(adapter).modules) >= least * config.layers
    assert np.abs(expected - plain).max() > 0.01 * np.abs(plain).max()
    file = None if case.gguf is None else write_case_gguf(case, folder, tmp_path / "m.gguf")
    for path in [folder] if file is None else [folder, file]:
        model = load(path)
        if name in SCALED and path is not folder:
            with pytest.raises(BadSetting, match="load the model's safetensors folder"):
                apply_adapters(model, [(open_adapter(adapter), 1.0)])
            continue
        apply_adapters(model, [(open_adapter(adapter), 1.0)])
        np.testing.assert_allclose(
            logits(model, tokens, context=case.length), expected, atol=2e-4 * np.abs(expected).max()
        )
    if file is None:
        return
    differing = differing_adapter(
        file, write_case_gguf(case, merged, tmp_path / "n.gguf"), tmp_path / "a.gguf"
    )
    for path in (file, folder):
        model = load(path)
        if name in SCALED and path is folder:
            with pytest.raises(BadSetting, match="load the model's GGUF file instead"):
                apply_adapters(model, [(open_adapter(differing), 1.0)])
            continue
        apply_adapters(model, [(open_adapter(differing), 1.0)])
        np.testing.assert_allclose(
            logits(model, tokens, context=case.length), expected, atol=2e-4 * np.abs(expected).max()
        )


def differing_adapter(plain: Path, merged: Path, path: Path) -> Path:
    """A GGUF adapter of all that two GGUF files differ in."""
    before, after = open_checkpoint(plain).tensors, open_checkpoint(merged).tensors
    pairs = {}
    for name, tensor in before.items():
        difference = np.atleast_2d(after[name].dequantise() - tensor.dequantise())
        if not difference.any():
            continue
        left, values, right = np.linalg.svd(difference.astype(np.float64), full_matrices=False)
        rank = int((values > 1e-5 * values[0]).sum())
        up, down = left[:, :rank] * values[:rank], right[:rank]
        pairs[name] = (up, down.T) if name == "token_embd.weight" else (down, up)
    return write_gguf_adapter(path, pairs, str(open_checkpoint(plain).metadata["general.architecture"]))


def test_the_matrix_of_latent_keys_and_values_is_refused(tmp_path: Path) -> None:
    """The model has it, but not as a matrix that anything is multiplied by."""
    folder = write_checkpoint(BY_NAME["DeepSeek V2"], tmp_path / "model")
    module, adapter = "model.layers.1.self_attn.kv_b_proj", tmp_path / "adapter"
    rows, columns = load_file(folder / "model.safetensors")[module + ".weight"].shape
    sides = {"A": (RANK, columns), "B": (rows, RANK)}
    changes = {
        f"base_model.model.{module}.lora_{side}.weight": np.ones(shape, np.float32)
        for side, shape in sides.items()
    }
    adapter.mkdir()
    save_file(changes, adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 3, "lora_alpha": 3}')
    with pytest.raises(
        BadSetting, match=r"1\.self_attn\.kv_b_proj, the matrix of latent attention.*cannot change"
    ):
        apply_adapters(load(folder), [(open_adapter(adapter), 1.0)])
