"""Headers read by another process, and cached: the same facts and sentences, and no Numba in the window's
process.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from desktop.services.models.header_reader import HeaderReader
from desktop.store.caches.headers import FILE_NAME, HeaderStore
from engine.core import ModelInfo
from engine.errors import BadCheckpoint, EngineError
from engine.vision.describe import describe
from tests.desktop.helper_pid import helper_pid
from tests.tiny import write_gguf

HEADERS = "engine.hub.local.header_process"


def unexpected(path: Path) -> ModelInfo:
    raise AssertionError("read in the window's process")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf")


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[HeaderReader]:
    found = HeaderReader(HeaderStore(tmp_path / FILE_NAME, "1"), unexpected)
    yield found
    found.end()


def test_the_same_facts_and_sentences(reader: HeaderReader, model: Path, tmp_path: Path) -> None:
    assert reader(model) == describe(model)
    child = helper_pid(HEADERS)
    assert child is not None
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + b"\xff" * 100)
    for path in (tmp_path / "bad.gguf", tmp_path / "gone.gguf", tmp_path / "line\nbreak.gguf"):
        with pytest.raises(EngineError) as own:
            describe(path)
        with pytest.raises(EngineError) as reported:
            reader(path)
        assert str(reported.value) == str(own.value)
    assert helper_pid(HEADERS) == child
    reader.rest()
    assert helper_pid(HEADERS) is None
    assert not psutil.pid_exists(child)
    assert reader(model).name == "tiny"


@pytest.mark.slow
def test_cached_headers_are_not_read_again(reader: HeaderReader, model: Path, tmp_path: Path) -> None:
    first = reader.stamped(model, (1, 2))
    reader.rest()
    assert reader.stamped(model, (1, 2)) == first
    assert helper_pid(HEADERS) is None
    assert reader.stamped(model, (1, 3)) == first
    assert helper_pid(HEADERS) is not None


@pytest.mark.slow
def test_a_dying_process_costs_one_model(reader: HeaderReader, model: Path) -> None:
    reader(model)
    child = helper_pid(HEADERS)
    assert child is not None
    psutil.Process(child).kill()
    with pytest.raises(
        BadCheckpoint, match=r"tiny\.gguf cannot be read: the process that read its headers crashed"
    ):
        reader(model)
    assert reader(model).name == "tiny"


def test_without_other_processes_it_is_read_here(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: object, **kwargs: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refused)
    assert HeaderReader(HeaderStore(tmp_path / FILE_NAME, "1"))(model) == describe(model)


def test_the_end_is_final(reader: HeaderReader, model: Path) -> None:
    reader.end()
    with pytest.raises(BadCheckpoint):
        reader(model)


@pytest.mark.slow
def test_the_windows_process_stays_light(model: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from desktop.services.models.header_reader import HeaderReader\n"
        "from desktop.store.caches.headers import HeaderStore\n"
        "reader = HeaderReader(HeaderStore(Path(sys.argv[2]), '1'))\n"
        "assert reader.stamped(Path(sys.argv[1]), (1,)).name == 'tiny'\n"
        "reader.rest()\n"
        "assert not {'numba', 'llvmlite', 'torch', 'numpy'} & set(sys.modules), 'heavy'\n"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(model), str(tmp_path / FILE_NAME)], check=True, timeout=60
    )
