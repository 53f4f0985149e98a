"""What every test of the desktop shares."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from desktop.services.composer import enchant
from desktop.services.models import file_hashes
from desktop.services.system import speech


@pytest.fixture(autouse=True)
def _asyncio_loop() -> Iterator[None]:
    """Close the loop that a flow made; none is made where nothing waits."""
    yield
    loops = sys.modules.get("desktop.event_loop")
    if loops is not None:
        loops.close_loop()


@pytest.fixture(autouse=True)
def _no_dictionaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """No dictionary of this system: what is underlined is the same everywhere."""
    monkeypatch.setattr(enchant, "FILES", ())


@pytest.fixture(autouse=True)
def _no_pointer() -> None:
    """The pointer is over no window. Qt gives no event where it is moved to where it is: a test that moves it
    to the place at which another has left it would wait in vain.
    """
    gui = sys.modules.get("PySide6.QtGui")
    if gui is not None and gui.QGuiApplication.instance() is not None:
        gui.QCursor.setPos(-1, -1)


@pytest.fixture(autouse=True, scope="session")
def _no_background() -> Iterator[None]:
    """No voice of this system: nothing is read aloud, and it is offered in the same places everywhere. No
    model's file is hashed some seconds after loading, in the middle of whatever test then runs.

    For the whole session, since some windows are opened once for the tests of a file.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speech, "find_speech_program", lambda: None)
        patch.setattr(file_hashes, "_AFTER_LOADING_MS", 3_600_000)
        yield
