"""GGUF files of DeepSeek V4 that are refused in a sentence, and a folder as its makers publish it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import BadCheckpoint, EngineError, UnsupportedModel
from engine.models.architectures.latent.deepseek_v4 import from_gguf
from engine.models.headers.keys import Keys
from engine.weights.tensor import FileTensor
from tests.engine.models.architectures import write_checkpoint
from tests.engine.models.cases.deepseek_v4 import DEEPSEEK_V4_CASES, YARN, gguf_keys
from tests.engine.models.oracle import load, logits

IDS = np.random.default_rng(0).integers(3, 300, 40).tolist()
KEYS: dict[str, Any] = {
    **gguf_keys({
        "q_lora_rank": 24, "o_lora_rank": 20, "o_groups": 2, "compress_ratios": [0, 4, 128, 0],
        "qk_rope_head_dim": 8, "sliding_window": 9, "moe_intermediate_size": 36, "n_routed_experts": 6,
        "num_hash_layers": 1, "index_n_heads": 4, "index_head_dim": 16, "index_topk": 3, "hc_mult": 2,
        "hc_sinkhorn_iters": 3, "num_hidden_layers": 4, "rope_scaling": YARN, "rope_theta": 1e4,
        "hc_eps": 1e-6, "compress_rope_theta": 16e4, "routed_scaling_factor": 1.5, "swiglu_limit": 10.0,
        "scoring_func": "sqrtsoftplus",
    }),
    "block_count": 4, "embedding_length": 64, "attention.head_count": 4, "attention.key_length": 32,
    "context_length": 512, "attention.layer_norm_rms_epsilon": 1e-6, "expert_used_count": 2,
}  # fmt: skip


def read(keys: dict[str, Any], *names: str) -> Any:
    """The config of a file with these keys and further tensors."""
    table = FileTensor("token_embd.weight", "F32", (307, 64), np.zeros(307 * 64 * 4, np.uint8))
    tensors = dict.fromkeys(["token_embd.weight", "output.weight", *names], table)
    own = {f"deepseek4.{name}": value for name, value in keys.items()}
    return from_gguf(Keys(own, "m.gguf", "deepseek4."), tensors)


def test_layers_that_predict_further_tokens_are_left_out_where_the_file_has_them() -> None:
    assert read(KEYS).layers == 4
    assert read(KEYS, "blk.3.nextn.eh_proj.weight").layers == 3
    assert read(KEYS | {"nextn_predict_layers": 0}).layers == 4


def test_without_a_limit_experts_have_none() -> None:
    plain = {name: value for name, value in KEYS.items() if name != "swiglu_clamp_exp"}
    assert min(read(plain).expert_limits[0]) > 1e5
    assert read(KEYS | {"swiglu_clamp_exp": 10.0}) == read(KEYS)


REFUSED: dict[str, tuple[dict[str, Any], type[EngineError], str]] = {
    "other scores": ({"expert_gating_func": 3}, UnsupportedModel, "sets expert_gating_func to 3"),
    "two shared experts": ({"expert_shared_count": 2}, UnsupportedModel, "expert_shared_count to 2"),
    "sums that are no 1": ({"expert_weights_norm": False}, UnsupportedModel, "weights_norm to False"),
    "few rates": ({"attention.compress_ratios": [0, 4]}, BadCheckpoint, "compress_ratios of 2"),
    "other rates": ({"attention.compress_ratios": [0, 4, 8, 0]}, UnsupportedModel, "compress_ratios to 8"),
    "two limits": ({"swiglu_clamp_shexp": 3.0}, UnsupportedModel, r"swiglu_clamp_exp to \[3.0, 10.0\]"),
    "few limits": ({"swiglu_clamp_exp": [10.0]}, BadCheckpoint, "swiglu_clamp_exp of 1"),
    "a limit of words": ({"swiglu_clamp_exp": "ten"}, BadCheckpoint, "swiglu_clamp_exp"),
    "no streams": ({"hyper_connection.count": 0}, BadCheckpoint, "hc_mult"),
    "no width": ({"embedding_length": None}, BadCheckpoint, "embedding_length"),
    "uneven groups": ({"attention.output_group_count": 3}, BadCheckpoint, "projects 4 heads in 3 groups"),
}


@pytest.mark.parametrize(("change", "error", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused(change: dict[str, Any], error: type[EngineError], message: str) -> None:
    with pytest.raises(error, match=message):
        read(KEYS | change)


@pytest.mark.slow
def test_a_folder_as_its_makers_publish_it(tmp_path: Path) -> None:
    """8-bit floats in blocks and experts of 4-bit floats, whose scales are powers of two, compute with what
    they mean.
    """
    case = next(case for case in DEEPSEEK_V4_CASES if case.gguf)
    wide = {"hidden_size": 64, "moe_intermediate_size": 32, "q_lora_rank": 32, "o_lora_rank": 32}
    case = replace(case, settings={**case.settings, **wide})
    folder = write_checkpoint(case, tmp_path / "m")
    generator = torch.Generator().manual_seed(1)
    stored: dict[str, torch.Tensor] = {}
    plain: dict[str, torch.Tensor] = {}
    for name, values in load_file(folder / "model.safetensors").items():
        stored[name] = plain[name] = values
        stem = name.removesuffix(".weight")
        if ".experts." in name:
            codes = torch.randint(0, 256, (len(values), values.shape[1] // 2), generator=generator)
            powers = torch.randint(118, 122, (len(values), values.shape[1] // 32), generator=generator)
            levels = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
            levels = torch.cat([levels, -levels])
            meant = levels[torch.stack([codes & 15, codes >> 4], dim=-1).reshape(values.shape)]
            plain[name] = meant * torch.exp2(powers.float() - 127).repeat_interleave(32, 1)
            stored[name] = codes.to(torch.uint8).view(torch.int8)
            stored[f"{stem}.scale"] = powers.to(torch.uint8).view(torch.float8_e8m0fnu)
        elif any(part in name for part in (".wq_a.", ".wq_b.", ".wo_a.", ".wo_b.", ".shared_experts.")):
            stored[name] = (values * 8).to(torch.float8_e4m3fn)
            plain[name] = stored[name].float() / 8
            grid = (-(-len(values) // 128), -(-values.shape[1] // 128))
            stored[f"{stem}.scale"] = torch.full(grid, 0.125).to(torch.float8_e8m0fnu)
    save_file(plain, folder / "model.safetensors")
    expected = logits(load(folder), IDS)
    save_file(stored, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    settings = {"quant_method": "fp8", "fmt": "e4m3", "scale_fmt": "ue8m0", "weight_block_size": [128, 128]}
    (folder / "config.json").write_text(
        json.dumps(config | {"expert_dtype": "fp4", "quantization_config": settings})
    )
    assert len(stored) > len(plain) + 20
    np.testing.assert_array_equal(logits(load(folder), IDS), expected)
