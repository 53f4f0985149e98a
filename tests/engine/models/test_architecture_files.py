"""Files of single architectures beyond the table of cases: other packings, nested models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from engine.backends.cpu.backend import CpuBackend
from engine.backends.reference.backend import ReferenceBackend
from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.load import read_config
from engine.weights import open_checkpoint
from tests.engine.models.architectures import (
    cached_logits,
    ids,
    transformers_config,
    write_case_gguf,
    write_checkpoint,
)
from tests.engine.models.cases.qwen_gemma import GEMMA_3_SETTINGS, GPT_OSS
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import SixteenBits, load, logits
from tests.tiny import write_tokenizer

TOKENS = ids(60)


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config), "utf-8")


@pytest.mark.parametrize("names", ["as transformers 5 saves it", "as on the hub"])
def test_the_text_part_of_gemma_3_with_vision(tmp_path: Path, names: str) -> None:
    """The text part of a Gemma3ForConditionalGeneration, whose config leaves out defaults."""
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration
    from transformers.utils import logging

    logging.disable_progress_bar()
    eyes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    eyes |= {"image_size": 28, "patch_size": 14}
    text = {**GEMMA_3_SETTINGS, "query_pre_attn_scalar": 256}
    config = Gemma3Config(text_config=text, vision_config=eyes, mm_tokens_per_image=4)
    config._attn_implementation = "eager"
    torch.manual_seed(3)
    model = Gemma3ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5.0 if parameter.ndim > 1 else 1.0)
    model.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    if names == "as transformers 5 saves it":
        tensors = load_file(tmp_path / "model.safetensors")
        renamed = {
            name.replace("language_model.model.", "model.language_model.", 1): values
            for name, values in tensors.items()
        }
        save_file(renamed, tmp_path / "model.safetensors")
    with torch.inference_mode():
        expected = model(torch.tensor([TOKENS]), use_cache=False).logits[0].numpy()
    assert expected.std() > 0.1
    np.testing.assert_allclose(logits(load(tmp_path), TOKENS), expected, atol=1e-4 * np.abs(expected).max())


def test_gemma_3_config_of_the_hub_leaves_out_defaults(tmp_path: Path) -> None:
    """As Gemma 3 4B's: heads, vocabulary and context are the defaults of the class."""
    text = {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
        "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}  # fmt: skip
    write_config(
        tmp_path,
        {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": text},
    )
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    config = read_config(open_checkpoint(tmp_path))
    assert (config.heads, config.kv_heads, config.head_dim, config.vocab_size, config.context_length) == (
        8,
        4,
        256,
        262208,
        131072,
    )
    assert config.windows[:6] == (1024,) * 5 + (0,)
    assert config.windows.count(0) == 5
    assert config.rope is not None
    assert config.rope_local is not None
    assert (config.rope.base, set(config.rope.divisors)) == (1e6, {8.0})
    assert (config.rope_local.base, set(config.rope_local.divisors)) == (1e4, {1.0})
    assert config.attention_scale == 1 / 16
    assert config.tied


def mxfp4(values: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Numbers (..., K) as blocks (..., K / 32, 16) and scales (..., K / 32), each rounded to the nearest of
    16 values.
    """
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
    parts = values.reshape(*values.shape[:-1], -1, 32)
    exponents = np.floor(np.log2(np.abs(parts).max(-1) / 4)).astype(np.int32)
    codes = np.abs(parts[..., None] / 2.0 ** exponents[..., None, None] - table).argmin(-1).astype(np.uint8)
    return codes[..., 0::2] | codes[..., 1::2] << 4, (exponents + 127).astype(np.uint8)


def unpacked(blocks: np.ndarray[Any, Any], scales: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The numbers in the blocks and scales of `mxfp4`."""
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
    values = np.stack([table[blocks & 15], table[blocks >> 4]], -1).reshape(*blocks.shape[:-1], 32)
    scaled = values * 2.0 ** (scales.astype(np.float32) - 127)[..., None]
    return np.asarray(scaled.reshape(*scaled.shape[:-2], -1), np.float32)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_gpt_oss_with_mxfp4_experts(tmp_path: Path, backend: str) -> None:
    """The authors' packing (experts as blocks and scales, (X, N, K)) against the same numbers in plain stacks
    (X, K, N).
    """
    from dataclasses import replace

    case = replace(BY_NAME["GPT-OSS"], settings={**GPT_OSS, "intermediate_size": 64})
    plain = write_checkpoint(case, tmp_path / "plain")
    packed = tmp_path / "packed"
    packed.mkdir()
    tensors, small = load_file(plain / "model.safetensors"), {}
    for name in list(tensors):
        if name.endswith(("gate_up_proj", "down_proj")):
            blocks, scales = mxfp4(tensors[name].swapaxes(1, 2))
            small[name + "_blocks"], small[name + "_scales"] = (
                np.ascontiguousarray(blocks),
                np.ascontiguousarray(scales),
            )
            tensors[name] = np.ascontiguousarray(unpacked(blocks, scales).swapaxes(1, 2))
        else:
            small[name] = tensors[name]
    save_file(tensors, plain / "model.safetensors")
    save_file(small, packed / "model.safetensors")
    config = json.loads((plain / "config.json").read_text())
    write_config(
        packed,
        config
        | {
            "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.embed_tokens"]}
        },
    )
    expected = logits(load(plain) if backend == "reference" else load(packed, SixteenBits()), TOKENS)
    model = load(packed, CpuBackend(threads=1) if backend == "cpu" else ReferenceBackend())
    found = logits(model, TOKENS)
    model.close()
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_gpt_oss_in_half_precision(tmp_path: Path) -> None:
    """Stacks in BF16, transposed and split into rows."""
    from safetensors.torch import load_file as load_torch
    from safetensors.torch import save_file as save_torch

    folder = write_checkpoint(BY_NAME["GPT-OSS"], tmp_path)
    tensors = {
        name: values.to(torch.bfloat16) for name, values in load_torch(folder / "model.safetensors").items()
    }
    save_torch(tensors, folder / "model.safetensors")
    half = logits(load(folder), TOKENS)
    save_torch({name: values.float() for name, values in tensors.items()}, folder / "model.safetensors")
    np.testing.assert_allclose(half, logits(load(folder), TOKENS), atol=1e-5)


def test_mixtral_gguf_with_tensors_for_each_expert(tmp_path: Path) -> None:
    """The format of the first files, before experts were stacked."""
    import gguf

    case = BY_NAME["Mixtral"]
    stacked = write_case_gguf(case, write_checkpoint(case, tmp_path / "m"), tmp_path / "stacked.gguf")
    reader = gguf.GGUFReader(stacked)
    writer = gguf.GGUFWriter(tmp_path / "old.gguf", "llama")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            kind = field.types[0]
            writer.add_key_value(
                name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            )
    for tensor in reader.tensors:
        values = np.array(tensor.data).reshape([int(n) for n in reversed(tensor.shape)])
        if "_exps." in tensor.name:
            for i, matrix in enumerate(values):
                writer.add_tensor(tensor.name.replace("_exps.", f".{i}."), np.ascontiguousarray(matrix))
        else:
            writer.add_tensor(tensor.name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model, other = load(tmp_path / "old.gguf"), load(stacked)
    np.testing.assert_allclose(
        logits(model, TOKENS), cached_logits("Mixtral"), atol=1e-4 * np.abs(cached_logits("Mixtral")).max()
    )
    assert model.weight_bytes_per_token == other.weight_bytes_per_token < model.resident_bytes


def test_unsupported_models_are_refused(tmp_path: Path) -> None:
    """An unknown architecture, an activation with an impossible limit."""
    folder = write_checkpoint(BY_NAME["GPT-OSS"], tmp_path)
    config = json.loads((folder / "config.json").read_text())
    write_config(folder, config | {"swiglu_limit": -1.0})
    with pytest.raises(BadCheckpoint, match=r"swiglu_limit is -1"):
        load(folder)
    write_config(folder, config | {"architectures": ["Rwkv5ForCausalLM"]})
    with pytest.raises(UnsupportedModel, match=r"Rwkv5ForCausalLM.*A later version may"):
        load(folder)


def test_baichuan_of_40_layers_has_slopes_and_the_second_a_normed_head(tmp_path: Path) -> None:
    config = {
        "architectures": ["BaichuanForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 40, "num_attention_heads": 4, "vocab_size": 307, "model_max_length": 512,
    }  # fmt: skip
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    write_config(tmp_path, config)
    read = read_config(open_checkpoint(tmp_path))
    assert (read.rope, read.slopes) == (None, (0.25, 0.0625, 0.015625, 0.00390625))
    write_config(tmp_path, config | {"num_hidden_layers": 32})
    read = read_config(open_checkpoint(tmp_path))
    assert (read.slopes, read.rope is None) == ((), False)
    assert not read.normed_head
    write_config(tmp_path, config | {"vocab_size": 125696})
    assert read_config(open_checkpoint(tmp_path)).normed_head


def test_llama_4_of_several_experts_for_a_token_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(BY_NAME["Llama 4"], tmp_path)
    config = json.loads((folder / "config.json").read_text())
    write_config(folder, config | {"num_experts_per_tok": 2})
    with pytest.raises(UnsupportedModel, match="uses 2 experts for each token"):
        load(folder)


RECURRENT = {
    "Qwen 3.5": "Qwen3_5ForCausalLM", "Qwen3-Next": "Qwen3NextForCausalLM", "Mamba": "MambaForCausalLM",
    "Granite 4": "GraniteMoeHybridForCausalLM", "Falcon-H1": "FalconH1ForCausalLM",
    "Nemotron-H": "NemotronHForCausalLM", "Kimi Linear": "KimiLinearForCausalLM", "Jamba": "JambaForCausalLM",
    "OLMo Hybrid": "OlmoHybridForCausalLM", "Bamba": "BambaForCausalLM", "Mamba-2": "Mamba2ForCausalLM",
    "Ling 3": "BailingHybridForCausalLM",
}  # fmt: skip


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_with_another_activation_are_refused(tmp_path: Path, name: str) -> None:
    """Convolutions before states have the model's activation, which kernels know as silu alone."""
    config = transformers_config(BY_NAME[name]).to_dict() | {"architectures": [RECURRENT[name]]}
    key = "mamba_hidden_act" if name == "Nemotron-H" else "hidden_act"
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    write_config(tmp_path, config)
    assert read_config(open_checkpoint(tmp_path)).recurrent is not None
    write_config(tmp_path, config | {key: "gelu"})
    with pytest.raises(UnsupportedModel, match=f"sets {key} to 'gelu'; only silu"):
        read_config(open_checkpoint(tmp_path))


def test_codegen_takes_heads_in_four_parts(tmp_path: Path) -> None:
    config = transformers_config(BY_NAME["CodeGen"]).to_dict() | {"architectures": ["CodeGenForCausalLM"]}
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    write_config(tmp_path, config | {"n_head": 2})
    with pytest.raises(BadCheckpoint, match="has 2 heads, but a multiple of 4 was expected"):
        read_config(open_checkpoint(tmp_path))


@pytest.mark.parametrize("kinds", [[[["global", "local"], 1]], [[["far"], 4]], [3], "all"])
def test_gpt_neo_says_the_kind_of_each_layer(kinds: Any, tmp_path: Path) -> None:
    config = transformers_config(BY_NAME["GPT-Neo"]).to_dict() | {"architectures": ["GPTNeoForCausalLM"]}
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    write_config(tmp_path, config | {"attention_types": kinds})
    with pytest.raises(BadCheckpoint, match="attention_types is not a list of 4 kinds of layers"):
        read_config(open_checkpoint(tmp_path))


def test_cohere_2_with_an_unknown_choice_of_experts_is_refused(tmp_path: Path) -> None:
    case = BY_NAME["Cohere 2 mixture of experts"]
    config = transformers_config(case).to_dict() | {"architectures": ["Cohere2MoeForCausalLM"]}
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    for name in ("expert_selection_fn", "shared_expert_combination_strategy"):
        write_config(tmp_path, config | {name: "noise"})
        with pytest.raises(UnsupportedModel, match=f"sets {name} to 'noise'"):
            read_config(open_checkpoint(tmp_path))
