"""Machine code is compiled once, kept safely, and found again without a compiler."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.backends.cuda.codegen import cubin_cache, prebuild, ptx, workers
from engine.backends.cuda.codegen.cubin_cache import Binaries
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.targets import CAPABILITIES, BuildError, Built
from engine.backends.cuda.kernels.pointwise import _add, add_kernel
from engine.core import Loading
from engine.errors import EngineError
from engine.platform import worker_pool
from tests.simt.driver.test_build import doubling

ROOT = Path(__file__).parents[3]


def variants(count: int) -> list[Kernel]:
    return [Kernel(f"add_{i}", _add, "llllllif", 256, 24, {"THREADS": 256, "i": i}) for i in range(count)]


class Compiler:
    """Stands for `workers.compiled`: code that names its kernel and device."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.did: list[str] = []
        self.closed = 0
        monkeypatch.setattr(workers, "compiled", self.compiled)
        monkeypatch.setattr(cubin_cache, "prebuilt", lambda: None)

    def compiled(
        self, kernels: Sequence[Kernel], capabilities: Sequence[int], processes: int | None = None
    ) -> Iterator[Any]:
        try:
            for kernel in reversed(kernels):
                self.did.append(kernel.name)
                bad = kernel.body is doubling().body
                yield (
                    kernel,
                    BuildError("bad")
                    if bad
                    else {c: Built(f"{kernel.name} {c}".encode(), "ptx", 9, 0, 0, 0) for c in capabilities},
                )
        finally:
            self.closed += 1


def test_progress_then_nothing_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, store = Compiler(monkeypatch), Binaries(tmp_path)
    events = list(store.ready(variants(3), 90))
    assert events == [Loading(cubin_cache.STAGE, i, 3) for i in range(4)]
    assert list(store.ready(variants(3), 90)) == []
    assert list(Binaries(tmp_path).ready(variants(3), 90)) == []
    assert compiler.did == ["add_2", "add_1", "add_0"]
    assert Binaries(tmp_path).cubin(variants(3)[1], 90) == b"add_1 90"
    assert store.cubin(variants(3)[1], 121) == b"add_1 120"
    assert store.cubin(variants(3)[1], 130) == b"ptx\0"


def test_it_stops_between_two_kernels_and_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = Compiler(monkeypatch)
    working = Binaries(tmp_path).ready(variants(4), 90)
    for event in working:
        if event.done == 2:
            break
    working.close()  # type: ignore[attr-defined]
    assert compiler.closed == 1
    assert [event.total for event in Binaries(tmp_path).ready(variants(4), 90)] == [2, 2, 2]
    assert sorted(compiler.did) == ["add_0", "add_1", "add_2", "add_3"]


def test_damaged_files_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(monkeypatch)
    kernels = variants(3)
    list(Binaries(tmp_path).ready(kernels, 90))
    files = sorted(file for file in tmp_path.rglob("add_*") if file.is_file())
    files[0].write_bytes(b"")
    files[1].write_bytes(files[1].read_bytes()[:-1])
    compiler.did.clear()
    again = Binaries(tmp_path)
    list(again.ready(kernels, 90))
    assert sorted(compiler.did) == ["add_0", "add_1"]
    assert [Binaries(tmp_path).cubin(kernel, 90) for kernel in kernels] == [
        b"add_0 90",
        b"add_1 90",
        b"add_2 90",
    ]
    assert list(tmp_path.rglob("*.part")) == []


def test_other_constants_sources_or_compilers_are_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (Kernel("same", _add, "llllllif", 256, 24, {"THREADS": threads}) for threads in (128, 256))
    assert cubin_cache.file_name(one) != cubin_cache.file_name(other)
    assert cubin_cache.file_name(one) != cubin_cache.file_name(
        Kernel("same", _add, "llllllif", 256, 24, {"THREADS": 128}, blocks=2)
    )
    with_function = {"THREADS": 128, "form": _add, "load": ptx.ldg_f32}
    assert "0x" not in repr(cubin_cache._spelled(_add)) + repr(cubin_cache._spelled(ptx.ldg_f32))
    named = cubin_cache.file_name
    assert named(Kernel("same", _add, "l", 32, 24, with_function)) != named(Kernel("same", _add, "l", 32, 24))
    folders = {Binaries(tmp_path).folder}
    monkeypatch.setattr(cubin_cache, "compiler", lambda: "another")
    folders.add(Binaries(tmp_path).folder)
    monkeypatch.setattr(cubin_cache, "sources", lambda: "other")
    folders.add(Binaries(tmp_path).folder)
    assert len(folders) == 3


def test_only_the_latest_versions_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Compiler(monkeypatch)
    for i in range(6):
        old = tmp_path / f"cuda-{i}"
        (old / "sm_90").mkdir(parents=True)
        os.utime(old, (1000 + i, 1000 + i))
    (tmp_path / "kernels-of-the-cpu").mkdir()
    store = Binaries(tmp_path)
    list(store.ready(variants(1), 90))
    assert store.folder is not None
    assert {each.name for each in tmp_path.iterdir()} == {
        "kernels-of-the-cpu",
        "cuda-3",
        "cuda-4",
        "cuda-5",
        store.folder.name,
    }


def test_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(monkeypatch)
    monkeypatch.setattr(cubin_cache, "code_folder", lambda name: None)
    store = Binaries()
    assert store.cubin(variants(1)[0], 90) == b"add_0 90"
    assert store.cubin(variants(1)[0], 90) == b"add_0 90"
    assert compiler.did == ["add_0"]


def test_kernels_that_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Compiler(monkeypatch)
    store = Binaries(tmp_path)
    newer = Kernel("newer", _add, "llllllif", 256, 24, {"THREADS": 256}, min_capability=80)
    with pytest.raises(BuildError, match=r"newer needs compute capability 8\.0; this GPU has 7\.5"):
        store.cubin(newer, 75)
    with pytest.raises(BuildError, match="bad"):
        store.cubin(doubling(), 90)
    with pytest.raises(EngineError, match=r"7\.5; this GPU has 6\.1"):
        list(store.ready(variants(1), 61))


def test_what_was_built_beforehand_is_taken_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(monkeypatch)
    kernels = variants(2)
    # PTX of 86, 100 and 120
    assert prebuild.prebuild(tmp_path / "cubins", kernels) == 2 * (len(CAPABILITIES) + 3)
    assert (tmp_path / "cubins" / "compute_120" / cubin_cache.file_name(kernels[0])).is_file()
    monkeypatch.undo()
    compiler = Compiler(monkeypatch)
    monkeypatch.setattr(cubin_cache, "prebuilt", lambda: tmp_path / "cubins")
    store = Binaries(tmp_path / "own")
    for capability in (75, 86, 87, 90, 110, 121, 130):
        assert list(store.ready(kernels, capability)) == []
    assert compiler.did == []
    assert list(store.ready([*kernels, add_kernel()], 90)) == [
        Loading(cubin_cache.STAGE, i, 1) for i in range(2)
    ]


def test_what_was_built_from_other_sources_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resources

    monkeypatch.setattr(resources, "__path__", [str(tmp_path)])
    folder = tmp_path / "cubins"
    folder.mkdir()
    for text, expected in (
        ("", None),
        ("[]", None),
        (json.dumps({"sources": "old"}), None),
        (json.dumps({"sources": cubin_cache.sources()}), folder),
    ):
        (folder / cubin_cache.MANIFEST).write_text(text)
        cubin_cache.prebuilt.cache_clear()
        assert cubin_cache.prebuilt() == expected
    cubin_cache.prebuilt.cache_clear()


def test_prebuild_says_how_it_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert prebuild.main([]) == 2
    assert "FOLDER" in capsys.readouterr().err


# --- workers ---


@pytest.mark.slow
def test_workers_compile_and_the_next_process_needs_no_compiler(tmp_path: Path) -> None:
    """For real: one worker, float64 refused by it, and code from disk in a process that imports no numba
    and no torch.
    """
    outcomes = dict(workers.compiled([add_kernel(), doubling()], [90], 1))
    built, refused = outcomes[add_kernel()], outcomes[doubling()]
    assert isinstance(refused, BuildError)
    assert "float64" in str(refused)
    assert isinstance(built, dict)
    store = Binaries(tmp_path)
    assert store.folder is not None
    store._keep(add_kernel(), cubin_cache.target(90), built[90], store.folder)
    code = f"""
import sys
from pathlib import Path
from engine.backends.cuda.codegen.cubin_cache import Binaries
from engine.backends.cuda.kernels.pointwise import add_kernel
store = Binaries(Path({str(tmp_path)!r}))
heavy = [name for name in ("numba", "llvmlite", "torch") if name in sys.modules]
print(list(store.ready([add_kernel()], 90)), store.cubin(add_kernel(), 90)[:4], heavy)
"""
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert answer.stdout.strip() == r"[] b'\x7fELF' []"


def test_workers_that_do_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it happens here."""
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    monkeypatch.setattr(worker_pool, "python_command", lambda module: command)
    monkeypatch.setattr(workers, "outcome_of", lambda kernel, capabilities: {90: kernel.name})
    assert sorted(kernel.name for kernel, _ in workers.compiled(variants(5), [90], 2)) == [
        f"add_{i}" for i in range(5)
    ]


def test_kernels_that_cannot_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    local = Kernel("local", lambda x: None, "l", 32, 32)
    monkeypatch.setattr(workers, "outcome_of", lambda kernel, capabilities: {90: kernel.name})
    assert list(workers.compiled([local], [90])) == [(local, {90: "local"})]


def test_closing_ends_workers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they are doing."""
    script = (
        "import sys, time, pickle; pickle.dump({}, sys.stdout.buffer); sys.stdout.flush(); time.sleep(1000)"
    )
    monkeypatch.setattr(worker_pool, "python_command", lambda module: [sys.executable, "-c", script])
    outcomes: Any = workers.compiled(variants(4), [90], 2)
    assert next(outcomes)[1] == {}
    outcomes.close()


def test_instructions_are_sent_by_name() -> None:
    kernel = Kernel("with_load", _add, "llllllif", 256, 24, {"THREADS": 256, "load": ptx.ldg_f32})
    job = workers._job(kernel, [90])
    assert job is not None
    again, capabilities = pickle.loads(job)
    assert again.constants["load"] is ptx.ldg_f32
    assert (again.body, capabilities) == (_add, (90,))
