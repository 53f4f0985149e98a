"""Walks a message through the whole program and prints the stations on its way.

    python -m tests.tools.walk_message

Three ways, each with the number that the house promises:

- Enter in the composer to the engine's `stream` (7 stations): a window off screen over a model that echoes.
- A piece of text from the engine to the paint event of the row that shows it (6 stations).
- `LocalChat.stream` to the replay of the captured step, for one token (5 frames in 4 files): a tiny model on
  the CPU.

A station is a module of ours with the function that is called in it. Calls within one module are one station,
and so are calls of one object, whose methods may lie in the modules of several classes.
The way is read off the call stacks that `sys.setprofile` sees. Where a stack begins in an event loop or in a
thread, it is joined to the stack that started a timer, emitted a signal, asked for a repaint or queued a job
from the same object.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

__all__ = ["PROMISED", "Walk", "walk_engine", "walk_window"]

PROMISED = {"Enter to the engine": 7, "engine to paint": 6, "stream() to replay, frames": 5, "files": 4}
_OURS = ("desktop.", "engine.")
_HANDS_ON = frozenset({"emit", "start", "singleShot", "put", "append", "update", "set"})
"""Calls of C after which something goes on elsewhere: signals, timers, queues, repaints, events."""
_KEPT = 4000
_TEXT_ROW = "desktop.views.transcript.row_widgets.base"
"""Where a row of text paints itself; the view and the buttons around it paint too, by shorter ways."""


class Station(NamedTuple):
    """A function of ours on the way, and the object whose method it is, 0 for none."""

    module: str
    function: str
    object: int = 0


@dataclass(frozen=True)
class Stack:
    """The calls of ours at one moment, outermost first.

    `first` and `last` identify the objects whose methods are the outer and the inner call, `target` the one
    that is called from there.
    """

    stations: tuple[Station, ...]
    first: int
    last: int
    target: int
    thread: int


class Walk(NamedTuple):
    """A way through the program, calls in one module or of one object in a row counted once."""

    stations: tuple[Station, ...]

    @classmethod
    def of(cls, calls: Iterator[Station]) -> Walk:
        """The way along these calls."""
        stations: list[Station] = []
        last: Station | None = None
        for call in calls:
            if last is None or not (call.module == last.module or 0 != call.object == last.object):
                stations.append(call)
            last = call
        return cls(tuple(stations))

    def __str__(self) -> str:
        return "\n".join(f"  {i}. {module}: {name}" for i, (module, name, _) in enumerate(self.stations, 1))


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _self(frame: FrameType) -> int:
    """The object whose method runs; for functions within a method, the method's."""
    found = frame.f_locals.get("self")
    return id(found) if found is not None else 0


def _stack(frame: FrameType | None, ours: tuple[str, ...] = _OURS, target: object = None) -> Stack | None:
    frames = deque[FrameType]()
    while frame is not None:
        if _module(frame).startswith(ours):
            frames.appendleft(frame)
        frame = frame.f_back
    if not frames:
        return None
    stations = tuple(Station(_module(each), each.f_code.co_name, _self(each)) for each in frames)
    called = id(target) if target is not None else 0
    return Stack(stations, _self(frames[0]), _self(frames[-1]), called, threading.get_ident())


class _Profile:
    """Keeps the stacks at which something goes on elsewhere, and those of the calls that `ends` names."""

    def __init__(self, ends: dict[str, tuple[str, str]]) -> None:
        self._ends = ends
        self._handed = deque[tuple[int, Stack]](maxlen=_KEPT)
        self._count = 0
        self.walks: dict[str, list[Walk]] = {name: [] for name in ends}
        self._starts: dict[str, Station] = {}
        self.active = False

    def begins(self, name: str, module: str, function: str = "") -> None:
        """The way `name` begins in this module, or in this function of it."""
        self._starts[name] = Station(module, function)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self.active:
            return
        if event == "c_call":
            if getattr(argument, "__name__", "") in _HANDS_ON and _module(frame).startswith(_OURS):
                self._count += 1
                stack = _stack(frame, target=getattr(argument, "__self__", None))
                if stack is not None:
                    self._handed.append((self._count, stack))
        elif event == "call":
            for name, (module, function) in self._ends.items():
                if frame.f_code.co_name == function and _module(frame).startswith(module):
                    stack = _stack(frame, (*_OURS, "tests.desktop.fakes"))
                    walk = self._way(name, stack) if stack is not None else None
                    if walk is not None:
                        self.walks[name].append(walk)

    def _way(self, name: str, stack: Stack) -> Walk | None:
        """Back from a stack to where its way begins; None where it does not lead there."""
        calls, start = list(stack.stations), self._starts[name]
        handed = list(self._handed)
        while True:  # a timer that waits for more may run any number of times
            begun = next((i for i, call in enumerate(calls) if _begins(call, start)), None)
            if begun is not None:
                return Walk.of(iter(calls[begun:]))
            at = next((i for i in reversed(range(len(handed))) if _leads(handed[i][1], stack)), None)
            if at is None:
                return None
            stack = handed[at][1]
            del handed[at:]
            calls = [*stack.stations, *calls]


def _begins(call: Station, start: Station) -> bool:
    return call.module.startswith(start.module) and start.function in ("", call.function)


def _leads(earlier: Stack, later: Stack) -> bool:
    """Whether what an earlier stack handed on began the later one. A thread is begun by another one."""
    if later.thread != threading.main_thread().ident and later.thread == earlier.thread:
        return False
    return later.first != 0 and later.first in (earlier.last, earlier.target)


@contextmanager
def _profiled(profile: _Profile) -> Iterator[None]:
    """Every thread that begins within, and this one."""
    before = sys.getprofile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]


class _Waiting:
    """As much of pytest-qt's `qtbot` as a `Hand` needs, for a run without pytest."""

    def waitUntil(self, done: Any, timeout: int = 5000) -> None:
        from PySide6.QtTest import QTest

        until = time.monotonic() + timeout / 1000
        while not done():
            assert time.monotonic() < until, "what was waited for did not come"
            QTest.qWait(5)

    @contextmanager
    def waitActive(self, widget: Any) -> Iterator[None]:
        yield
        self.waitUntil(widget.isVisible)


def walk_window(folder: Path, qtbot: Any = None) -> dict[str, Walk]:
    """The ways from Enter to the engine and from the engine to paint, of a growing reply in a real window."""
    from PySide6.QtCore import Qt

    from tests.desktop.fakes import EchoApi, EchoChat
    from tests.desktop.hand import Hand

    into, back = "Enter to the engine", "engine to paint"
    profile = _Profile({into: ("tests.desktop.fakes", "stream"), back: (_TEXT_ROW, "paintEvent")})
    profile.begins(into, "desktop.views.composer")
    profile.begins(back, "desktop.services.engine.stream_thread", "_cross")
    echo = EchoApi(EchoChat(delay_s=0.05))
    with _profiled(profile):
        hand = Hand(qtbot or _Waiting(), folder, echo)
        try:
            hand.load()
            hand.type("one two three four five six seven eight nine ten " * 2)
            profile.active = True
            hand.press(Qt.Key.Key_Return)
            hand.wait_for("idle", timeout=20_000)
            profile.active = False
        finally:
            hand.close()
    found = {name: _shortest(walks) for name, walks in profile.walks.items() if walks}
    assert found.keys() == {into, back}, f"no way was found: {profile.walks}"
    return found


def _shortest(walks: list[Walk]) -> Walk:
    """The way without detours: beside an event, a row is also fitted again for other reasons."""
    return min(walks, key=lambda walk: len(walk.stations))


def walk_engine(model: Path) -> tuple[Station, ...]:
    """The frames from `LocalChat.stream` to the replay of a captured step on the CPU, for one token."""
    from engine.chat import finished, open_chat
    from engine.core import ChatRequest, Message
    from engine.settings import CacheSettings, LoadSettings, SamplerSettings, StopSettings

    stacks: list[tuple[Station, ...]] = []

    def look(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_name == "replay":
            stack = _stack(frame, ("engine.",))
            if stack is not None:
                stacks.append(stack.stations)

    settings = LoadSettings(backend="cpu", threads=1)
    request = ChatRequest(
        (Message("user", "hello"),), SamplerSettings(temperature=0.0), StopSettings(max_tokens=12)
    )
    with closing(finished(open_chat(model, settings, CacheSettings(context_length=512)))) as chat:
        events = chat.stream(request, threading.Event())
        before = sys.getprofile()
        sys.setprofile(look)
        try:
            for _ in events:
                pass
        finally:
            sys.setprofile(before)
    return stacks[-1]


def main() -> int:
    """Print all three ways."""
    from PySide6.QtWidgets import QApplication

    from tests.tiny import write_gguf

    app = QApplication.instance() or QApplication(["walk", "-platform", "offscreen"])
    with tempfile.TemporaryDirectory() as folder:
        for name, walk in walk_window(Path(folder)).items():
            print(f"{name}: {len(walk.stations)} stations, promised {PROMISED[name]}\n{walk}\n")
        frames = walk_engine(write_gguf(Path(folder) / "tiny.gguf"))
    files = len({frame.module for frame in frames})
    print(f"stream() to replay: {len(frames)} frames in {files} files, promised 5 in 4")
    print("\n".join(f"  {i}. {module}: {name}" for i, (module, name, _) in enumerate(frames, 1)))
    app.quit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
