"""One program per data folder: a second start passes its request to the first one and ends.

The lock of the folder (`take_lock`) decides which is first; the socket only carries messages. It is in the
data folder, where nobody else can create one; if that path is too long for a socket, in the user's runtime
folder.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from PySide6.QtCore import QLockFile, QObject, Signal, Slot

from desktop.store.database.database import StoreError
from engine.json_value import json_value
from engine.words import _

if TYPE_CHECKING:
    from PySide6.QtNetwork import QLocalServer, QLocalSocket

__all__ = ["AlreadyOpen", "FirstInstance", "Request", "hand_over", "socket_name", "take_lock"]

log = logging.getLogger(__name__)

ANSWER_S = 5.0
"""How long a second start waits for an answer: a start takes less than a second, a hung program never
answers.
"""
ENDING_S = 25.0
"""How long it waits where nobody listens any more: a program without a window may still end its engine, which
takes as long as the machine code that is being compiled, 20 s at most.
"""
_SLICE_MS = 20
"""Qt's wait functions hold the interpreter lock, so waiting is done in slices."""
_LONGEST_PATH = 90
"""Bytes of a socket's path: systems allow 104 to 108, and Qt appends up to 9 while it creates the socket."""
_LONGEST_REQUEST = 1 << 20
_HEARD = b"heard\n"
_TOKENS = ("XDG_ACTIVATION_TOKEN", "DESKTOP_STARTUP_ID")


class AlreadyOpen(StoreError):
    """Another program uses the data folder; `process` is its id, or 0 if that is not known."""

    def __init__(self, folder: Path, process: int) -> None:
        super().__init__(
            _(
                "Inglenook is already open with the data in {folder}. Use that window, or start "
                "with another --data folder.",
                folder=folder,
            )
        )
        self.folder, self.process = folder, process


class Request(NamedTuple):
    """What a start was asked to do: open files and folders (absolute paths), download the starter model.

    `token` is the desktop's activation token (XDG activation), or empty.
    """

    paths: tuple[Path, ...] = ()
    starter: bool = False
    token: str = ""

    def line(self) -> bytes:
        """The request as one line of JSON."""
        fields = {"paths": [str(path) for path in self.paths], "starter": self.starter, "token": self.token}
        return json.dumps(fields).encode() + b"\n"

    @classmethod
    def read(cls, line: bytes) -> Request | None:
        """The request in such a line; None if it is not valid."""
        fields = json_value(line)
        if not isinstance(fields, dict) or not isinstance(fields.get("paths"), list):
            return None
        paths = tuple(Path(path) for path in fields["paths"] if isinstance(path, str) and os.path.isabs(path))
        token = fields.get("token", "")
        return cls(paths, fields.get("starter") is True, token if isinstance(token, str) else "")


def take_lock(folder: Path) -> QLockFile:
    """The lock of the data folder, so that no second program writes to it.

    Raises `AlreadyOpen` if another program has it, `StoreError` if the folder is not writable.
    """
    lock = QLockFile(str(folder / "inglenook.lock"))
    lock.setStaleLockTime(0)  # never by age; the lock of a dead process is taken over anyway
    if not lock.tryLock(0):
        if lock.error() != QLockFile.LockError.LockFailedError:
            raise StoreError(
                _(
                    "The data folder {folder} is not writable. Change its permissions, or start "
                    "with another --data folder.",
                    folder=folder,
                )
            )
        found: object = lock.getLockInfo()  # (process, host, program), whatever the stubs say
        process = found[0] if isinstance(found, tuple) else 0
        raise AlreadyOpen(folder, process if isinstance(process, int) else 0)
    return lock


def socket_name(folder: Path, platform: str = sys.platform) -> str:
    """The address at which the program with this data folder listens: a path or, on Windows, a pipe name."""
    import hashlib  # not needed before the first paint

    real = folder.resolve()
    mark = hashlib.sha256(os.fsencode(real)).hexdigest()[:20]
    if platform == "win32":
        return f"inglenook-{mark}"
    place = real / "inglenook.socket"
    if len(os.fsencode(place)) <= _LONGEST_PATH:
        return str(place)
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return str(Path(runtime if os.path.isdir(runtime) else tempfile.gettempdir()) / f"inglenook-{mark}")


def activation_token(environment: Mapping[str, str] = os.environ) -> str:
    """The activation token that the desktop passed to this start; empty if there is none."""
    return next((environment[name] for name in _TOKENS if environment.get(name)), "")


class FirstInstance(QObject):
    """Listens for later starts with the same data folder; only the holder of the lock may create one.

    Signals:
        asked(object): the `Request` of a later start.
    """

    asked = Signal(object)

    def __init__(self, folder: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._server = self._listen(socket_name(folder))

    def close(self) -> None:
        """Stop listening and remove the socket."""
        if self._server is not None:
            self._server.close()
        for caller in self.findChildren(_Caller):
            caller.hang_up()

    def _listen(self, name: str) -> QLocalServer | None:
        try:
            from PySide6.QtNetwork import QLocalServer
        # a system library that Qt needs is missing; the lock alone still protects the data
        except ImportError as error:
            log.warning("cannot listen for later starts: %s", error)
            return None
        server = QLocalServer(self)
        server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        server.newConnection.connect(self._connected)
        if not server.listen(name):
            QLocalServer.removeServer(name)  # left by a dead program: this one has the lock
            if not server.listen(name):
                log.warning("cannot listen for later starts at %s: %s", name, server.errorString())
        return server

    @Slot()
    def _connected(self) -> None:
        while self._server is not None and self._server.hasPendingConnections():
            caller = _Caller(self._server.nextPendingConnection(), self)
            caller.asked.connect(self.asked)
            caller.read()


class _Caller(QObject):
    """A later start at the other end of `socket`. The socket lives as long as this object.

    The slots hold no references. A lambda would hold the server's owner: freed with the socket's connections
    as its last holder, it would delete the owner, and with it the socket that is being deleted.
    """

    asked = Signal(object)

    def __init__(self, socket: QLocalSocket, parent: QObject) -> None:
        super().__init__(parent)
        socket.setParent(self)
        self._socket, self._received = socket, b""
        socket.readyRead.connect(self.read)
        socket.disconnected.connect(self.deleteLater)

    @Slot()
    def read(self) -> None:
        """Read what has arrived; a complete line is acknowledged and emitted."""
        self._received += bytes(self._socket.readAll().data())
        line, end, _unused = self._received.partition(b"\n")
        if not end and len(line) < _LONGEST_REQUEST:
            return
        self._received = b""
        request = Request.read(line) if end else None
        if request is None:
            log.warning("a later start sent an invalid request")
            self.hang_up()
            return
        self._socket.write(_HEARD)
        self._socket.flush()
        self.asked.emit(request)

    def hang_up(self) -> None:
        """Close the connection."""
        self._socket.abort()
        self.deleteLater()  # the socket emits nothing if the other end is already gone


def hand_over(
    found: AlreadyOpen,
    request: Request,
    wait_s: float = ANSWER_S,
    free: Callable[[], bool] = lambda: False,
    ending_s: float = ENDING_S,
) -> bool:
    """Pass the request to the program that has the folder; True if it was received, False if `free()`.

    A program that is still starting or already ending, and does not listen, is waited for for `ending_s`; one
    that listens must answer within `wait_s`. `free()` is whether it has ended. Raises `StoreError` with
    advice if nobody answers.
    """
    try:
        from PySide6.QtNetwork import QLocalSocket
    except ImportError:
        raise found from None
    end = time.monotonic() + ending_s
    found_listener = False
    _let_come_forward(found.process)
    while True:
        socket = QLocalSocket()
        socket.connectToServer(socket_name(found.folder))
        listens = socket.waitForConnected(_SLICE_MS)
        if listens and not found_listener:
            found_listener, end = True, time.monotonic() + wait_s
        heard = listens and _delivered(socket, request.line(), end)
        socket.abort()
        if heard:
            return True
        if free():
            return False
        if time.monotonic() >= end:
            raise StoreError(_no_answer(found))
        time.sleep(0.05)


def _delivered(socket: QLocalSocket, line: bytes, end: float) -> bool:
    from PySide6.QtNetwork import QLocalSocket

    socket.write(line)
    answer = b""
    while not answer.endswith(b"\n") and time.monotonic() < end:
        if socket.bytesToWrite():
            socket.waitForBytesWritten(_SLICE_MS)
        elif (
            not socket.waitForReadyRead(_SLICE_MS)
            and socket.state() != QLocalSocket.LocalSocketState.ConnectedState
        ):
            break
        answer += bytes(socket.readAll().data())
    return answer == _HEARD


def _no_answer(found: AlreadyOpen) -> str:
    if found.process:
        return _(
            "Inglenook is already open with the data in {folder}, but its window does not respond "
            "(process {process}). Wait, end that program, or start with another --data folder.",
            folder=found.folder,
            process=found.process,
        )
    return _(
        "Inglenook is already open with the data in {folder}, but its window does not respond. "
        "Wait, end that program, or start with another --data folder.",
        folder=found.folder,
    )


def _let_come_forward(process: int) -> None:
    """On Windows only the foreground program may pass that on; this one is, as it was just started."""
    if sys.platform == "win32" and process:
        import ctypes

        with contextlib.suppress(AttributeError, OSError):
            ctypes.windll.user32.AllowSetForegroundWindow(process)


def absolute(paths: Sequence[Path]) -> tuple[Path, ...]:
    """The paths as a program with another working folder needs them."""
    return tuple(Path(os.path.abspath(path.expanduser())) for path in paths)
