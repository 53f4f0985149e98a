"""Mixtures whose makers have stacks of experts, as quantising tools write them: an expert each, or stacks of
8-bit floats.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_torch

from engine.models.load import survey
from engine.weights import open_checkpoint
from tests.engine.models.architectures import write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import load, logits
from tests.engine.models.test_mlx_experts import apart
from tests.tiny_packed import Tensors

IDS = list(range(3, 40))


def an_expert_each(tensors: Tensors, alternate: bool) -> Tensors:
    """As LLM Compressor and ModelOpt write them: gate, up and down of each expert."""
    out = Tensors()
    for name, values in apart(tensors, alternate).items():
        at, dot, matrix = name.partition(".experts.")
        if dot and values.ndim > 1 and not matrix[0].isdigit():
            out |= {f"{at}.experts.{i}.{matrix}": np.ascontiguousarray(each) for i, each in enumerate(values)}
        else:
            out[name] = values
    return out


def an_upright_expert_each(tensors: Tensors, alternate: bool) -> Tensors:
    """The same of stacks (X, N, K)."""
    stacks = (".experts.gate_up_proj", ".experts.down_proj")
    flipped = {name: each.swapaxes(1, 2) if name.endswith(stacks) else each for name, each in tensors.items()}
    return an_expert_each(flipped, alternate)


def in_lists(tensors: Tensors, _alternate: bool) -> Tensors:
    """As Unsloth writes GPT-OSS: both halves of each expert in one matrix, under names in the plural."""
    out = Tensors()
    for name, values in tensors.items():
        match = re.fullmatch(r"(.*\.experts)\.(gate_up_proj|down_proj)(_bias)?", name)
        if match is None:
            out[re.sub(r"(\.router)\.", r"\1.linear.", name)] = values
            continue
        end = "bias" if match[3] else "weight"
        each = values if match[3] else values.swapaxes(1, 2)
        out |= {f"{match[1]}.{match[2]}s.{i}.{end}": np.ascontiguousarray(one) for i, one in enumerate(each)}
    return out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("Llama 4", an_expert_each), ("GPT-OSS", an_expert_each), ("GPT-OSS", in_lists),
        ("Gemma 4, experts beside, keys as values", an_upright_expert_each),
    ],
)  # fmt: skip
def test_stacks_taken_apart(tmp_path: Path, name: str, form: Callable[[Tensors, bool], Tensors]) -> None:
    folder = write_checkpoint(BY_NAME[name], tmp_path / "m")
    expected = logits(load(folder), IDS)
    tensors: Tensors = load_file(folder / "model.safetensors")
    save_file(form(tensors, name == "GPT-OSS"), folder / "model.safetensors")
    np.testing.assert_array_equal(logits(load(folder), IDS), expected)


@pytest.mark.slow
@pytest.mark.parametrize("shared", ["columns", "stack", "blocks"])
def test_transposed_stacks_of_8_bit_floats(tmp_path: Path, shared: str) -> None:
    """Llama 4's, whose scales FBGEMM has for each output."""
    folder = write_checkpoint(BY_NAME["Llama 4"], tmp_path / "m")
    plain = (folder / "config.json").read_text("utf-8")
    generator, stored, meant = torch.Generator().manual_seed(5), dict[str, torch.Tensor](), Tensors()
    for name, array in load_file(folder / "model.safetensors").items():
        values, stored[name], meant[name] = torch.from_numpy(array), torch.from_numpy(array), array
        if not name.endswith((".experts.gate_up_proj", ".experts.down_proj")):
            continue
        count, inputs, outputs = values.shape
        shapes = {
            "columns": (count, 1, outputs),
            "stack": (count,),
            "blocks": (count, inputs // 8, outputs // 4),
        }
        scale = torch.rand(shapes[shared], generator=generator) + 0.5
        stored[name] = values.to(torch.float8_e4m3fn)
        wide = scale.reshape(count, 1, 1) if shared == "stack" else scale
        wide = wide.repeat_interleave(8, 1).repeat_interleave(4, 2) if shared == "blocks" else wide
        meant[name] = (stored[name].float() * wide).numpy()
        down = shared == "columns" and name.endswith("down_proj")
        stored[name + "_scale"] = scale.mT.contiguous() if down else scale
    save_file(meant, folder / "model.safetensors")
    expected = logits(load(folder), IDS)
    save_torch(stored, folder / "model.safetensors")
    settings = {"quant_method": "fbgemm_fp8", "weight_block_size": [8, 4]}
    (folder / "config.json").write_text(json.dumps(json.loads(plain) | {"quantization_config": settings}))
    np.testing.assert_array_equal(logits(load(folder), IDS), expected)
    assert survey(open_checkpoint(folder), load(folder).backend).bytes == load(folder).resident_bytes
