"""The pictures inside texts, formulas and files: made on a separate thread and cached."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import NamedTuple

from PySide6.QtCore import QCoreApplication, QObject, QTimer, Signal

from desktop.services.formulas import formula_images
from desktop.store.attachments.picture_marks import ADDRESS
from desktop.views.transcript.rendering.local_image import decoded, read_picture
from desktop.views.transcript.rendering.math_image import Picture, render_math

__all__ = ["ImageKey", "ImageLoader"]

log = logging.getLogger(__name__)

_POLL_MS = 12
_KEPT_BYTES = 64 * 1024 * 1024
_KEPT = 4000
_WAITING = 500
_REST_S = 60.0
"""Seconds without a formula after which the process that draws formulas ends."""
_LONGEST_S = 10.0
"""Seconds after which a formula is given up."""


class ImageKey(NamedTuple):
    """The picture to make: LaTeX in letters of `size` pixels, or (size 0) the file that `source` names, or
    the picture of a message ("picture:" and its key), at most `width` pixels wide.
    """

    source: str
    size: float = 0.0
    colour: str = ""
    display: bool = False
    width: int = 0
    ratio: float = 1.0


class _Workshop:
    """Makes what waits, newest first, on one daemon thread that starts with the first picture and stays:
    starting a thread blocks until it runs, and it does not release Python's lock at once.
    """

    def __init__(self) -> None:
        self.done: deque[tuple[ImageKey, Picture | None]] = deque()
        self._waiting: deque[tuple[ImageKey, bytes]] = deque(maxlen=_WAITING)
        self._changed = threading.Condition()
        self._begun = self._closed = False
        self._since = float("inf")

    def add(self, key: ImageKey, data: bytes = b"") -> ImageKey | None:
        """Make `key`, of the bytes of a file if there are any; returns the key that is dropped because too
        many wait.
        """
        with self._changed:
            dropped = self._waiting[0][0] if len(self._waiting) == _WAITING else None
            self._waiting.append((key, data))
            begin = not self._begun and not self._closed
            self._begun = self._begun or begin
            self._changed.notify()
        if begin:
            threading.Thread(target=self._work, name="pictures", daemon=True).start()
        return dropped

    def close(self) -> None:
        """Stop making pictures."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                idle = not self._changed.wait_for(lambda: self._waiting or self._closed, _REST_S)
            if idle:
                # without the lock, which the GUI thread takes: this may wait for another view's formula
                formula_images.rest()
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                key, data = self._waiting.pop()
            made: Picture | None = None
            try:
                if key.size:
                    self._since = time.monotonic()
                    made = render_math(key.source, key.size, key.colour, key.display, key.ratio)
                elif key.source.startswith(ADDRESS):
                    made = decoded(data, key.width, key.ratio)
                else:
                    made = read_picture(key.source, key.width, key.ratio)
            except Exception:
                log.exception("a picture could not be made")  # the others still can
            self._since = float("inf")
            self.done.append((key, made))

    def end_slow(self) -> None:
        """Give up a formula that takes too long."""
        if time.monotonic() - self._since > _LONGEST_S:
            self._since = float("inf")
            formula_images.give_up()


class ImageLoader(QObject):
    """`get` returns a picture, None where it cannot be made; `known` says whether that is final; `want` has
    it made. `read` returns the bytes of a picture of a message by its key, none for one that is gone.

    `arrived(set keys)`: these are known now.
    """

    arrived = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.read: Callable[[str], bytes] = lambda key: b""
        self._known: OrderedDict[ImageKey, Picture | None] = OrderedDict()
        self._bytes = 0
        self._pending: set[ImageKey] = set()
        self._workshop = workshop = _Workshop()
        self.destroyed.connect(lambda: workshop.close())
        application = QCoreApplication.instance()
        if application is not None:
            application.aboutToQuit.connect(workshop.close)
        self._timer = QTimer(self)
        self._timer.setInterval(_POLL_MS)
        self._timer.timeout.connect(self._collect)

    def known(self, key: ImageKey) -> bool:
        """Whether the result of `get` is final."""
        return key in self._known

    def get(self, key: ImageKey) -> Picture | None:
        """The picture, or None where there is none (yet)."""
        if key in self._known:
            self._known.move_to_end(key)
        return self._known.get(key)

    def want(self, key: ImageKey) -> None:
        """Make a picture unless it is known or being made."""
        if key not in self._known and key not in self._pending:
            self._pending.add(key)
            own = key.source.startswith(ADDRESS)
            data = self.read(key.source.removeprefix(ADDRESS)) if own else b""
            dropped = self._workshop.add(key, data)
            if dropped is not None:
                self._pending.discard(dropped)
            self._timer.start()

    def idle(self) -> bool:
        """Whether no picture is being made."""
        return not self._pending

    def _collect(self) -> None:
        self._workshop.end_slow()
        arrived: set[ImageKey] = set()
        while self._workshop.done:
            key, picture = self._workshop.done.popleft()
            self._pending.discard(key)
            arrived.add(key)
            self._bytes += _size(picture) - _size(self._known.get(key))
            self._known[key] = picture
        while (self._bytes > _KEPT_BYTES or len(self._known) > _KEPT) and len(self._known) > len(arrived) + 1:
            self._bytes -= _size(self._known.popitem(last=False)[1])
        if not self._pending:
            self._timer.stop()
        if arrived:
            self.arrived.emit(arrived)


def _size(picture: Picture | None) -> int:
    return picture.image.sizeInBytes() if picture is not None else 0
