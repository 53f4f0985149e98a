"""`bench --profile`: every operation is in the table once, with the bytes it reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.__main__ import main
from engine.backends.base import AttentionShape, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.lowering.call import Operation
from engine.backends.cpu.program import CpuProgram
from engine.backends.cpu.runtime import profile as profiles
from engine.backends.cpu.runtime.profile import bytes_read, profile
from engine.backends.graph.buffers import Buffer
from tests.engine.backends.kernel_oracles import Matrix
from tests.tiny import TINY, write_gguf


def _operation(**more: Any) -> Operation:
    return Operation("kernel", [], [], [], (1, 1, 1, 1), **more)


@pytest.mark.parametrize(
    ("operation", "rows", "depth", "expected"),
    [
        (_operation(), 5, 100, 0),
        (_operation(bytes=1000), 5, 100, 1000),
        (_operation(bytes=1000, row_bytes=300), 1, 100, 300),
        (_operation(bytes=1000, row_bytes=300), 5, 100, 1000),
        (_operation(bytes=1000, row_bytes=300, on_logit_rows=True), 5, 100, 300),
        (_operation(position_bytes=10, window=1 << 40), 1, 100, 1010),
        (_operation(position_bytes=10, window=1 << 40), 50, 0, 500),
        (_operation(position_bytes=10, window=32), 1, 100, 320),
        (_operation(position_bytes=10, window=32), 4, 100, 350),
    ],
)
def test_bytes_read(operation: Operation, rows: int, depth: int, expected: int) -> None:
    assert bytes_read(operation, rows, depth) == expected


@pytest.mark.parametrize("threads", [1, 2])
def test_every_stage_is_timed(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All stages are counted, products with all of their bytes, and the result is that of a plain step."""
    backend = CpuBackend(threads)
    table, weight, square = (
        backend.load_weight(Matrix("F32", shape, i))
        for i, shape in enumerate([(16, 64), (256, 64), (64, 64)])
    )

    def forward(ops: Any) -> Buffer:
        x = ops.embed(table)
        for _ in range(3):
            x = ops.add(ops.linear(x, square), ops.linear(x, square))
        y: Buffer = ops.linear(ops.last_rows(x), weight)
        return y

    cache = backend.new_cache([AttentionShape(heads=1, kv_heads=1, head_dim=16, scale=1.0)], 1, "fp16")
    program = backend.record(forward, cache, 4)
    assert isinstance(program, CpuProgram)
    step = Step(np.arange(2, dtype=np.int32), np.arange(2, dtype=np.int32), np.zeros(1, np.int32), 1)
    plain = program.run(step).copy()
    spent = profile(program, lambda: program.run(step), 2, 0, 5)
    assert np.array_equal(program.run(step), plain)
    assert program.stamps is None
    assert sum(each.count for each in spent) == program.stage_count
    assert [each.seconds for each in spent] == sorted((each.seconds for each in spent), reverse=True)
    by_name = {each.name: each for each in spent}
    assert by_name["2 linear_f32 64x64"].count == 3
    assert by_name["2 linear_f32 64x64"].bytes == 6 * 64 * 64 * 4
    assert by_name["linear_f32 256x64"].bytes == 256 * 64 * 4
    assert all(each.seconds > 0 for each in spent)
    monkeypatch.setattr(profiles, "ticks_per_second", lambda _read: 0.0)  # a CPU without a counter
    assert profile(program, lambda: program.run(step), 2, 0, 1) == []
    program.close()


def test_attention_reads_the_keys_and_values_in_its_window() -> None:
    """Bytes of a position: of two heads' keys and values, in fp16."""
    backend = CpuBackend(1)
    shape = AttentionShape(4, 2, 16, 1.0, window=5)
    q, k = (backend.load_weight(Matrix("F32", (16, heads * 16), heads)) for heads in (4, 2))

    def forward(ops: Any) -> Buffer:
        keys = ops.embed(k)
        y: Buffer = ops.last_rows(ops.attention(0, ops.embed(q), keys, keys, shape))
        return y

    program = backend.record(forward, backend.new_cache([shape], 1, "fp16"), 4)
    assert isinstance(program, CpuProgram)
    (found,) = (op for stage in program.stages for op in stage if op.kernel.startswith("attention"))
    assert (found.position_bytes, found.window) == (2 * (16 + 16) * 2, 5)
    program.close()


SIZES = (
    "--prompt-tokens",
    "40",
    "--new-tokens",
    "2",
    "--depth",
    "10",
    "--repeat",
    "1",
    "--threads",
    "2",
    "--profile",
)


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write_gguf(tmp_path / "tiny.gguf", TINY, "F16", tokenizer__ggml__add_bos_token=True))
    assert main(["bench", path, *SIZES, "--json", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)["profile"]
    assert [(name, step["rows"], step["depth"]) for name, step in found.items()] == [
        ("decode", 1, 10),
        ("prefill", 40, 0),
    ]
    for step in found.values():
        assert sum(each["share"] for each in step["operations"]) == pytest.approx(1.0)
        assert sum(each["seconds"] for each in step["operations"]) == pytest.approx(
            step["seconds_in_operations"]
        )
        assert any(each["name"].startswith("attention") and each["bytes"] for each in step["operations"])
    assert main(["bench", path, *SIZES, "--device", "cpu"]) == 0
    text = capsys.readouterr().out
    assert "decode step: rows 1, depth 10" in text
    assert "prefill step: rows 40, depth 0" in text
    assert main(["bench", path, *SIZES, "--device", "reference"]) == 1
    assert "--profile measures the kernels of the CPU" in capsys.readouterr().err
