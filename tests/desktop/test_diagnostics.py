"""The hooks of last resort come and go."""

import faulthandler
import logging
import sys
import threading

import pytest

from desktop.diagnostics import Diagnostics


def test_hooks_are_given_back(tmp_path, qapp) -> None:
    before = (sys.excepthook, threading.excepthook, sys.unraisablehook, tuple(logging.getLogger().handlers), logging.getLogger().level)
    enabled = faulthandler.is_enabled()
    diagnostics = Diagnostics(tmp_path / "logs")
    assert sys.excepthook != before[0]
    diagnostics.close()
    after = (sys.excepthook, threading.excepthook, sys.unraisablehook, tuple(logging.getLogger().handlers), logging.getLogger().level)
    assert after == before
    assert faulthandler.is_enabled() == enabled


def test_ctrl_c_is_no_trouble(tmp_path, qapp, capsys) -> None:
    diagnostics = Diagnostics(tmp_path)
    told: list[str] = []
    diagnostics.trouble.connect(told.append)
    try:
        sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
        sys.excepthook(ValueError, ValueError("x"), None)
    finally:
        diagnostics.close()
    assert len(told) == 1
    assert "ValueError" in told[0]


def test_the_log_does_not_grow_without_end(tmp_path, qapp, monkeypatch) -> None:
    monkeypatch.setattr("desktop.diagnostics._LOG_BYTES", 2000)
    diagnostics = Diagnostics(tmp_path)
    try:
        for number in range(300):
            logging.getLogger("desktop.test").info("line %d", number)
    finally:
        diagnostics.close()
    files = sorted(path.name for path in tmp_path.glob("inglenook.log*"))
    assert files == ["inglenook.log", "inglenook.log.1", "inglenook.log.2", "inglenook.log.3"]
    assert sum(path.stat().st_size for path in tmp_path.glob("inglenook.log*")) < 10_000


def test_debug_lines_only_when_asked(tmp_path, qapp) -> None:
    for debug in (False, True):
        diagnostics = Diagnostics(tmp_path / str(debug), debug)
        try:
            logging.getLogger("desktop.test").debug("deep")
        finally:
            diagnostics.close()
        log = tmp_path / str(debug) / "inglenook.log"
        assert (log.exists() and "deep" in log.read_text(encoding="utf-8")) == debug


def test_a_folder_that_cannot_be_made_raises(tmp_path, qapp) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        Diagnostics(tmp_path / "file" / "logs")
