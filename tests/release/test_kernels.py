"""Kernels that a package brings: a first start compiles nothing, and no processor runs what it cannot."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.backends.cpu.codegen import kernel_cache
from engine.backends.cpu.codegen.simd_bytes import AMX
from engine.platform.levels import FOLDER, LEVELS, host_features
from tests.release import kernels
from tests.release.kernels import KERNELS, compile_kernels
from tests.release.plan import ROOT, PackagingError

pytestmark = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="levels of x86-64"
)
LOWEST = LEVELS[-1]
START = """
import json, sys
from pathlib import Path
from llvmlite import binding
from numba.core.event import install_recorder
import resources
place, cache, features, *rest = sys.argv[1:]
resources.__path__.append(place)
if features:
    found = binding.targets.FeatureMap(dict.fromkeys(features.split(","), True))
    binding.get_host_cpu_features = lambda: found
from engine.backends.cpu.codegen.kernel_cache import KERNELS
from engine.platform import levels
"""
LOAD = """
with install_recorder("numba:run_pass") as passes:
    for _ in KERNELS.compile(rest):
        pass
level, table = levels.chosen(), KERNELS
print(json.dumps({
    "level": level and level.name, "passes": len(passes.buffer), "ticks": table.pool["ticks"]() > 0,
    "addresses": all(table.address(name) for name in rest),
    "kept": sorted(path.name.partition(".")[0] for path in Path(cache).rglob("*.nbc")),
}))
"""
REPLY = """
import threading
from engine.chat import finished, open_chat
from engine.core import ChatRequest, Message, Text
from engine.settings import LoadSettings, SamplerSettings, StopSettings
with install_recorder("numba:run_pass") as passes:
    chat = finished(open_chat(rest[0], LoadSettings(backend="cpu", threads=1)))
    question = (Message("user", "Name three colours."),)
    request = ChatRequest(question, SamplerSettings(temperature=0.0), StopSettings(max_tokens=24))
    events = list(chat.stream(request, threading.Event()))
    chat.close()
level = levels.chosen()
print(json.dumps({
    "level": level and level.name, "passes": len(passes.buffer),
    "text": "".join(event.text for event in events if isinstance(event, Text)),
    "kept": len(list(Path(cache).rglob("*.nbc"))),
}))
"""


def start(code: str, place: Path, cache: Path, features: tuple[str, ...], *rest: str) -> dict[str, Any]:
    """What a new process reports that finds `place` as `resources`; `features` () are the true ones."""
    cache.mkdir(mode=0o700, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_CPU_")}
    printed = subprocess.check_output(
        [sys.executable, "-c", START + code, str(place), str(cache), ",".join(features), *rest],
        env={**environment, "INGLENOOK_CACHE": str(cache)},
    )
    report: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return report


@pytest.mark.slow
def test_code_that_is_brought_is_loaded_and_only_by_a_processor_that_can_run_it(tmp_path: Path) -> None:
    compile_kernels(tmp_path / FOLDER, [LEVELS[0], LOWEST], ["last_rows"])
    features = tuple(feature for feature in LEVELS[0].features if not feature.startswith("avx512"))
    able = start(LOAD, tmp_path, tmp_path / "able", features, "last_rows")
    assert able == {"level": LOWEST.name, "passes": 0, "ticks": True, "addresses": True, "kept": []}
    other = start(LOAD, tmp_path, tmp_path / "other", LOWEST.features[1:], "last_rows")
    assert other["level"] is None
    assert other["passes"] > 0
    assert other["kept"] == sorted(["clock", *["work_stealing"] * 2, "rows"])

    # What is not brought is compiled for the same level, and kept by the user.
    more = start(LOAD, tmp_path, tmp_path / "able", features, "last_rows", "columns")
    assert (more["level"], more["kept"], more["addresses"]) == (LOWEST.name, ["rows"], True)


def test_a_folder_that_cannot_be_trusted_makes_no_package(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(kernels, "run", lambda *_, **__: "")
    with pytest.raises(PackagingError, match="Compiled code was not kept"):
        compile_kernels(tmp_path, [LOWEST], [])


def starter_kernels(path: Path) -> set[str]:
    """Kernels that packing the weights and a model's passes need, by its headers."""
    from engine.backends.cpu.backend import CpuBackend
    from engine.backends.cpu.lowering.constants import CountedConstants
    from engine.backends.cpu.lowering.lower import LoweredPass
    from engine.backends.graph.cache import CacheSpec
    from engine.backends.kv_formats import cache_type
    from engine.models.base import rope_tables
    from engine.models.load import read_config, survey
    from engine.weights.checkpoint import open_checkpoint

    checkpoint = open_checkpoint(path)
    parts, config = survey(checkpoint, CpuBackend()).parts, read_config(checkpoint)
    assert parts is not None
    tables, cache = rope_tables(config, 256, 256), CacheSpec(cache_type("auto", automatic="fp16"))
    lowered = LoweredPass(lambda ops: parts(ops, tables), cache, 16, CountedConstants())
    return {"repack", *lowered.kernels}


def test_every_name_is_that_of_a_kernel() -> None:
    assert len(set(KERNELS)) == len(KERNELS)
    for name in kernels.for_level(KERNELS, amx=True):
        assert callable(kernel_cache._source(name, kernel_cache._plain)), name


def test_what_packs_weights_for_gpus_is_brought() -> None:
    assert "repack_words" in KERNELS


def test_all_kernels_of_the_starter_are_brought(starter_path: Path) -> None:
    assert starter_kernels(starter_path) <= set(kernels.for_level(KERNELS, AMX))


@pytest.mark.slow
def test_a_first_reply_compiles_nothing_and_is_right(starter_path: Path, tmp_path: Path) -> None:
    """For the best level of this machine, and for the lowest; no reply differs from that of host code."""
    have = {name for name, there in host_features().items() if there}
    best = next(level for level in LEVELS if set(level.features) <= have)
    names = sorted(starter_kernels(starter_path))
    replies = {}
    for level in dict.fromkeys((best, LOWEST)):
        compile_kernels(tmp_path / level.name / FOLDER, [level], names)
        found = start(
            REPLY, tmp_path / level.name, tmp_path / f"cache {level.name}", level.features, str(starter_path)
        )
        assert (found["level"], found["passes"], found["kept"]) == (level.name, 0, 0)
        replies[level.name] = found["text"]
    plain = start(REPLY, tmp_path / "none", tmp_path / "cache", (), str(starter_path))
    assert plain["level"] is None
    assert plain["passes"] > 0
    assert set(replies.values()) == {plain["text"]}
    assert len(plain["text"].split()) > 5


@pytest.mark.parametrize(
    "named", [b"/anywhere/site-packages/numba/np/arrayobj.py", os.fsencode(ROOT / "engine/x.py")]
)
def test_code_that_names_a_folder_of_the_build_is_refused(tmp_path: Path, named: bytes) -> None:
    code = tmp_path / "sampling-0" / "passes._pick-1.py311.1.nbc"
    code.parent.mkdir()
    code.write_bytes(b"code")
    kernels.check_folders(tmp_path)
    code.write_bytes(b"code" + named)
    with pytest.raises(PackagingError, match=r"passes\._pick-1\.py311\.1\.nbc names the folder"):
        kernels.check_folders(tmp_path)
