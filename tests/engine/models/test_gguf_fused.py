"""GGUF files as llama.cpp's converter writes them with --fuse-qkv and --fuse-gate-up-exps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.engine.models import gguf_form
from tests.engine.models.architectures import cached_logits, ids, write_case_gguf, write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.gguf_form import Config, GgufForm, Tensors
from tests.engine.models.oracle import load, logits

FUSED = {"attn_qkv": ("attn_q", "attn_k", "attn_v"), "ffn_gate_up_exps": ("ffn_gate_exps", "ffn_up_exps")}


def fused(tensors: Tensors) -> Tensors:
    """The same with one matrix for those that a layer has all of."""
    out = dict(tensors)
    for name in tensors:
        for whole, parts in FUSED.items():
            names = [name.replace(f".{parts[0]}.", f".{part}.") for part in parts]
            if f".{parts[0]}." in name and all(each in out for each in names):
                stacked = [out.pop(each) for each in names]
                axis = 1 if "exps" in whole else 0
                out[name.replace(f".{parts[0]}.", f".{whole}.")] = np.concatenate(stacked, axis)
    return out


@pytest.mark.parametrize(
    "name",
    [
        "Llama", "Qwen 2 and 2.5", "Qwen 3 mixture of experts", "Qwen 3.5", "Kimi Linear", "Ling 3",
        "GLM-5 next, sizes of GGUF files",
    ],
)  # fmt: skip
def test_logits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, made = gguf_form._converted, list[Tensors]()

    def converted(form: GgufForm, config: Config, tensors: Tensors) -> Tensors:
        made.append(fused(usual(form, config, tensors)))
        return made[-1]

    monkeypatch.setattr(gguf_form, "_converted", converted)
    case = BY_NAME[name]
    file = write_case_gguf(case, write_checkpoint(case, tmp_path / "m"), tmp_path / "m.gguf")
    assert any(".attn_qkv." in name for name in made[0])
    expected = cached_logits(name)
    found = logits(load(file), ids(case.length), context=case.length)
    assert np.abs(found - expected).max() <= 2 * case.tolerance * np.abs(expected).max()
