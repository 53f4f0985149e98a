"""Folders with the names and shapes that mlx-lm gives to tensors when it converts a model: the same logits as
of the makers' folder, but for rounding where matrices lie otherwise. `test_mlx_experts` has quantised ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.engine.models.architectures import ids, write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.gguf_form import stacked_experts
from tests.engine.models.oracle import load, logits

Tensors = dict[str, Any]
Rename = Callable[[str], str]


def renamed(tensors: Tensors, *pairs: tuple[str, str]) -> Tensors:
    out = {}
    for name, values in tensors.items():
        for pattern, new in pairs:
            name = re.sub(pattern, new, name)
        out[name] = values
    return out


def taps_last(tensors: Tensors) -> Tensors:
    """Convolutions' taps (C, 1, K) as (C, K, 1)."""
    return {
        name: values.swapaxes(1, 2) if re.search(r"conv(1d)?\.weight$", name) and values.ndim == 3 else values
        for name, values in tensors.items()
    }


def absorbed(tensors: Tensors, heads: int, nope: int) -> Tensors:
    """Stacks of each head's matrix of keys, transposed, and of values, in place of one matrix of both."""
    out = dict(tensors)
    for name in [name for name in tensors if name.endswith("kv_b_proj.weight")]:
        rows = out.pop(name).reshape(heads, -1, tensors[name].shape[1])
        at = name.removesuffix("kv_b_proj.weight")
        out[at + "embed_q.weight"] = rows[:, :nope].swapaxes(1, 2)
        out[at + "unembed_out.weight"] = rows[:, nope:]
    return out


def in_stacks(tensors: Tensors, *pairs: tuple[str, str]) -> Tensors:
    """Experts in stacks that are called `switch_mlp`."""
    stacked = {}
    for name, values in stacked_experts(tensors).items():
        if ".experts.gate_up_proj" in name:
            gate, up = np.split(values, 2, 1)
            at = name.removesuffix(".weight").removesuffix("gate_up_proj")
            stacked |= {at + "gate_proj.weight": gate, at + "up_proj.weight": up}
        else:
            end = "" if name.endswith((".weight", "_bias")) or ".experts." not in name else ".weight"
            stacked[name + end] = values
    return renamed(stacked, (r"\.experts\.(\w+)\.weight$", r".switch_mlp.\1.weight"), *pairs)


def latent(tensors: Tensors) -> Tensors:
    """In GLM-4.7-Flash keys and values are of other sizes than in the others."""
    glm = any(values.shape == (4 * 48, 40) for name, values in tensors.items() if "kv_b_proj" in name)
    return absorbed(in_stacks(tensors), 4, 20 if glm else 24)


def kimi_linear(tensors: Tensors) -> Tensors:
    own = renamed(
        tensors, (r"\.([qkv])_conv1d\.", r".\1_conv.conv."), (r"\.block_sparse_moe\.", ".mlp."),
        (r"\.mlp\.gate\.e_score_correction_bias", ".mlp.e_score_correction_bias"),
        (r"\.w1\.weight$", ".gate_proj.weight"), (r"\.w2\.weight$", ".down_proj.weight"),
        (r"\.w3\.weight$", ".up_proj.weight"),
    )  # fmt: skip
    return taps_last(latent(own))


def granite(tensors: Tensors) -> Tensors:
    """The shared part of a model without experts is its only one."""
    out, mixed = {}, any(".block_sparse_moe." in name for name in tensors)
    for name, values in tensors.items():
        if name.endswith(("moe.input_linear.weight", "shared_mlp.input_linear.weight")) and (
            mixed == ("moe." in name)
        ):
            gate, up = np.split(values, 2, -2)
            at = re.sub(r"(block_sparse_moe|shared_mlp)\.input_linear\.weight", "", name)
            at += "block_sparse_moe.switch_mlp." if mixed else "mlp."
            out |= {at + "gate_proj.weight": gate, at + "up_proj.weight": up}
        else:
            out[name] = values
    old, new = ("block_sparse_moe", "block_sparse_moe.switch_mlp") if mixed else ("shared_mlp", "mlp")
    return taps_last(renamed(out, (rf"\.{old}\.output_linear\.", f".{new}.down_proj.")))


def lfm2(tensors: Tensors) -> Tensors:
    pairs = [(rf"\.{old}\.weight$", f".{new}.weight") for old, new in
             (("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj"))]  # fmt: skip
    return taps_last(in_stacks(renamed(tensors, *pairs)))


def nemotron(tensors: Tensors) -> Tensors:
    return taps_last(
        in_stacks(
            tensors, (r"switch_mlp\.up_proj", "switch_mlp.fc1"), (r"switch_mlp\.down_proj", "switch_mlp.fc2")
        )
    )


def laguna(tensors: Tensors) -> Tensors:
    return in_stacks(
        tensors, (r"\.shared_experts\.", ".shared_expert."), (r"\.mlp\.gate\.weight", ".mlp.gate.proj.weight")
    )


def ling(tensors: Tensors) -> Tensors:
    return in_stacks(tensors, (r"\.mlp\.gate\.weight", ".mlp.gate.gate_proj.weight"))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("DeepSeek V3", latent), ("GLM-4.7-Flash", latent), ("Kimi Linear", kimi_linear),
        ("Granite 4", granite),
        ("Granite 4, experts and a shared one", granite), ("LFM2 mixture of experts", lfm2),
        ("Nemotron-H, experts without gates and a shared one", nemotron), ("Jamba", taps_last),
        ("Mamba-2", taps_last), ("Laguna", laguna), ("Ling 2", ling),
    ],
)  # fmt: skip
def test_names_of_mlx_lm(name: str, change: Callable[[Tensors], Tensors], tmp_path: Path) -> None:
    folder = write_checkpoint(BY_NAME[name], tmp_path / "m")
    expected = logits(load(folder), ids(30))
    file = folder / "model.safetensors"
    tensors = load_file(file)
    changed = {each: np.ascontiguousarray(values) for each, values in change(tensors).items()}
    assert {(each, values.shape) for each, values in changed.items()} != {
        (each, values.shape) for each, values in tensors.items()
    }
    save_file(changed, file)
    found = logits(load(folder), ids(30))
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def test_a_bias_of_the_choice_that_mlx_lm_leaves_out_is_none(tmp_path: Path) -> None:
    folder = write_checkpoint(BY_NAME["ERNIE 4.5 mixture of experts"], tmp_path / "m")
    file, end = folder / "model.safetensors", "e_score_correction_bias"
    tensors = {name: values * (not name.endswith(end)) for name, values in load_file(file).items()}
    save_file(tensors, file)
    expected = logits(load(folder), ids(30))
    save_file({name: values for name, values in tensors.items() if not name.endswith(end)}, file)
    np.testing.assert_array_equal(logits(load(folder), ids(30)), expected)
