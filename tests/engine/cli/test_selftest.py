"""Command `selftest`: what passes, what fails, and what it says.

On a GPU that is none: the CUDA engine's kernels as NumPy tells them.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import engine.backends
from engine.__main__ import main
from engine.backends import choice
from engine.backends.choice import Gpu, Target, Usable
from engine.backends.cuda.backend import CudaBackend
from engine.backends.reference.backend import ReferenceBackend, ReferenceProgram
from engine.cli import selftest
from engine.cli.logits import log_softmax
from engine.cli.selftest import CONTEXT
from engine.cli.selftest_model import TEXT, WINDOW, Answers, compared, perplexity
from engine.models.proof.case import checked, difference
from engine.models.proof.cases import cases
from engine.models.proof.random_tensors import BLOCKS, PACKED
from engine.settings import CacheSettings, LoadSettings
from tests.engine.generator.fakes import make, random_logits, tokenizer
from tests.simt.fake import FakeDevice
from tests.tiny import TINY, write_gguf

Run = Any


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def ask(*arguments: object) -> tuple[int, str]:
        code = main(["selftest", *map(str, arguments)])
        found = capsys.readouterr()
        return code, found.out or found.err

    return ask


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> list[FakeDevice]:
    """One GPU, in whose place a fake device stands."""
    made: list[FakeDevice] = []
    real = engine.backends.backend_on

    def backend_on(target: Target, settings: LoadSettings) -> Any:
        if target.backend != "cuda":
            return real(target, settings)
        made.append(FakeDevice())
        return CudaBackend([made[-1]], where=target.where, keep_free=settings.gpu_memory << 20)

    monkeypatch.setattr(choice, "usable_gpus", lambda: Usable((Gpu(0, "Fake 1", 1 << 34, 1 << 34),)))
    monkeypatch.setattr(engine.backends, "backend_on", backend_on)
    return made


def test_the_processor(run: Run) -> None:
    code, out = run("--device", "cpu", "--only", "norm", "--only", "add")
    assert code == 0
    assert "rms_norm of heads" in out
    assert out.splitlines()[-1] == "6 checks, 0 failed"
    assert run("--device", "cpu", "--only", "NORM", "--only", "Add")[1].splitlines() == out.splitlines()
    for nothing in (("--only", "no such thing"), ("--skip-kernels",)):
        code, out = run("--device", "cpu", *nothing)
        assert (code, out) == (1, "nothing was checked: no check has a matching name\n")


def test_a_gpu_that_is_not_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        choice, "usable_gpus", lambda: Usable((), "No NVIDIA driver was found on this machine.")
    )
    code, out = run("--device", "cuda")
    assert code == 1
    assert "No NVIDIA driver was found" in out


def test_a_kernel_that_is_wrong_fails(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    right = ReferenceProgram.run

    class Wrong(ReferenceBackend):
        def record(self, *arguments: Any) -> Any:
            program = super().record(*arguments)
            program.run = lambda step: right(program, step) * np.float32(1.001)  # type: ignore[method-assign]
            return program

    monkeypatch.setattr(engine.backends, "backend_on", lambda target, settings: Wrong())
    code, out = run("--device", "cpu", "--only", "rms_norm", "--json")
    found = json.loads(out)
    assert (code, found["passed"], found["failed"]) == (1, False, 2)
    assert found["kernels"][0]["difference"] == pytest.approx(0.001, rel=1e-3)
    assert "FAILED" in run("--device", "cpu", "--only", "rms_norm")[1]


def test_differences() -> None:
    a = np.array([1.0, -4.0, np.nan], np.float32)
    assert difference(a, a) == 0.0
    assert difference(a + np.float32(0.4), a) == pytest.approx(0.1)
    assert difference(np.array([1.0, np.inf, np.nan], np.float32), a) == np.inf
    assert difference(a[:2], a) == np.inf


@pytest.mark.slow
def test_every_form_of_weights_has_a_case() -> None:
    names = {case.name for case in cases()}
    assert {f"linear, {name}" for name in (*BLOCKS, *PACKED)} <= names
    for maker in (*BLOCKS.values(), *PACKED.values()):
        values = maker(np.random.default_rng(1), 32, 256).dequantise()
        assert values.shape == (32, 256)
        assert np.isfinite(values).all()
        assert 1e-3 < values.std() < 1.0
    # The reference agrees with itself, so a case that fails elsewhere is not to blame on its numbers.
    for name in (
        "linear, EXL2 mixed",
        "experts, MXFP4",
        "attention, q4 cache",
        "rope, halves, 24 of 32",
        "add_positions",
    ):
        case = next(case for case in cases() if case.name == name)
        assert checked(case, ReferenceBackend(), ReferenceBackend())["difference"] == 0.0


def answers(margin: float, shift: float = 0.0, perplexity: float = 10.0) -> Answers:
    """One place; the first token leads the second by so much."""
    row = np.full(20, -9.0 + shift, np.float32)
    row[:2] = -1.0 + shift, -1.0 - margin + shift
    return Answers(((0,),), (row[None],), perplexity)


@pytest.mark.parametrize(
    ("device", "passed"),
    [(answers(0.05), [True, True, True]), (answers(-0.02), [True, True, True]),
    (answers(0.05, 0.03), [True, False, True]),
     (answers(0.05, perplexity=10.06), [True, True, False]),
     (answers(0.05, perplexity=9.94), [True, True, False]), (answers(0.05, perplexity=float("nan")),
     [True, True, False])],
)  # fmt: skip
def test_the_rule_for_answers(device: Answers, passed: list[bool]) -> None:
    assert [row["passed"] for row in compared(device, answers(0.05))] == passed


def test_a_departure_where_the_baseline_was_sure() -> None:
    assert not compared(answers(-0.01), answers(0.11))[0]["passed"]
    assert compared(answers(-0.01), answers(0.09))[0]["passed"]


def test_a_model_is_asked_on_two_devices(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, int]] = []

    def load(_model: str, settings: LoadSettings, cache: CacheSettings, _console: object) -> Any:
        asked.append((settings.backend, cache.dtype, cache.context_length))
        generator, _ = make(rows=100)
        info = SimpleNamespace(notice="", report="")
        return SimpleNamespace(generator=generator, tokenizer=tokenizer(), info=info, close=lambda: None)

    monkeypatch.setattr(selftest, "load", load)
    path = write_gguf(tmp_path / "m.gguf")
    code, out = run(path, "--device", "cpu", "--skip-kernels", "--json")
    found = json.loads(out)
    assert asked == [("reference", "fp32", CONTEXT), ("cpu", "fp32", CONTEXT)]
    assert (code, found["against"], found["kernels"], found["passed"]) == (0, "reference", [], True)
    assert [row["difference"] for row in found["answers"]] == [0.0, 0.0, 0.0]


@pytest.mark.slow
def test_the_processor_with_a_model(run: Run, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", TINY, "Q8_0")
    code, out = run(path, "--device", "cpu", "--skip-kernels")
    assert code == 0, out
    assert "against the reference backend" in out


@pytest.mark.slow
def test_the_cuda_engine_on_a_device_that_is_none(run: Run, gpu: list[FakeDevice]) -> None:
    words = ("rms_norm", "gated, silu", "linear, BF16", "linear, Q4_0", "attention, 8 heads")
    code, out = run("--device", "cuda", *(part for word in words for part in ("--only", word)))
    assert code == 0, out
    assert out.startswith("cuda, Fake 1, against the reference:")
    assert gpu[0].done > 0


@pytest.mark.slow
def test_the_whole_cuda_engine_on_a_device_that_is_none(run: Run, gpu: list[FakeDevice]) -> None:
    code, out = run("--device", "cuda")
    assert code == 0, out


@pytest.mark.slow
def test_a_model_on_a_device_that_is_none(run: Run, gpu: list[FakeDevice], tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", TINY, "Q8_0")
    code, out = run(path, "--device", "cuda", "--skip-kernels")
    assert code == 0, out
    assert "on Fake 1, against the cpu backend" in out
    assert gpu[-1].done > 0  # the first one only forgot what had been proved


def test_the_perplexity_of_a_text_that_is_scored_in_parts() -> None:
    generator, _ = make(rows=100)
    chat: Any = SimpleNamespace(generator=generator, tokenizer=tokenizer())
    ids = tokenizer().encode(TEXT, add_bos=tokenizer().add_bos)[:WINDOW]
    losses = [-log_softmax(random_logits(ids[:n])[None])[0][ids[n]] for n in range(1, WINDOW)]
    assert perplexity(chat) == pytest.approx(np.exp(np.mean(losses)), rel=1e-4)
