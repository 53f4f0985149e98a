"""LocalServer: the switch of the server for other programs, what it is set to, and who uses it."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.engine.engine_controller import EngineController
from desktop.settings import LocalServerSettings
from desktop.store.settings.preferences import Preferences
from engine.errors import EngineError
from engine.words import _

if TYPE_CHECKING:
    from engine.server.service import Visit
    from engine.server.serving import ApiServer

__all__ = ["LocalServer"]

_NETWORK = "0.0.0.0"


class LocalServer(QObject):
    """Serves the loaded model to other programs while it is on. Nothing of it is imported before.

    Signals:
        changed(): it was switched on or off, or its address, token or trouble are others.
        not_restored(str trouble): it was on when the program was closed, and cannot be switched on.
    """

    changed = Signal()
    not_restored = Signal(str)
    _done = Signal(object)

    def __init__(
        self, preferences: Preferences, engine: EngineController, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._preferences, self._engine = preferences, engine
        self._server: ApiServer | None = None
        self._changing: _Change | None = None
        self._restoring = False
        self.trouble = ""
        """Why it could not be switched on; "" if it could."""
        self._done.connect(self._on_done)

    @property
    def settings(self) -> LocalServerSettings:
        """What it is set to; `on` is what the user wants."""
        return self._preferences.settings(LocalServerSettings)

    @property
    def url(self) -> str:
        """The address for programs on this computer; "" while it does not listen."""
        return self._server.url if self._server is not None else ""

    @property
    def changing(self) -> bool:
        """Whether it is being switched on or off."""
        return self._changing is not None

    @property
    def has_model(self) -> bool:
        """Whether a model is loaded that it can serve: one on this computer."""
        info = self._engine.host.info
        return info is not None and not info.host and not self._engine.loads

    def restore(self) -> None:
        """Switch it on if it was on when the program was closed."""
        if self.settings.on:
            self._change()
            self._restoring = True

    def change(self, settings: LocalServerSettings) -> None:
        """Apply other settings: replies that it is writing end if the server has to start over."""
        if settings.on and not settings.token:
            from engine.server.options import new_token

            settings = dataclasses.replace(settings, token=new_token())
        if settings == self.settings:
            return
        self._preferences.save_settings(settings)
        self._change()

    def renew_token(self) -> None:
        """Replace the token: programs that use the old one are let in no more."""
        from engine.server.options import new_token

        self.change(dataclasses.replace(self.settings, token=new_token()))

    def visits(self) -> tuple[Visit, ...]:
        """The requests that are being answered."""
        return self._server.service.visits() if self._server is not None else ()

    def end_visit(self, number: int) -> None:
        """End one of them."""
        if self._server is not None:
            self._server.end_visit(number)

    def close(self) -> bool:
        """End the server and its thread."""
        change = _Change(self._changing, self._server, None, lambda _change: None)
        self._changing = self._server = None
        change.start()
        change.join()
        return True

    def _change(self) -> None:
        """Make it as it is set, on a thread: importing the server, and ending requests, takes a moment."""
        settings, self._restoring = self.settings, False

        def listen() -> ApiServer:
            # only when the server is switched on
            from desktop.services.local_server.engine_thread import EngineThread
            from engine.server.options import ServerOptions
            from engine.server.serving import ApiServer

            host = _NETWORK if settings.network else "localhost"
            return ApiServer(EngineThread(self._engine), ServerOptions(host, settings.port, settings.token))

        server, self._server, self.trouble = self._server, None, ""
        self._changing = _Change(self._changing, server, listen if settings.on else None, self._done.emit)
        self._changing.start()
        self.changed.emit()

    @Slot(object)
    def _on_done(self, change: _Change) -> None:
        if change is self._changing:  # else another one follows, which takes over its server
            self._changing, self._server, self.trouble = None, change.server, change.trouble
            change.join()
            self.changed.emit()
            if self._restoring and self.trouble:
                self.not_restored.emit(self.trouble)
            self._restoring = False


class _Change(threading.Thread):
    """Ends the server of the change `before`, or `server`, and begins another by `listen` unless that is
    None. `server` and `trouble` are its outcome when it calls `done`.
    """

    def __init__(
        self,
        before: _Change | None,
        server: ApiServer | None,
        listen: Callable[[], ApiServer] | None,
        done: Callable[[_Change], object],
    ) -> None:
        super().__init__(name="local server", daemon=True)
        self._before, self.server, self._listen, self._done = before, server, listen, done
        self.trouble = ""

    def run(self) -> None:
        """As the class says."""
        if self._before is not None:
            self._before.join()
            self.server = self._before.server
        if self.server is not None:
            self.server.close()
            self.server = None
        if self._listen is not None:
            try:
                self.server = self._listen()
            except EngineError as error:
                self.trouble = str(error)
            except (OSError, RuntimeError) as error:  # no more files or threads can be opened
                self.trouble = _(
                    "The server cannot be started ({reason}). Close other programs, then try again.",
                    reason=getattr(error, "strerror", None) or str(error),
                )
        self._done(self)
