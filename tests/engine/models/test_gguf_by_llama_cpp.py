"""GGUF files against llama.cpp, where the `gguf` package or transformers does not know the architecture."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.backends.cpu.backend import CpuBackend
from tests.engine.models.architectures import Floats, ids, write_case_gguf, write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.gguf_form import GgufForm, write_gguf
from tests.engine.models.oracle import load, logits
from tests.tiny import write_tokenizer

pytestmark = pytest.mark.slow
CONTEXT = 256


def by_llama_cpp(path: Path, tokens: list[int]) -> Floats:
    """Logits (T, V) with a cache in float32."""
    llama = pytest.importorskip("llama_cpp")
    whole = {"type_k": llama.GGML_TYPE_F32, "type_v": llama.GGML_TYPE_F32}
    model = llama.Llama(str(path), n_ctx=CONTEXT, n_threads=2, logits_all=True, verbose=False, **whole)
    try:
        model.eval(tokens)
        return np.array(model.scores[: len(tokens)], np.float32)
    finally:
        model.close()


@pytest.mark.parametrize(
    "name",
    [
        "Hunyuan 3",
        "Granite with windows",
        "Granite with windows, experts, other layers",
        "Cohere 2 mixture of experts",
        "DBRX",
        "MiMo-V2-Flash",
        "Step 3.5 Flash",
        "Ling 3",
        "MiniMax-01, one factor",
        "CogVLM",
        "Dots 3 Note, sizes of GGUF files",
    ],
)
def test_logits(name: str, tmp_path: Path) -> None:
    case = BY_NAME[name]
    file = write_case_gguf(case, write_checkpoint(case, tmp_path / "m"), tmp_path / "m.gguf")
    expected = by_llama_cpp(file, ids(case.length))
    assert expected.std() > 0.5
    found = logits(load(file), ids(case.length), context=CONTEXT)
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["Qwen 4", "Qwen 4, pairs of tokens, tied"])
def test_qwen_4(name: str, tmp_path: Path) -> None:
    """With heads of one size, and where all positions are chosen: llama.cpp chooses single ones beyond the
    blocks.
    """
    case = BY_NAME[name]
    more = {"linear_value_head_dim": 12, "indexer_budget": 64, "eos_token_id": ids(60)[20]}
    case = replace(case, settings={**case.settings, **more})
    file = write_case_gguf(case, write_checkpoint(case, tmp_path / "m"), tmp_path / "m.gguf")
    expected = by_llama_cpp(file, ids(case.length))
    assert expected.std() > 0.5
    found = logits(load(file), ids(case.length), context=CONTEXT)
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


def test_ling_3_with_limits_and_sections(tmp_path: Path) -> None:
    """Rope of files with sections is not interleaved; limits hold in layers with experts alone."""
    case = BY_NAME["Ling 3"]
    assert case.gguf is not None
    more = {
        "rope.dimension_sections": [2, 1, 1, 0], "swiglu_clamp_exp": [0.5, 0.0, 0.6, 0.7],
        "swiglu_clamp_shexp": [0.0, 0.6, 0.0, 0.5],
    }  # fmt: skip
    keys = case.gguf.keys
    case = replace(case, gguf=replace(case.gguf, keys=lambda config: {**keys(config), **more}))
    file = write_case_gguf(case, write_checkpoint(case, tmp_path / "m"), tmp_path / "m.gguf")
    expected = by_llama_cpp(file, ids(case.length))
    assert expected.std() > 0.5
    found = logits(load(file), ids(case.length), context=CONTEXT)
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


def test_glm_5_next(tmp_path: Path) -> None:
    case = BY_NAME["GLM-5 next, sizes of GGUF files"]
    file = write_case_gguf(case, write_checkpoint(case, tmp_path / "m"), tmp_path / "m.gguf")
    expected = by_llama_cpp(file, ids(case.length))
    assert expected.std() > 0.5
    found = logits(load(file), ids(case.length), context=CONTEXT)
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


def test_dots_3_chooses_positions(tmp_path: Path) -> None:
    """The indexer's rope rotates halves, unlike in transformers."""
    case = BY_NAME["Dots 3 Note, sizes of GGUF files"]
    case = replace(case, settings={**case.settings, "index_topk": 16})
    file = write_case_gguf(case, write_checkpoint(case, tmp_path / "m"), tmp_path / "m.gguf")
    expected = by_llama_cpp(file, ids(case.length))
    assert expected.std() > 0.5
    found = logits(load(file), ids(case.length), context=CONTEXT)
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


def test_hunyuan_4(tmp_path: Path) -> None:
    case = BY_NAME["Hunyuan 4"]
    case = replace(case, settings={**case.settings, "hc_mult": 4})
    file = write_case_gguf(case, write_checkpoint(case, tmp_path / "m"), tmp_path / "m.gguf")
    expected = by_llama_cpp(file, ids(case.length))
    assert expected.std() > 0.5
    found = logits(load(file), ids(case.length), context=CONTEXT)
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize(("name", "layers"), [("Baichuan", 32), ("Baichuan", 40), ("EXAONE 4", 64)])
def test_kinds_of_layers_by_their_count(name: str, layers: int, tmp_path: Path) -> None:
    """llama.cpp knows from the number of layers alone whether they have rope, slopes or windows."""
    case = BY_NAME[name]
    case = replace(case, settings={**case.settings, "num_hidden_layers": layers, "layer_types": None})
    file = write_case_gguf(case, write_checkpoint(case, tmp_path / "m"), tmp_path / "m.gguf")
    expected = by_llama_cpp(file, ids(case.length))
    assert expected.std() > 0.5
    found = logits(load(file), ids(case.length), context=CONTEXT)
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


def test_deepseek_1_with_weights_as_they_are(tmp_path: Path) -> None:
    """llama.cpp never divides the chosen weights by their sum; the first layer is dense."""
    case = BY_NAME["DeepSeek 1"]
    folder = write_checkpoint(case, tmp_path / "m")
    path, at = folder / "config.json", "model.layers.0.mlp."
    config = json.loads(path.read_text("utf-8")) | {"norm_topk_prob": False, "first_k_dense_replace": 1}
    path.write_text(json.dumps(config), "utf-8")
    tensors = load_file(folder / "model.safetensors")
    dense = {name: tensors[name] for name in tensors if name.startswith(at + "experts.3.")}
    kept = {name: values for name, values in tensors.items() if not name.startswith(at)}
    kept |= {name.replace("experts.3.", ""): values for name, values in dense.items()}
    save_file(kept, folder / "model.safetensors")
    file = write_case_gguf(case, folder, tmp_path / "m.gguf")
    expected = by_llama_cpp(file, ids(case.length))
    assert expected.std() > 0.5
    for found in (logits(load(made), ids(case.length), context=CONTEXT) for made in (file, folder)):
        assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


def refact(rng: np.random.Generator) -> dict[str, Floats]:
    """Random weights under the makers' names: 3 layers, 6 heads of 16."""
    width, inner, heads = 96, 256, 6

    def matrix(rows: int, columns: int, scale: float = 1.5) -> Floats:
        return (rng.standard_normal((rows, columns)) * scale / columns**0.5).astype(np.float32)

    found = {"transformer.wte.weight": matrix(307, width, 3.0), "lm_head.weight": matrix(307, width, 2.0)}
    norms = ["transformer.ln_f"]
    for layer in range(3):
        at = f"transformer.h.{layer}."
        norms += [at + "ln_1", at + "ln_2"]
        found[at + "attn.q.weight"] = matrix(width, width)
        found[at + "attn.kv.weight"] = matrix(2 * width // heads, width)
        found[at + "attn.c_proj.weight"] = matrix(width, width)
        found[at + "mlp.gate_up_proj.weight"] = matrix(2 * inner, width)
        found[at + "mlp.c_proj.weight"] = matrix(width, inner)
    return found | {
        name + ".weight": (1 + 0.2 * rng.standard_normal(width)).astype(np.float32) for name in norms
    }


def refact_tensors(config: dict[str, Any], tensors: dict[str, Floats]) -> dict[str, Floats]:
    """As the converter cuts them."""
    out: dict[str, Floats] = {}
    for name, values in tensors.items():
        at = f"blk.{name.split('.')[-4]}." if ".h." in name else ""
        if name.endswith((".attn.kv.weight", ".gate_up_proj.weight")):
            parts = ("attn_k", "attn_v") if ".kv." in name else ("ffn_gate", "ffn_up")
            halves = zip(parts, np.split(values, 2), strict=True)
            out |= {f"{at}{part}.weight": half for part, half in halves}
        elif name.endswith(".attn.q.weight"):
            out[at + "attn_q.weight"] = values
        else:
            out[name] = values
    return out


def test_refact(tmp_path: Path) -> None:
    config = {
        "architectures": ["GPTRefactForCausalLM"], "model_type": "gpt_refact", "vocab_size": 307,
        "n_embd": 96, "n_layer": 3, "n_head": 6, "n_positions": 512,
    }  # fmt: skip
    tensors, folder, tokens = refact(np.random.default_rng(3)), tmp_path / "m", ids(60)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    save_file(tensors, folder / "model.safetensors")
    write_tokenizer(folder)
    keys = {
        "attention.head_count_kv": 1, "feed_forward_length": 256, "attention.layer_norm_rms_epsilon": 1e-5
    }  # fmt: skip
    form = GgufForm("refact", keys=lambda config: keys, change=refact_tensors)
    file = write_gguf(tmp_path / "m.gguf", form, config, tensors)
    expected = by_llama_cpp(file, tokens)
    assert expected.std() > 0.5
    for found in (logits(load(made), tokens, [1, 7, 30]) for made in (file, folder)):
        assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()
    model = load(folder, CpuBackend(threads=2))
    found = logits(model, tokens, [1, 7, 30])
    model.close()
    assert np.abs(found - expected).max() <= 4e-4 * np.abs(expected).max()
