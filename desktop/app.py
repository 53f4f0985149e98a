"""The composition root: makes every object of the desktop, connects them, and runs Qt until the window is
closed.

Order of a start: folder and lock, log and crash file, store, session (its engine thread waits), window, first
paint, and only then the model: torch and the kernels are imported on the engine's thread, never before the
window can be used.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QEventLoop, QLockFile, QObject, QSettings, Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import QApplication, QMessageBox

from desktop.application import FirstPaint, make_application
from desktop.diagnostics import Diagnostics
from desktop.services.comparison.comparison import ComparisonService
from desktop.services.composer.composer_services import make_composer_services
from desktop.services.composer.meaning import OpenEmbedder, open_embedder
from desktop.services.conversations.chat_list import ChatList
from desktop.services.conversations.titles import ChatTitles
from desktop.services.engine.model_host import Describe, OpenChat, describe, open_chat
from desktop.services.local_server.local_server import LocalServer
from desktop.services.models.devices import DeviceService, FindDevices, find_devices
from desktop.services.models.draft_models import DraftProblem, draft_problem
from desktop.services.models.file_hashes import HashService
from desktop.services.models.fit_estimates import LibraryService, Measure, measure_bandwidth
from desktop.services.models.hub import HUB, HubApi, HubService
from desktop.services.models.local_models import FindModels, LocalModelsService, find_models
from desktop.services.models.memory_forecast import MemoryForecast
from desktop.services.models.starter_download import DownloadService, Fetch, fetch_starter
from desktop.services.provenance.provenance import ProvenanceService
from desktop.services.providers.provider_service import ProviderService
from desktop.services.services import Services
from desktop.services.session.chat_session import ChatSession
from desktop.services.session.context_meter import ContextMeter
from desktop.services.settings.validation import ValidationService
from desktop.services.system.backups import BackupService
from desktop.services.system.data_folder import DataFolder
from desktop.services.system.garbage_collection import GarbageCollector
from desktop.services.system.language import apply_language
from desktop.services.system.single_instance import (
    FirstInstance,
    Request,
    absolute,
    activation_token,
    take_lock,
)
from desktop.services.system.updates import UpdateService
from desktop.services.tools.tool_service import ToolService
from desktop.services.transfer.transfer import TransferService
from desktop.settings import Appearance
from desktop.signal_handler import SignalHandler
from desktop.store.backups import Backups
from desktop.store.conversations.stores import ConversationStores
from desktop.store.database.data_folder import data_folder
from desktop.store.database.database import FILE_NAME as DATABASE
from desktop.store.database.database import StoreError
from desktop.store.database.open import open_conversations
from desktop.store.privacy import close_data
from desktop.store.settings.preferences import Preferences
from desktop.views.application.second_start import first_lock
from desktop.views.layout.bring_forward import bring_forward
from desktop.views.layout.drop_overlay import is_model
from desktop.views.layout.input_watch import InputWatch
from desktop.views.main_window import MainWindow
from desktop.views.widgets.theme import Theme
from engine.lazy_dataclass import dataclass
from engine.platform.folders import private_file
from engine.platform.language import PREFERENCES, saved_choice
from engine.settings import Settings
from engine.words import _

__all__ = ["Desktop", "EngineApi", "make_application", "run"]

log = logging.getLogger(__name__)

EXIT_TROUBLE = 1
FIRST_CHATS = 200
"""More chats than any screen shows; the others are read after the first paint."""
SWITCH_S = 0.001
"""The window's longest wait for another thread's Python code; Python's own 5 ms are a third of a frame."""


@dataclass(frozen=True)
class EngineApi:
    """What the desktop uses of the engine; tests pass fakes."""

    open_chat: OpenChat = open_chat
    describe: Describe = describe
    fetch: Fetch = fetch_starter
    draft_problem: DraftProblem = draft_problem
    find_models: FindModels = find_models
    measure: Measure = measure_bandwidth
    hub: HubApi = HUB
    find_devices: FindDevices = find_devices
    open_embedder: OpenEmbedder = open_embedder


class Desktop(QObject):
    """One window with everything that it needs, over the data in `folder`, whose lock the caller may pass.

    `painted` is true once the window was seen, `ended` once `close` was called.

    Signals: `end_requested()` may be emitted from any thread and closes the window; `closed()` comes when
    everything is saved, before the folder is free for another program. Raises `StoreError` if the folder
    cannot be used, `AlreadyOpen` among them.
    """

    end_requested = Signal()
    closed = Signal()

    def __init__(
        self, app: QApplication, folder: Path, api: EngineApi = EngineApi(), lock: QLockFile | None = None
    ) -> None:
        super().__init__()
        self._app = app
        self.end_requested.connect(self._end, Qt.ConnectionType.QueuedConnection)
        self._lock = lock or take_lock(folder)
        self._first: FirstInstance | None = None
        try:
            exposed = close_data(folder)
            self._database = open_conversations(folder / DATABASE)
            preferences = Preferences(folder / PREFERENCES)
            apply_language(app, preferences.settings(Appearance).language)
            self._stores = ConversationStores(self._database)
        except StoreError:
            self._lock.unlock()
            raise
        if exposed:
            self._stores.kept.notices += (exposed,)
        self.services = self._make_services(folder, preferences, api)
        self.session = self.services.session
        self.theme = Theme(app, self)
        look = self.session.settings(Appearance)
        self.theme.prepare(look.theme, look.text_scale, look.contrast)
        with contextlib.suppress(OSError):  # Qt keeps the permissions of the file that it replaces.
            private_file(folder / "window.ini")
        self._places = QSettings(str(folder / "window.ini"), QSettings.Format.IniFormat)
        self.window = MainWindow(self.services, self.theme, self._places, self.close)
        self.session.settings_changed.connect(self._on_settings)
        self._input: InputWatch | None = None
        self.painted = False
        self.ended = False

    @property
    def acting(self) -> bool:
        """Whether the user is scrolling or typing right now."""
        return self._input is not None and self._input.acting

    def _make_services(self, folder: Path, preferences: Preferences, api: EngineApi) -> Services:
        models = folder / "models"
        providers = ProviderService(preferences, self)
        chat, described = providers.models.opening(api.open_chat), providers.models.describing(api.describe)
        session = ChatSession(self._stores, preferences, chat, described, api.draft_problem, self)
        local_models = LocalModelsService(api.describe, api.find_models, self)
        local_models.elsewhere = providers.entries
        devices = DeviceService(api.find_devices, self)
        tools = ToolService(folder, self)
        session.tools.use(tools)
        return Services(
            folder,
            models,
            session,
            local_models,
            download=DownloadService(models, api.fetch, self),
            validation=ValidationService(parent=self),
            hub=HubService(preferences, models, api.hub, self),
            devices=devices,
            library=LibraryService(session, local_models, folder, api.measure, api.find_devices, self),
            chat_list=ChatList(session, self),
            transfer=TransferService(self._stores, self),
            backups=BackupService(session, self),
            composer=make_composer_services(session, self, local_models, api.open_embedder),
            memory_forecast=MemoryForecast(session, devices, api.describe, self),
            context_meter=ContextMeter(session, self),
            provenance=ProvenanceService(session, HashService(session, folder, self), self),
            data_folder=self._watched(session),
            comparisons=ComparisonService(session, self),
            titles=ChatTitles(session, self),
            local_server=LocalServer(preferences, session.replies.engine, self),
            providers=providers,
            updates=UpdateService(session, self),
            tools=tools,
        )

    def _watched(self, session: ChatSession) -> DataFolder:
        place = DataFolder(session, self)
        place.moved.connect(self._on_moved)
        return place

    @Slot(object)
    def _on_moved(self, folder: Path) -> None:
        """The data moved to another folder, or to a new one of the same name: lock it, and back up from
        there.
        """
        self._lock.unlock()  # First, because it removes the file of its name.
        try:
            self._lock = take_lock(folder)
        except StoreError as error:
            log.error("the folder has no lock: %s", error)
        self.services.backups.copies = Backups(self._database.path)
        try:
            self.services.tools.save_in(folder)
        except StoreError as error:
            log.error("the tool servers are not saved: %s", error)

    def start(
        self,
        model: Path | None = None,
        starter: bool = False,
        files: Sequence[Path] = (),
        last_run: str | None = None,
    ) -> None:
        """Show the window with the last conversation; after the first paint open `files` and a model:
        `model`, the starter, or the last one. `last_run` is what a run that ended unexpectedly left
        (`Diagnostics.last_run`).
        """
        FirstPaint(self.window, lambda: self._after_paint(model, starter, files, last_run))
        self.window.show()
        self._watch_input()
        self.services.chat_list.load()
        self.session.restore(FIRST_CHATS)

    def _watch_input(self) -> None:
        self._input = InputWatch(self.window)
        self._input.acted.connect(self.session.make_room)

    def _after_paint(
        self, model: Path | None, starter: bool, files: Sequence[Path], last_run: str | None
    ) -> None:
        self.painted = True
        if self.ended:
            return
        if self.session.conversations.rowCount() >= FIRST_CHATS:
            self.session.list_all()
        self.services.chat_list.begin_upkeep()
        self.theme.motion.ask_system()
        self.services.local_server.restore()
        self.services.tools.start()
        self._first = FirstInstance(self.services.folder, self)
        self._first.asked.connect(self.asked)
        self._bring_model(
            model, starter, keep_last=not last_run and not any(is_model(path) for path in files)
        )
        self.window.files.open(files)
        self.window.greet()
        if last_run is not None:
            self.window.application_controller.report_last_run(last_run)

    def _bring_model(self, model: Path | None, starter: bool, keep_last: bool) -> None:
        models = self.window.model_controller
        if model is not None:
            models.open(model)
        elif starter:
            models.get_starter()
        elif not keep_last or not models.open_last():
            models.look_for_models()  # For the welcome page.

    @Slot(object)
    def asked(self, request: Request) -> None:
        """A second start of the program: come to the front, and open what it was given."""
        bring_forward(self.window, request.token)
        self.window.files.open(request.paths)
        if request.starter and not self.services.download.running:
            self.window.model_controller.get_starter()

    @Slot(object)
    def _on_settings(self, cls: type[Settings]) -> None:
        if cls is Appearance and apply_language(self._app, self.session.settings(Appearance).language):
            QTimer.singleShot(0, self, self.renew_window)  # not inside the old window's own code

    def renew_window(self) -> None:
        """Replace the window by one in the language that is in use now.

        The services stay, and with them the model, running replies, downloads and the open chat; what was
        typed is saved and shown again.
        """
        old = self.window
        asked = old.preferences.preferences
        preferences = asked is not None and asked.isVisible()
        self._input = None
        old.give_way()
        self.window = MainWindow(self.services, self.theme, self._places, self.close)
        self.window.show()
        self._watch_input()
        self.session.show_again()
        if preferences:
            self.window.preferences.open()

    @Slot(str, str)
    def show_trouble(self, sentence: str, trace: str = "") -> None:
        """Show an error that nothing handled."""
        self.window.application_controller.report_error(sentence, trace)

    @Slot()
    def _end(self) -> None:
        self.window.close_guard.sure = True  # The system does not wait for an answer.
        self.window.close()

    def close(self) -> None:
        """Stop and save what runs, end the threads, close the files. A second call does nothing."""
        if self.ended:
            return
        self.ended = True
        if self._first is not None:
            self._first.close()
        self.services.data_folder.rescue()
        self.services.close()
        self._stores.close()
        self._database.close()
        self.closed.emit()
        self._lock.unlock()


def _logging(folder: Path, debug: bool) -> Diagnostics:
    """The log in a folder. Raises `StoreError`."""
    try:
        return Diagnostics(folder, debug)
    except OSError as error:
        raise StoreError(
            _(
                "The log in {folder} cannot be written ({strerror}). Check the permissions of this folder, "
                "or move away what is in its place.",
                folder=folder,
                strerror=error.strerror,
            )
        ) from error


def run(
    *,
    model: Path | None = None,
    data: Path | None = None,
    starter: bool = False,
    debug: bool = False,
    files: Sequence[Path] = (),
) -> int:
    """Run the desktop until its window is closed, or hand the arguments to an open one. 0: all is well."""
    sys.setswitchinterval(SWITCH_S)
    os.umask(0o077)  # Files written from now on, exports included, are for this user only.
    if data is not None:
        os.environ["INGLENOOK_DATA"] = str(data.expanduser().resolve())
    app = make_application(sys.argv[:1])
    apply_language(app, saved_choice())  # for what may be said before the preferences are read in whole
    given = absolute([*([model] if model is not None else []), *files])
    diagnostics: Diagnostics | None = None
    try:
        folder = data_folder()
        lock = first_lock(folder, Request(given, starter, activation_token()))
        if lock is None:
            return 0
        diagnostics = _logging(folder / "logs", debug)
        desktop = Desktop(app, folder, lock=lock)
    except (StoreError, OSError) as error:
        if diagnostics is not None:
            diagnostics.close()
        print(error, file=sys.stderr)
        QMessageBox.critical(None, "Inglenook", str(error))
        return EXIT_TROUBLE
    log.info("Inglenook starts with the data in %s", folder)
    diagnostics.trouble.connect(desktop.show_trouble, Qt.ConnectionType.QueuedConnection)
    desktop.closed.connect(diagnostics.ends_well)
    app.file_opened.connect(lambda path: desktop.asked(Request((Path(path),))))
    signal_handler = SignalHandler(desktop.end_requested.emit, diagnostics.ends_well)
    collector = GarbageCollector(lambda: desktop.session.busy, lambda: desktop.acting)
    desktop.start(model, starter, absolute(files), diagnostics.last_run)
    while not (desktop.painted or desktop.ended):
        app.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents)
    from desktop.event_loop import live  # The first paint does not wait for asyncio.

    live(app, lambda: desktop.ended)
    desktop.close()
    signal_handler.close()
    collector.close()
    diagnostics.close()
    return desktop.window.after_end(app)
