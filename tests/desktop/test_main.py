"""The command `inglenook`: arguments, and machines on which no window can be opened."""

import os
import subprocess
import sys

import pytest

from desktop import preflight
from desktop.__main__ import parser, version
from desktop.items.models.local_models import starter_size

BLOCK = """
import sys
class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {walled!r}:
            raise ImportError({reason!r}, name=name)
sys.meta_path.insert(0, Wall())
from desktop.__main__ import main
sys.exit(main({arguments!r}))
"""


def start(arguments, walled=(), reason="", **environment):
    code = BLOCK.format(walled=tuple(walled), reason=reason, arguments=list(arguments))
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    }
    environment = {**clean, **environment}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment, check=False
    )


def test_version_needs_neither_qt_nor_torch_nor_a_display() -> None:
    done = start(["--version"], walled=("PySide6", "torch", "numba", "qasync", "numpy"), reason="not here")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"inglenook {version()}\n", "")


def test_the_size_of_the_starter_model_is_the_same_as_in_the_window() -> None:
    assert f"({starter_size()}, once)" in " ".join(parser().format_help().split())


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="Qt opens windows without a display variable elsewhere"
)
def test_without_a_display_one_sentence_and_exit_code_1() -> None:
    done = start([])
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "no display" in done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="X11 only")
def test_a_display_that_does_not_answer_is_named() -> None:
    done = start([], DISPLAY=":987")
    assert done.returncode == 1
    assert ":987" in done.stderr or "sudo apt install" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_system_library_names_the_packages() -> None:
    reason = "libEGL.so.1: cannot open shared object file: No such file or directory"
    done = start([], walled=("PySide6",), reason=reason, QT_QPA_PLATFORM="offscreen")
    assert done.returncode == 1
    assert "libEGL.so.1 is missing" in done.stderr
    assert "sudo apt install libegl1 " in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_pyside_says_so() -> None:
    done = start([], walled=("PySide6",), reason="no module", QT_QPA_PLATFORM="offscreen")
    assert done.returncode == 1
    assert "PySide6-Essentials" in done.stderr


def test_with_qt_there_is_no_trouble() -> None:
    assert preflight.import_trouble() == ""


READ = """
import linecache, sys, types
from desktop.__main__ import main

def run(**options):
    import wave
    import engine.core
    print([name for name in linecache.cache if name in (wave.__file__, engine.core.__file__)])
    return 0

sys.modules["desktop.app"] = types.SimpleNamespace(run=run)
sys.exit(main([]))
"""


def test_no_module_is_read_to_look_for_the_word_pyside6() -> None:
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    done = subprocess.run(
        [sys.executable, "-c", READ], capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[]\n")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only")
def test_a_plugin_that_cannot_be_loaded_names_its_library(monkeypatch) -> None:
    def fail(name: str) -> None:
        raise OSError("libxcb-cursor.so.0: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(preflight, "load_plugin", fail)
    sentence = preflight.trouble({"DISPLAY": ":0"})
    assert "libxcb-cursor.so.0 is missing" in sentence
    assert "libxcb-cursor0" in sentence


def test_a_frozen_program_names_the_missing_library_too(monkeypatch) -> None:
    def fail(_name: str) -> None:
        try:
            raise OSError("libxcb-icccm.so.4: cannot open shared object file: No such file or directory")
        except OSError as error:
            raise OSError("Failed to load dynlib/dll '/x/libqxcb.so'.") from error

    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(preflight, "load_plugin", fail)
    sentence = preflight.trouble({"DISPLAY": ":0"})
    assert "because the system library libxcb-icccm.so.4 is missing; on Debian" in sentence


def test_platforms_without_a_display_are_not_asked_for_one() -> None:
    assert preflight.trouble({"QT_QPA_PLATFORM": "offscreen"}) == ""
    assert preflight.trouble({"QT_QPA_PLATFORM": "vnc:port=5901"}) == ""


def test_arguments() -> None:
    options = parser().parse_args(["--starter", "--data", "here", "--debug"])
    assert options.starter
    assert options.debug
    assert str(options.data) == "here"
    assert options.model is None
