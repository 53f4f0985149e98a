"""The parts of the CPU bench that judge: lines and bars, turns, rivals that fail, files that are written.

Figures are not tested.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.bench import bench_cpu, cpu_speed, cpu_threads
from tests.bench.cpu_host import host
from tests.bench.cpu_kit import Line, Options, in_turn, ratio
from tests.synthetic import write_large_gguf
from tests.tiny import TINY, read_gguf_weights, write_gguf
from tests.tools import rivals
from tests.tools.rivals import Rival, RivalFailed, open_rivals
from tests.tools.twins import write_twin

ECHO = """
import json, sys, time
print(json.dumps({"name": "echo", "version": "1"}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["start"] == 1:
        sys.exit(3)
    time.sleep(60 if asked["start"] == 2 else 0)
    print(json.dumps({"seconds": len(asked["ids"]) + 0.5 * asked["one_by_one"]}), flush=True)
"""


def line(value: float, bar: float | None, *, at_most: bool = False, of: str = "x") -> Line:
    return Line("decode", "starter", 100.0, "tok/s", value, of, bar, at_most, "llama.cpp", 50.0)


@pytest.mark.parametrize(
    ("value", "bar", "at_most", "of", "met"),
    [
        (2.2, 2.2, False, "x", True), (2.194, 2.2, False, "x", False), (1.19, 1.2, True, "x", True),
        (1.21, 1.2, True, "x", False),
        (0.0201, 0.02, True, "nats", False), (0.02, 0.02, True, "nats", True), (5.0, None, False, "x", None),
    ],
)  # fmt: skip
def test_a_bar_is_met_or_missed(
    value: float, bar: float | None, at_most: bool, of: str, met: bool | None
) -> None:
    found = line(value, bar, at_most=at_most, of=of)
    assert found.met is met
    assert found.data()["met"] is met
    assert ("MISSED" in found.text()) == (met is False)
    assert (": met" in found.text()) == (met is True)


def test_a_rival_that_fails_is_left_out_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    order: list[str] = []

    def good() -> float:
        order.append("good")
        return float(len(order))

    def bad() -> float:
        order.append("bad")
        if order.count("bad") == 2:
            raise RivalFailed("gone")
        return 1.0

    assert in_turn({"good": good, "bad": bad}, 3) == {"good": [1.0, 3.0, 5.0]}
    assert order == ["good", "bad", "good", "bad", "good"]
    assert "left out: gone" in capsys.readouterr().out


def test_a_ratio_is_the_median_of_pairs() -> None:
    """The machine is half as fast in the second repetition and ten times as slow in the third."""
    assert ratio([2.0, 4.0, 20.0], [1.0, 2.0, 10.0]) == 2.0


@pytest.fixture
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rival]:
    script = tmp_path / "child.py"
    script.write_text(ECHO, "utf-8")
    monkeypatch.setattr(rivals, "CHILD", script)
    rival = Rival("echo", tmp_path / "m.gguf", 1, 64)
    yield rival
    rival.close()


def test_a_rival_answers(echo: Rival) -> None:
    assert echo.version == "1"
    assert [echo.run([1, 2, 3], 0, one_by_one=way) for way in (False, True)] == [3.0, 3.5]


def test_a_rival_that_ends_by_itself(echo: Rival) -> None:
    with pytest.raises(RivalFailed, match=r"ended by itself \(status 3\)"):
        echo.run([1], 1, one_by_one=False)
    with pytest.raises(RivalFailed, match="ended by itself"):
        echo.run([1], 0, one_by_one=False)


def test_a_rival_that_never_answers_is_ended(echo: Rival, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals, "LIMIT_SECONDS", 0.2)
    begun = time.perf_counter()
    with pytest.raises(RivalFailed, match="no answer"):
        echo.run([1], 2, one_by_one=False)
    assert time.perf_counter() - begun < 20


@pytest.mark.slow
def test_a_rival_that_is_not_installed_or_cannot_read_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`openvino` is in no extra, and no engine can read this file."""
    path = tmp_path / "nothing.gguf"
    path.write_bytes(b"GGUF")
    with ExitStack() as stack:
        kinds = ("openvino", "llama.cpp", "ik_llama.cpp repacked")
        assert open_rivals(stack, kinds, path, 1, 64, {"openvino": sys.executable}) == []
        with pytest.raises(FileNotFoundError, match="no such Python"):
            open_rivals(stack, kinds[2:], path, 1, 64, {"ik_llama.cpp": "no such Python"})
    said = capsys.readouterr().out
    assert "ik_llama.cpp repacked is left out for nothing.gguf: " in said
    assert "openvino is left out for nothing.gguf: " in said
    assert "llama.cpp is left out for nothing.gguf: " in said


def test_rows_are_chosen_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_cpu.works(["decode", "shapes/Q8_0"]) == [
        ("decode", "starter"),
        ("decode", "gemma"),
        ("shapes", "Q8_0"),
    ]
    assert {row for row, _ in bench_cpu.works(list(bench_cpu.ROWS))} == set(bench_cpu.ROWS)
    with pytest.raises(SystemExit):
        bench_cpu.parse(["shapes/Q9", "--starter", "a", "--gemma", "b"])
    assert "no such row: shapes/Q9" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["F32", "F16"])
def test_a_twin_has_the_same_weights(tmp_path: Path, kind: str) -> None:
    source, target = write_gguf(tmp_path / "m.gguf", TINY, "Q8_0"), tmp_path / "twin.gguf"
    write_twin(source, target, kind)
    found, expected = read_gguf_weights(target, TINY), read_gguf_weights(source, TINY)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-3 if kind == "F16" else 0, atol=1e-7)
    types = {tensor.tensor_type.name for tensor in gguf.GGUFReader(target).tensors}
    assert types == {"F32", kind}


def test_a_shape_has_a_text_for_each_row(tmp_path: Path) -> None:
    tiny = TINY.but(width=256, heads=2, kv_heads=1, head_dim=128, ffn_width=256, vocab_size=400)
    path = write_large_gguf(tmp_path / "m.gguf", tiny, "F16", whole_vocabulary=True)
    reader = gguf.GGUFReader(path)
    for key in ("tokens", "token_type"):
        assert len(reader.fields[f"tokenizer.ggml.{key}"].contents()) == 400
    assert len(set(reader.fields["tokenizer.ggml.tokens"].contents())) == 400


@pytest.mark.slow
@pytest.mark.parametrize("row", ["decode", "neighbour", "verify", "thread", "host", "busy"])
def test_a_row_measures_us_without_rivals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str) -> None:
    """On a tiny model; the figures are not judged."""
    for module in (cpu_speed, cpu_threads):
        monkeypatch.setattr(module, "open_rivals", lambda *_: [])
    path = write_gguf(tmp_path / "m.gguf", TINY.but(context_length=1024))
    options = Options(path, path, tmp_path, {}, repeat=1, threads=2)
    measure, work = (host, "starter greedy") if row == "host" else (bench_cpu.ROWS[row][0], "starter")
    lines = list(measure(options, work))
    assert lines or row == "thread"  # whose only figure for a small model is the ratio to llama.cpp
    assert all(found.ours > 0 and found.value >= 0 and found.row == row for found in lines)
