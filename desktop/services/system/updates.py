"""Updates of the program, for the GUI thread: asked for, or once a week if the user wants that."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot

from desktop.items.models.local_models import starter_inside
from desktop.services.engine.background import Background
from desktop.services.engine.job import Job
from desktop.services.session.chat_session import ChatSession
from desktop.services.system.debounce import debounce
from desktop.services.system.relaunch import relaunch
from desktop.settings import Behaviour
from engine.core import Downloaded, Downloading
from engine.platform.program import app_image
from engine.platform.version import version
from engine.words import _

if TYPE_CHECKING:
    from engine.hub.updates.manifest import Update

__all__ = ["CHECK_AFTER_MS", "WEEK_S", "UpdateApi", "UpdateService"]

CHECK_AFTER_MS = 60_000
"""The weekly check waits this long after the start."""
WEEK_S = 7 * 86_400


class UpdateApi:
    """`engine.hub.updates`, imported on first use; tests have a fake. `check` and `install` block."""

    version = property(lambda self: version())

    def can_check(self) -> bool:
        """Whether this program was built with the address of its updates."""
        from engine.hub.updates.source import update_source

        return update_source() is not None

    def advice(self) -> str:
        """How the user updates this installation; "" if the program does that."""
        from engine.hub.updates.source import installed_as, update_advice

        return update_advice(installed_as(), sys.executable)

    def check(self, stop: threading.Event) -> Update | None:
        from engine.hub.updates.check import check_for_update
        from engine.hub.updates.source import update_source

        source = update_source()
        return check_for_update(source, version(), stop) if source is not None else None

    def install(self, update: Update, stop: threading.Event) -> Iterator[Downloading | Downloaded]:
        from engine.errors import DownloadError
        from engine.hub.updates.install import install_update

        image, package = app_image(), update.package("appimage", starter_inside())
        if image is None or package is None:
            raise DownloadError(
                _("Inglenook {version} has no package for this kind of installation.", version=update.version)
            )
        return install_update(update, package, image, version(), stop)

    def before(self) -> Path | None:
        """The version before, which an update has kept; None if there is none."""
        from engine.hub.updates.install import before_of

        image = app_image()
        return before_of(image) if image is not None and before_of(image).is_file() else None

    def roll_back(self) -> None:
        from engine.hub.updates.install import roll_back

        image = app_image()
        if image is not None:
            roll_back(image)


class UpdateService(QObject):
    """One check or installation at a time. `restart`: the user wants the program to start again when it ends.

    Signals:
        checked(object update): the newer version, or None; only for checks that were asked for.
        available(object update): the weekly check has found a newer version.
        failed(str sentence), progress(str stage, object done, object total)
        installed(): the next start is that of the new version. stopped(): as before.
    """

    checked = Signal(object)
    available = Signal(object)
    failed = Signal(str)
    progress = Signal(str, object, object)
    installed = Signal()
    stopped = Signal()

    def __init__(
        self, session: ChatSession, parent: QObject | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(parent)
        self.api = UpdateApi()
        self.restart = False
        self._session, self._preferences, self._clock = session, session.preferences, clock
        self._background = Background("updates", self)
        self._job: Job | None = None
        self._timer = debounce(self, self.look, CHECK_AFTER_MS)

    def begin(self) -> None:
        """After the first paint: check soon, if the weekly check is on and due."""
        if self._is_due():
            self._timer.start()

    @Slot()
    def look(self) -> None:
        """The weekly check, if it is due; a failure is tried again at the next start."""
        if self._is_due() and self._job is None:
            self._check(self._tell_if_newer, lambda _sentence: None)

    def check(self) -> None:
        """Ask for the latest version, as the user wants; nothing happens while something runs."""
        if self._job is None:
            self._check(self.checked.emit, self.failed.emit)

    def install(self, update: Update) -> None:
        """Download a version and put it in the place of this one."""
        if self._job is None:
            self._job = self._background.start(
                lambda stop: self.api.install(update, stop),
                self._on_installed,
                self._on_failed,
                self._on_event,
            )

    def stop(self) -> None:
        """Stop what runs; a download is resumed by the next one."""
        if self._job is not None:
            self._job.stop()

    def restart_if_asked(self) -> bool:
        """At the end of the program: start it again, if the user asked for that; False if that failed."""
        return not self.restart or relaunch()

    def close(self) -> bool:
        """Stop what runs and end the thread."""
        self._timer.stop()
        return self._background.close()

    def _is_due(self) -> bool:
        is_on = self._session.settings(Behaviour).weekly_check and self.api.can_check()
        return is_on and not 0 <= self._clock() - self._preferences.updates_checked_at < WEEK_S

    def _check(self, found: Callable[[object], object], failed: Callable[[str], object]) -> None:
        def ended(outcome: tuple[Update | None, bool] | None) -> None:
            self._job = None
            if outcome is None:
                self.stopped.emit()
                return
            self._preferences.note_update_check(self._clock())
            found(outcome[0])

        def on_failed(sentence: str, _details: str) -> None:
            self._job = None
            failed(sentence)

        self._job = self._background.call(lambda stop: (self.api.check(stop), True), ended, on_failed)

    def _tell_if_newer(self, update: object) -> None:
        if update is not None:
            self.available.emit(update)

    def _on_event(self, event: Downloading | Downloaded) -> None:
        if isinstance(event, Downloading):
            self.progress.emit(event.stage, event.done, event.total)

    def _on_installed(self, _result: object) -> None:
        stopped = self._job is None or self._job.stopping
        self._job = None
        (self.stopped if stopped else self.installed).emit()

    def _on_failed(self, sentence: str, _details: str) -> None:
        stopped = self._job is not None and self._job.stopping
        self._job = None
        if stopped:
            self.stopped.emit()
        else:
            self.failed.emit(sentence)
