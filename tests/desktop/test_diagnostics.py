"""The last-resort hooks are installed and removed; logs and crash reports."""

import faulthandler
import logging
import sys
import threading

import pytest

from desktop.diagnostics import Diagnostics


def test_hooks_are_restored(tmp_path, qapp) -> None:
    before = (
        sys.excepthook,
        threading.excepthook,
        sys.unraisablehook,
        tuple(logging.getLogger().handlers),
        logging.getLogger().level,
    )
    enabled = faulthandler.is_enabled()
    diagnostics = Diagnostics(tmp_path / "logs")
    assert sys.excepthook != before[0]
    diagnostics.close()
    after = (
        sys.excepthook,
        threading.excepthook,
        sys.unraisablehook,
        tuple(logging.getLogger().handlers),
        logging.getLogger().level,
    )
    assert after == before
    assert faulthandler.is_enabled() == enabled


def test_ctrl_c_is_not_reported(tmp_path, qapp, capsys) -> None:
    diagnostics = Diagnostics(tmp_path)
    reported: list[tuple[str, str]] = []
    diagnostics.trouble.connect(lambda *what: reported.append(what))
    try:
        sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
        sys.excepthook(ValueError, ValueError("x"), None)
    finally:
        diagnostics.close()
    assert len(reported) == 1
    assert "ValueError" in reported[0][0]
    assert reported[0][1] == "ValueError: x\n"


def test_the_log_does_not_grow_without_limit(tmp_path, qapp, monkeypatch) -> None:
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


def test_a_folder_that_cannot_be_created_raises(tmp_path, qapp) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        Diagnostics(tmp_path / "file" / "logs")


def begin_and_end(folder, ends: bool = True) -> str | None:
    """One run; returns what it found about the previous run."""
    diagnostics = Diagnostics(folder)
    mark = (folder / "running").read_text(encoding="utf-8")
    diagnostics.close()
    if not ends:
        (folder / "running").write_text(mark, encoding="utf-8")  # as kill -9 leaves it
    return diagnostics.last_run


def test_a_clean_exit_leaves_nothing_to_report(tmp_path, qapp) -> None:
    assert [begin_and_end(tmp_path), begin_and_end(tmp_path)] == [None, None]


def test_a_kill_is_reported_once(tmp_path, qapp) -> None:
    begin_and_end(tmp_path, ends=False)
    assert [begin_and_end(tmp_path), begin_and_end(tmp_path)] == ["", None]


def test_a_shutdown_is_not_a_crash(tmp_path, qapp) -> None:
    begin_and_end(tmp_path, ends=False)
    (tmp_path / "running").write_text("another start of the computer", encoding="utf-8")
    assert begin_and_end(tmp_path) is None


def test_a_crash_is_reported_once_and_its_trace_is_kept(tmp_path, qapp) -> None:
    begin_and_end(tmp_path, ends=False)
    (tmp_path / "crash.log").write_text("Fatal Python error: Segmentation fault\n", encoding="utf-8")
    assert [begin_and_end(tmp_path), begin_and_end(tmp_path)] == [
        "Fatal Python error: Segmentation fault",
        None,
    ]
    assert "Segmentation fault" in (tmp_path / "crash-before.log").read_text(encoding="utf-8")
