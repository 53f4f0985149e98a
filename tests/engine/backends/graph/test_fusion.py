"""Patterns of nodes that become one node, packed inputs, groups: what is left out, and what must stay."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape, RotaryTable, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.lowering import lower
from engine.backends.graph import fusion, packing
from engine.backends.graph.recorder import Recorder
from tests.engine.backends.graph.test_recorder import FakeWeight
from tests.engine.backends.kernel_oracles import Matrix

ONES = np.ones(32, np.float32)
ANGLES: Any = np.zeros((64, 8), np.float32)
TABLE = RotaryTable(ANGLES, ANGLES, False)
GPU = (fusion.norm_rope, fusion.columns_rope, fusion.add_norm(64))


def names(nodes: Any) -> list[str]:
    return [type(node).__name__ for node in nodes]


def start() -> tuple[Recorder, Any]:
    recorder = Recorder()
    return recorder, recorder.embed(FakeWeight((50, 32)))


def test_columns_and_their_norm_become_part_of_the_rotation() -> None:
    recorder, x = start()
    part = recorder.rms_norm(recorder.columns(x, 16, 16), ONES[:8], 1e-5, 2)
    y = recorder.rope(part, TABLE, 2)
    (_, rope) = fusion.fuse(recorder.nodes, y, GPU)
    assert (rope.x, rope.first, rope.norm.weight.size, rope.y) == (x, 16, 8, y)  # type: ignore[attr-defined]


def test_what_is_read_elsewhere_stays() -> None:
    recorder, x = start()
    part = recorder.columns(x, 16, 16)
    y = recorder.add(recorder.rope(part, TABLE, 2), part)
    assert names(fusion.fuse(recorder.nodes, y, GPU)) == ["Embed", "Columns", "Rope", "Add"]


@pytest.mark.parametrize("post", [True, False])
def test_a_sum_takes_the_norms_around_it(post: bool) -> None:
    recorder, x = start()
    z = recorder.activate(x, "silu")
    total = recorder.add(x, recorder.rms_norm(z, ONES, 1e-6) if post else z, 0.5)
    y = recorder.add(recorder.layer_norm(total, ONES, None, 1e-5), total)
    fused: Any = fusion.fuse(recorder.nodes, y, GPU)
    assert names(fused) == ["Embed", "Activate", "AddNorm", "Add"]
    assert (fused[2].z, fused[2].total, fused[2].post is not None) == (z, total, post)
    assert names(fusion.fuse(recorder.nodes, y, [fusion.add_norm(31)])) == names(recorder.nodes)


def form(weight: Any) -> tuple[str, int] | None:
    return None if weight.weight_layout == "f32" else (weight.weight_layout, 16)


def test_products_share_a_packed_input() -> None:
    recorder, x = start()
    outs = [recorder.linear(x, FakeWeight((32, 32), layout)) for layout in ("q4", "f32", "q4", "f16")]
    packed: Any = packing.pack_inputs(recorder.nodes, form, keep_floats=True)
    assert names(packed) == ["Embed", "Pack", "Linear", "Linear", "Linear", "Pack", "Linear"]
    assert [node.packed for node in packed if node.y in outs] == [packed[1].y, None, packed[1].y, packed[5].y]
    assert all(node.x is x for node in packed if node.y in outs)


@pytest.mark.parametrize("also", ["nothing", "floats", "other"])
def test_rows_are_packed_where_they_are_made(also: str) -> None:
    """As floats too, if they are read as such, or packed in a second form."""
    recorder, x = start()
    h = recorder.rms_norm(x, ONES, 1e-5)
    y = recorder.linear(h, FakeWeight((32, 32), "q4"))
    if also != "nothing":
        y = recorder.linear(h, FakeWeight((32, 32), "f32" if also == "floats" else "f16"), residual=y)
    found: Any = packing.pack_where_made(packing.pack_inputs(recorder.nodes, form, keep_floats=False), y)
    assert names(found)[:3] == ["Embed", "Norm", "Linear"]
    norm, linear = found[1:3]
    assert (norm.form, norm.packed, norm.floats) == ("q4", linear.x, also != "nothing")
    assert names(found)[3:] == {"nothing": [], "floats": ["Linear"], "other": ["Pack", "Linear"]}[also]


def test_neighbouring_products_of_one_input_are_a_group() -> None:
    recorder, x = start()
    layouts = ("q4", "q4", "q4", "q4", "f16")
    for layout in layouts:
        recorder.linear(x, FakeWeight((32, 32), layout))
    last = recorder.linear(x, FakeWeight((32, 32), "f16"))
    recorder.linear(x, FakeWeight((32, 32), "f16"), residual=last)

    def sizes(**more: Any) -> list[int]:
        groups: Any = fusion.group_linears(recorder.nodes, **more)[1:]
        return [len(group.parts) for group in groups]

    assert sizes() == [4, 2, 1]
    assert sizes(most=3) == [3, 1, 2, 1]
    assert sizes(any_layout=True) == [6, 1]


@pytest.mark.parametrize("dtype", ["fp32", "q8", "q4"])
def test_keys_and_values_are_written_from_a_wider_row(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit what columns of their own give, in two operations less."""
    matrices = [Matrix("F32", (64, 100), 1), Matrix("F32", (100, 100), 2)]
    shape, backend = AttentionShape(3, 1, 20, 0.2), CpuBackend(1)
    weights = [backend.load_weight(each) for each in matrices]

    def forward(ops: Any) -> Any:
        row = ops.linear(ops.embed(weights[0]), weights[1])
        q, k, v = (ops.columns(row, first, width) for first, width in ((0, 60), (60, 20), (80, 20)))
        return ops.last_rows(ops.attention(0, q, k, v, shape))

    def logits(rows: int) -> tuple[Any, int]:
        program: Any = backend.record(forward, backend.new_cache([shape], 1, dtype), 32)
        kernels = [operation.kernel for stage in program.stages for operation in stage]
        ids = np.arange(rows, dtype=np.int32)
        with closing(program):
            return program.run(Step(ids, ids, np.zeros(1, np.int32), rows)).copy(), kernels.count("columns")

    for rows in (1, 5, 20):
        fused, few = logits(rows)
        with monkeypatch.context() as patched:
            patched.setattr(lower, "PATTERNS", ())
            plain, all_three = logits(rows)
        assert np.array_equal(fused, plain)
        assert (few, all_three) == (1, 3)
