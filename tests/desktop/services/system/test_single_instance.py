"""One program per data folder: what a later start sends, to whom, and what happens if nobody answers."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
import time
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication
from PySide6.QtNetwork import QLocalServer

from desktop.services.engine.stream_thread import CLOSE_TIMEOUT_S
from desktop.services.system.single_instance import (
    ENDING_S,
    AlreadyOpen,
    FirstInstance,
    Request,
    absolute,
    activation_token,
    hand_over,
    socket_name,
    take_lock,
)
from desktop.store.database.database import StoreError
from tests.conftest import WAIT_MS

FOUND = 4711


def later(
    folder: Path, request: Request, wait_s: float = WAIT_MS / 1000
) -> tuple[threading.Thread, list[object]]:
    """A later start, on a thread: what `hand_over` returned or raised is added to the list."""
    outcome: list[object] = []

    def work() -> None:
        try:
            outcome.append(hand_over(AlreadyOpen(folder, FOUND), request, wait_s))
        except StoreError as error:
            outcome.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    return thread, outcome


@pytest.fixture(autouse=True)
def _short_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later starts are threads here: while they hold the interpreter lock, the first start cannot run."""
    monkeypatch.setattr("desktop.services.system.single_instance._SLICE_MS", 1)


@pytest.fixture
def first(tmp_path, qapp):
    found = FirstInstance(tmp_path)
    yield found
    found.close()


def test_a_later_start_hands_over_what_it_was_given(first, tmp_path, qtbot) -> None:
    heard: list[Request] = []
    first.asked.connect(heard.append)
    request = Request(
        (tmp_path / "a model.gguf", tmp_path / "ünïcode\nname.json"), starter=True, token="leave-1"
    )
    thread, outcome = later(tmp_path, request)
    qtbot.waitUntil(lambda: bool(outcome))
    thread.join()
    assert outcome == [True]
    assert heard == [request]


def test_several_later_starts_are_all_answered(first, tmp_path, qtbot) -> None:
    heard: list[Request] = []
    first.asked.connect(heard.append)
    starts = [later(tmp_path, Request((tmp_path / str(number),))) for number in range(5)]
    qtbot.waitUntil(lambda: all(outcome for _, outcome in starts))
    for thread, outcome in starts:
        thread.join()
        assert outcome == [True]
    assert sorted(request.paths[0].name for request in heard) == ["0", "1", "2", "3", "4"]


@pytest.mark.skipif(os.name == "nt", reason="a pipe is no file")
def test_a_later_start_that_does_not_wait_for_the_answer_is_handled(first, tmp_path, qtbot) -> None:
    heard: list[Request] = []
    first.asked.connect(heard.append)
    for number in range(40):
        with socket.socket(socket.AF_UNIX) as hasty:
            hasty.connect(socket_name(tmp_path))
            hasty.sendall(Request((tmp_path / str(number),)).line())
            if number % 2:
                QCoreApplication.processEvents()
    qtbot.waitUntil(lambda: len(heard) == 40 and len(first.children()) == 1)  # the server is left
    assert {request.paths[0].name for request in heard} == set(map(str, range(40)))


def listening(first: FirstInstance) -> bool:
    """Whether later starts can reach this one."""
    return any(server.isListening() for server in first.findChildren(QLocalServer))


@pytest.mark.skipif(os.name == "nt", reason="a pipe is no file")
def test_only_this_user_can_reach_the_socket(first, tmp_path) -> None:
    assert listening(first)
    assert stat.S_IMODE(os.stat(socket_name(tmp_path)).st_mode) & 0o077 == 0
    first.close()
    assert not os.path.exists(socket_name(tmp_path))


@pytest.mark.skipif(os.name == "nt", reason="a pipe is no file")
def test_the_socket_of_a_dead_program_is_taken_over(tmp_path, qapp) -> None:
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(socket_name(tmp_path))
    first = FirstInstance(tmp_path)
    try:
        assert listening(first)
    finally:
        first.close()


@pytest.mark.skipif(os.name == "nt", reason="a pipe is no file")
def test_a_hanging_program_is_reported_with_its_process_id(tmp_path, qapp) -> None:
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(socket_name(tmp_path))
        hung.listen()
        with pytest.raises(StoreError, match=r"does not respond \(process 4711\)"):
            hand_over(AlreadyOpen(tmp_path, FOUND), Request(), wait_s=0.3)


def test_no_answer_is_reported_and_a_folder_that_becomes_free_is_taken(tmp_path, qapp) -> None:
    with pytest.raises(StoreError, match="end that program"):
        hand_over(AlreadyOpen(tmp_path, 0), Request(), ending_s=0.1)
    assert hand_over(AlreadyOpen(tmp_path, 0), Request(), wait_s=5, free=lambda: True) is False


def test_a_program_that_ends_is_waited_for_longer_than_one_that_does_not_answer(tmp_path, qapp) -> None:
    """It does not listen any more, but may still compile: its folder is free after `wait_s`."""
    until = time.monotonic() + 0.6
    assert not hand_over(
        AlreadyOpen(tmp_path, FOUND), Request(), wait_s=0.1, free=lambda: time.monotonic() > until
    )
    assert ENDING_S > CLOSE_TIMEOUT_S


def test_a_first_start_that_is_not_ready_yet_is_waited_for(tmp_path, qtbot, monkeypatch) -> None:
    tried = threading.Event()

    def name(folder: Path) -> str:
        tried.set()
        return socket_name(folder)

    monkeypatch.setattr("desktop.services.system.single_instance.socket_name", name)
    thread, outcome = later(tmp_path, Request((tmp_path,)))
    assert tried.wait(10)
    first = FirstInstance(tmp_path)
    try:
        qtbot.waitUntil(lambda: bool(outcome))
        thread.join()
        assert outcome == [True]
    finally:
        first.close()


def test_the_lock_names_its_holder(tmp_path, qapp) -> None:
    lock = take_lock(tmp_path)
    with pytest.raises(AlreadyOpen, match="already open") as caught:
        take_lock(tmp_path)
    assert caught.value.process == os.getpid()
    lock.unlock()
    take_lock(tmp_path).unlock()


def test_invalid_requests_are_refused(first, tmp_path, qtbot) -> None:
    heard: list[Request] = []
    first.asked.connect(heard.append)
    for line in (b"GET / HTTP/1.1\n", b"[]\n", b'{"paths": "x"}\n', b"\xff\xfe\n", b"[" * 9999 + b"\n"):
        assert Request.read(line) is None
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(socket_name(tmp_path))
            stranger.sendall(line)
            stranger.settimeout(0.01)
            answer: list[bytes] = []

            def gone(stranger=stranger, answer=answer) -> bool:
                try:
                    answer.append(stranger.recv(100))
                except TimeoutError:
                    return False
                except ConnectionError:
                    answer.append(b"")
                return True

            qtbot.waitUntil(gone)
            assert answer == [b""]
    assert heard == []
    relative = json.dumps({"paths": ["here", 7, "/there"], "starter": 1, "token": None}).encode()
    assert Request.read(relative) == Request((Path("/there"),))


def test_a_long_path_gets_a_short_name(tmp_path, monkeypatch) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert Path(socket_name(deep, "linux")).parent == tmp_path
    assert socket_name(deep, "linux") != socket_name(deep.parent, "linux")
    assert "/" not in socket_name(deep, "win32")


def test_paths_and_activation_token_of_a_start(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute([Path("a.gguf"), Path("/b/../c")]) == (tmp_path / "a.gguf", Path("/c"))
    assert activation_token({"DESKTOP_STARTUP_ID": "x11", "XDG_ACTIVATION_TOKEN": "wayland"}) == "wayland"
    assert activation_token({}) == ""
