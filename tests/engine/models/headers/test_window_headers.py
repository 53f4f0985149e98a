"""What GGUF headers of Laguna, Mellum 2, Muse Glimmer and HRM-Text say by leaving keys out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from engine.errors import BadCheckpoint
from engine.models.architectures.dense import hrm_text, muse_glimmer
from engine.models.architectures.llama import qwen
from engine.models.architectures.windowed_mixtures import laguna
from engine.models.config import ModelConfig
from engine.models.headers.keys import Keys
from engine.models.headers.rope import STRETCH
from engine.tensors import RawTensor
from tests.engine.backends.kernel_oracles import Matrix

SIZES = {
    "embedding_length": 64, "attention.head_count": 4, "block_count": 6, "feed_forward_length": 96,
    "context_length": 128, "attention.layer_norm_rms_epsilon": 1e-5, "attention.sliding_window": 9,
    "rope.freq_base": 700.0, "rope.dimension_count": 8, "logit_scale": 0.7,
}  # fmt: skip
YARN = {
    "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32,
    STRETCH: 2.0,
}  # fmt: skip
CYCLES = {"hrm.layers_per_stack": 1, "hrm.h_cycles": 2, "hrm.l_cycles": 2}
Reader = Callable[[Keys, Mapping[str, RawTensor]], ModelConfig]


def read(reader: Reader, name: str, gate: int = 64, **more: Any) -> ModelConfig:
    """The header of a model whose first gate has this many rows."""
    named = {f"{name}.{key}": value for key, value in {**SIZES, **more}.items() if value is not None}
    tensors = {"token_embd.weight": (10, 64), "blk.0.attn_gate.weight": (gate, 64)}
    return reader(
        Keys(named, "the header", f"{name}."), {key: Matrix("F32", size, 1) for key, size in tensors.items()}
    )


def mellum(**more: Any) -> ModelConfig:
    return read(qwen.from_gguf_mellum, "mellum", logit_scale=None, **more)


def of_laguna(**more: Any) -> ModelConfig:
    return read(laguna.from_gguf, "laguna", logit_scale=None, **more)


def muse(**more: Any) -> ModelConfig:
    return read(muse_glimmer.from_gguf, "muse-glimmer", **more)


def test_layers_without_a_window_where_the_file_does_not_say() -> None:
    assert of_laguna().windows == (0, 9, 9, 9, 0, 9)
    assert mellum().windows == muse().windows == (9, 9, 9, 0, 9, 9)
    assert muse().nope_layers == {3}
    assert of_laguna(**{"attention.sliding_window_pattern": 2}).windows == (0, 9, 0, 9, 0, 9)
    without = of_laguna(**{"attention.sliding_window": None})
    assert (without.windows, without.rope_local) == ((), None)


def test_a_rope_of_windows_is_never_scaled() -> None:
    for found in (mellum(**YARN), of_laguna(**YARN)):
        assert found.rope_local is not None
        assert found.rope is not None
        assert set(found.rope_local.divisors) == {1.0}
        assert (found.rope_local.base, found.rope_local.dim) == (700.0, 8)
        assert max(found.rope.divisors) == 8.0


def test_a_rope_of_windows_of_its_own() -> None:
    found = of_laguna(**{"rope.freq_base_swa": 60.0, "rope.dimension_count_swa": 16})
    assert found.rope is not None
    assert found.rope_local is not None
    assert [(rope.base, rope.dim) for rope in (found.rope, found.rope_local)] == [(700.0, 8), (60.0, 16)]
    whole = muse(**{"rope.freq_base_swa": 60.0})
    assert whole.rope is not None
    assert (whole.rope.base, whole.rope.interleaved) == (60.0, True)


@pytest.mark.parametrize(("rows", "kind"), [(4, "head"), (64, "row")])
def test_laguna_s_gates_by_their_rows(rows: int, kind: str) -> None:
    assert of_laguna(gate=rows).output_gate == kind


def test_layers_of_hrm_text_agree_with_its_runs() -> None:
    found = read(hrm_text.from_gguf, "hrm_text", logit_scale=None, **CYCLES)
    assert (found.layers, found.embed_scale) == (2, 1.0)
    with pytest.raises(BadCheckpoint, match=r"6 layers but states hrm\.layers_per_stack of 2"):
        read(hrm_text.from_gguf, "hrm_text", logit_scale=None, **CYCLES | {"hrm.layers_per_stack": 2})
