"""The composition root: makes every object of the desktop, connects them, and runs Qt until the window is closed.

Order of a start: folder and lock, log and crash file, store, session (its engine thread waits), window, first paint, and
only then the model: torch and the kernels are imported on the engine's thread, never before the window can be used.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import qasync
from PySide6.QtCore import QEvent, QLockFile, QObject, QSettings, Qt, QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QMessageBox

from desktop.diagnostics import Diagnostics
from desktop.services.catalogue import CatalogueService, FindModels, find_models
from desktop.services.checks import CheckService
from desktop.services.devices import DeviceService, FindDevices, find_devices
from desktop.services.download import DownloadService, Fetch, fetch_starter
from desktop.services.drafts import DraftProblem, draft_problem
from desktop.services.hub import HUB, HubDoors, HubService
from desktop.services.library import LibraryService, Measure, measure_bandwidth
from desktop.services.model_slot import Describe, OpenChat, describe, open_chat
from desktop.services.session import ChatSession
from desktop.services.shelf import Shelf
from desktop.services.together import Services
from desktop.settings import Appearance
from desktop.store.database import FILE_NAME as DATABASE
from desktop.store.database import Database, StoreError, data_folder
from desktop.store.preferences import FILE_NAME as PREFERENCES
from desktop.store.preferences import Preferences
from desktop.store.temporary import Library
from desktop.views.icons import application_icon
from desktop.views.main_window import MainWindow
from desktop.views.theme import Theme

__all__ = ["Desktop", "Doors", "make_application", "run"]

log = logging.getLogger(__name__)

EXIT_TROUBLE = 1
SWITCH_S = 0.001
"""So long at most the window waits for another thread's Python code; Python's own 5 ms are a third of a frame, each time."""


@dataclass(frozen=True)
class Doors:
    """The engine as the desktop uses it; tests put fakes in their place."""

    open_chat: OpenChat = open_chat
    describe: Describe = describe
    fetch: Fetch = fetch_starter
    draft_problem: DraftProblem = draft_problem
    find_models: FindModels = find_models
    measure: Measure = measure_bandwidth
    hub: HubDoors = HUB
    find_devices: FindDevices = find_devices


class _FirstPaint(QObject):
    """Calls `then` once, in the event loop's next round after `window` was painted for the first time."""

    def __init__(self, window: QObject, then: Callable[[], None]) -> None:
        super().__init__(window)
        self._then = then
        window.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Paint:
            watched.removeEventFilter(self)
            QTimer.singleShot(0, self, self._then)
        return False


class Desktop(QObject):
    """Everything behind one window, over the data in `folder`. Raises `StoreError` when that cannot be used."""

    def __init__(self, app: QApplication, folder: Path, doors: Doors = Doors()) -> None:
        super().__init__()
        self._lock = _take_lock(folder)
        try:
            self._database = Database(folder / DATABASE)
            preferences = Preferences(folder / PREFERENCES)
            self._library = Library(self._database)
        except StoreError:
            self._lock.unlock()
            raise
        self.services = self._make_services(folder, preferences, doors)
        self.session = self.services.session
        self.theme = Theme(app)
        self.theme.scale_text(self.session.settings(Appearance).text_scale)
        places = QSettings(str(folder / "window.ini"), QSettings.Format.IniFormat)
        self.window = MainWindow(self.services, self.theme, places, self.close)
        self._closed = False

    def _make_services(self, folder: Path, preferences: Preferences, doors: Doors) -> Services:
        models = folder / "models"
        session = ChatSession(self._library, preferences, doors.open_chat, doors.describe, doors.draft_problem, self)
        catalogue = CatalogueService(doors.describe, doors.find_models, self)
        return Services(
            folder,
            models,
            session,
            catalogue,
            download=DownloadService(models, doors.fetch, self),
            checks=CheckService(parent=self),
            hub=HubService(preferences, models, doors.hub, self),
            devices=DeviceService(doors.find_devices, self),
            judge=LibraryService(session, catalogue, doors.measure, doors.find_devices, self),
            shelf=Shelf(session, self),
        )

    def start(self, model: Path | None = None, starter: bool = False) -> None:
        """Show the window with the last conversation, and after the first paint bring in a model: `model`, the starter, or the last one."""
        _FirstPaint(self.window, lambda: self._bring_model(model, starter))
        self.window.show()
        self.services.shelf.load()
        self.session.restore()

    def _bring_model(self, model: Path | None, starter: bool) -> None:
        desk, last = self.window.desk, self.session.preferences.last_model
        if self._closed:
            return
        self.services.shelf.begin_upkeep()
        self.theme.motion.ask_system()
        if model is not None:
            desk.open(model)
        elif starter:
            desk.get_starter()
        elif last and Path(last).exists():
            desk.open(Path(last))
        else:
            desk.look_for_models()  # for the first page

    def show_trouble(self, sentence: str) -> None:
        """Tell the user of an error that nothing handled."""
        self.window.chat.show_notice(sentence, "error")

    def close(self) -> None:
        """Stop and save what runs, end the threads, close the files; calling again does nothing."""
        if self._closed:
            return
        self._closed = True
        self.services.close()
        self._library.close()
        self._database.close()
        self._lock.unlock()


def _take_lock(folder: Path) -> QLockFile:
    """The lock of the data folder, so that no second program writes to it. Raises `StoreError` when another one has it."""
    lock = QLockFile(str(folder / "inglenook.lock"))
    lock.setStaleLockTime(0)  # never by age; the lock of a process that is gone is taken over all the same
    if not lock.tryLock(0):
        raise StoreError(f"Inglenook is already open with the data in {folder}: use that window, or start with another --data folder.")
    return lock


def make_application(arguments: list[str]) -> QApplication:
    """The QApplication with the program's name, icon and exact fractional scaling."""
    QGuiApplication.setHighDpiScaleFactorRoundingPolicy(Qt.HighDpiScaleFactorRoundingPolicy.PassThrough)
    app = QApplication(arguments)
    app.setApplicationName("Inglenook")
    app.setDesktopFileName("inglenook")
    app.setWindowIcon(application_icon())
    app.setQuitOnLastWindowClosed(False)  # `_live` ends when the window is closed
    return app


async def _live(app: QApplication, desktop: Desktop) -> None:
    """Until the last window is closed or the session's manager ends the program."""
    ended = asyncio.Event()
    app.lastWindowClosed.connect(ended.set)
    app.aboutToQuit.connect(ended.set)
    await ended.wait()
    desktop.close()


def run(*, model: Path | None = None, data: Path | None = None, starter: bool = False, debug: bool = False) -> int:
    """Run the desktop until its window is closed; returns the exit code."""
    sys.setswitchinterval(SWITCH_S)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl+C in a terminal ends it at once; what is written down needs no farewell
    if data is not None:
        os.environ["INGLENOOK_DATA"] = str(data.expanduser().resolve())
    app = make_application(sys.argv[:1])
    try:
        folder = data_folder()
        diagnostics = Diagnostics(folder / "logs", debug)
        desktop = Desktop(app, folder)
    except (StoreError, OSError) as error:
        print(error, file=sys.stderr)
        QMessageBox.critical(None, "Inglenook", str(error))
        return EXIT_TROUBLE
    log.info("Inglenook starts with the data in %s", folder)
    diagnostics.trouble.connect(desktop.show_trouble, Qt.ConnectionType.QueuedConnection)
    loop = qasync.QEventLoop(app)
    asyncio.set_event_loop(loop)
    with loop:
        desktop.start(model, starter)
        loop.run_until_complete(_live(app, desktop))
    diagnostics.close()
    return 0
