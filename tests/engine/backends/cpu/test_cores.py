"""How many threads are taken by default: on a big machine that grants this process only a part of it too."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import psutil
import pytest

from engine.__main__ import main
from engine.backends.cpu.backend import CpuBackend, default_threads
from engine.backends.cpu.runtime import cores
from engine.settings import LoadSettings, setting_info
from tests.tiny import TINY, write_gguf


def write(root: Path, files: dict[str, str]) -> Path:
    """A folder with these files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2.0),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 1e9),
        ("0::/a/b\n", {"a/cpu.max": "150000 100000", "a/b/cpu.max": "max 100000"}, 1.5),
        ("0::/a/b\n", {"a/cpu.max": "400000 100000", "a/b/cpu.max": "50000 100000"}, 0.5),
        ("0::/host/only\n", {"cpu.max": "300000 100000"}, 3.0),
        ("0::/../..\n", {"cpu.max": "300000 100000"}, 3.0),
        (
            "4:cpu,cpuacct:/x\n0::/\n",
            {"cpu,cpuacct/x/cpu.cfs_quota_us": "400000", "cpu,cpuacct/x/cpu.cfs_period_us": "100000"},
            4.0,
        ),
        (
            "4:cpu,cpuacct:/x\n",
            {"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "200000\n"},
            2.0,
        ),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 1e9),
        ("4:memory:/x\n", {"memory/x/cpu.max": "1 100"}, 1e9),
        ("nonsense\n\n7\n", {"cpu.max": "ten of them"}, 1e9),
        ("0::/\n", {"cpu.max": "100 0"}, 1e9),
        ("", {}, 1e9),
    ],
)
def test_the_share_of_a_container(
    tmp_path: Path, groups: str, files: dict[str, str], expected: float
) -> None:
    root = write(tmp_path / "groups", files)
    assert cores.cpu_share(write(tmp_path, {"self": groups}) / "self", root) == expected


def test_without_control_groups(tmp_path: Path) -> None:
    assert cores.cpu_share(tmp_path / "no", tmp_path / "none") == 1e9


def test_two_threads_of_a_core_count_once(tmp_path: Path) -> None:
    cpus = write(
        tmp_path, {f"cpu{n}/topology/thread_siblings_list": f"{n % 4},{n % 4 + 4}\n" for n in range(8)}
    )
    assert cores.physical_cores(list(range(8)), cpus) == 4
    assert cores.physical_cores([0, 4, 5], cpus) == 2
    assert cores.physical_cores([1, 2, 3], tmp_path / "unknown") == 3


@pytest.mark.parametrize(("share", "expected"), [(2.0, 2), (2.9, 2), (0.4, 1), (1e9, 6)])
def test_a_big_machine(monkeypatch: pytest.MonkeyPatch, share: float, expected: int) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 64)
    monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda self: list(range(6)), raising=False)
    monkeypatch.setattr(cores, "physical_cores", len)
    monkeypatch.setattr(cores, "cpu_share", lambda: share)
    assert default_threads() == expected
    assert CpuBackend().threads == expected
    assert CpuBackend(5).threads == 5


def test_the_setting_and_a_bad_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (info,) = (setting_info(each) for each in dataclasses.fields(LoadSettings) if each.name == "threads")
    assert (info.low, info.advanced) == (0, False)
    path = str(write_gguf(tmp_path / "tiny.gguf", TINY, "F16"))
    for number in ("-1", "257", "many", "1.5"):
        try:
            code = main(["bench", path, "--threads", number])
        except SystemExit as end:
            code = int(end.code or 0)
        assert code
        said = capsys.readouterr().err
        assert "threads" in said
        assert number in said
        assert "Traceback" not in said
