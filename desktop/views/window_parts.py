"""The parts of the window and the controllers between them and the services: made here in their order, and
joined.
"""

from __future__ import annotations

from PySide6.QtCore import QSettings, Qt
from PySide6.QtWidgets import QHBoxLayout, QMainWindow, QWidget

from desktop.services.services import Services
from desktop.settings import PANES
from desktop.views.application.backup_controller import BackupController
from desktop.views.application.controller import ApplicationController
from desktop.views.application.data_folder_controller import DataFolderController
from desktop.views.chat.chat_pane import ChatPane
from desktop.views.chat.context_controller import ContextController
from desktop.views.chat.reply_details_controller import ReplyDetailsController
from desktop.views.chat.temporary_chat import TemporaryChatController
from desktop.views.composer.autosave import DraftAutosave
from desktop.views.composer.controller import ComposerController
from desktop.views.layout.close_guard import CloseGuard
from desktop.views.layout.drop_overlay import DropOverlay, is_model, model_path
from desktop.views.layout.file_opener import FileOpener
from desktop.views.layout.panes import Panes
from desktop.views.models.controller import ModelController
from desktop.views.models.library_controller import LibraryController
from desktop.views.models.model_picker import ModelPicker
from desktop.views.notebook.controller import NotebookController
from desktop.views.personas.controller import PersonaController
from desktop.views.personas.participants_controller import ParticipantsController
from desktop.views.settings.controller import SettingsController
from desktop.views.settings.model.device_controller import DeviceController
from desktop.views.settings.model.drafting_controller import DraftingController
from desktop.views.settings.model.memory_controller import MemoryController
from desktop.views.settings.settings_pane import Inspector
from desktop.views.sidebar.controller import SidebarController
from desktop.views.sidebar.folder_controller import FolderController
from desktop.views.sidebar.sidebar import Sidebar
from desktop.views.transfer.controller import TransferController
from desktop.views.widgets.icons import IconButton, application_icon

__all__ = ["WindowParts"]


class WindowParts(QMainWindow):
    """A window with its three panes, its top bar and its controllers."""

    def __init__(self, services: Services, geometry: QSettings) -> None:
        super().__init__()
        session = services.session
        self.services, self.session, self._geometry = services, session, geometry
        self.setWindowTitle("Inglenook")
        self.setWindowIcon(application_icon())
        self.setAcceptDrops(True)
        self.picker = ModelPicker()
        self.temporary = TemporaryChatController(session, self)
        self.chat = ChatPane(session, self._top_bar())
        self.sidebar = Sidebar(services.chat_list.rows)
        self.inspector = Inspector(PANES)
        self._make_controllers()
        self.panes = Panes(self.sidebar, self.chat, self.inspector)
        self.setCentralWidget(self.panes)
        self.drop_hint = DropOverlay(self)

    def open_chat(self, conversation: int) -> None:
        """Show a conversation."""
        self.inspector.finish()
        self.panes.leave_side()
        self.session.open_conversation(conversation)

    def _make_controllers(self) -> None:
        """What stands between a part of the window and its services, each for one job."""
        services, session, inspector = self.services, self.session, self.inspector
        self.files = FileOpener(self)
        self.model_controller = ModelController(
            session, services.local_models, services.download, services.models, self
        )
        self.library = LibraryController(
            session, self.model_controller, services.local_models, services.library, services.hub, self
        )
        self.settings_controller = SettingsController(
            session, inspector, services.validation, services.devices, self
        )
        self.settings_controller.reload_requested.connect(self.model_controller.reload)
        self.chat.reload_requested.connect(self.model_controller.reload)
        self.device_controller = DeviceController(session, services.devices, inspector, self.picker, self)
        self.drafting = DraftingController(session, self.model_controller, inspector, self)
        self.sidebar_controller = SidebarController(
            services.chat_list, self.sidebar, self.chat, self._geometry, self
        )
        self.personas = PersonaController(
            session, self.chat, self.model_controller, services.local_models, self
        )
        self.top_line.insertWidget(2, self.personas.picker)
        self.temporary.connect_view(self.chat)
        self.folders = FolderController(session, services.validation, self)
        self.sidebar_controller.folder_settings_requested.connect(self.folders.open)
        self.folders.changed.connect(services.chat_list.load)
        services.chat_list.folders_changed.connect(session.follow_place)
        self.unsent = DraftAutosave(session, self.chat.composer, services.composer.draft_files, self)
        self.unsent.changed.connect(self.sidebar.set_drafts)
        self.application_controller = ApplicationController(services, self.chat.banner, self.open_chat, self)
        self.clarity = ContextController(session, services.context_meter, self.chat, self)
        services.context_meter.changed.connect(
            lambda found: inspector.prompt_field.show_size(found.system, found.about)
        )
        self.memory = MemoryController(session, services.memory_forecast, inspector, self)
        self.origins = ReplyDetailsController(session, services.provenance, self)
        self.origins.notice.connect(self.chat.show_notice)
        self.chat.origin_wanted.connect(lambda message: self.origins.open(message, self))
        self.files.add(
            is_model,
            lambda paths: self.model_controller.open(model_path(paths[0])),
            "Drop the model here to open it",
        )
        self.exchange = TransferController(session, services.transfer, self.chat, self.files, self)
        self.sidebar_controller.export_requested.connect(self.exchange.export)
        session.library_changed.connect(services.chat_list.load)
        self.safety = BackupController(session, services.backups, services.transfer, self.chat, self)
        self.place = DataFolderController(services.data_folder, session, self.chat, self)
        self.leaving = CloseGuard(session, self, self.place)
        self.writing = ComposerController(services.composer, session, self.chat, self)
        self.temporary.moved = services.composer.move
        self.clarity.draft = lambda: self.writing.message(self.chat.composer.text())
        services.composer.attachments.changed.connect(lambda _conversation: self.clarity.draft_changed())
        self.roles = ParticipantsController(
            session, self.chat, self.personas, self.writing, services.context_meter
        )
        self.notebooks = NotebookController(session, self.chat, inspector, self)
        self.sidebar_controller.show_in_notebook = self.notebooks.open_hit
        self.files.refused.connect(lambda sentence: self.chat.show_notice(sentence, "warning"))

    def _top_bar(self) -> QWidget:
        bar = QWidget()
        bar.setObjectName("topBar")
        bar.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.left_button = IconButton("sidebar", "Show or hide chats")
        self.right_button = IconButton("inspector", "Show or hide settings")
        layout = self.top_line = QHBoxLayout(bar)
        layout.setContentsMargins(8, 6, 8, 6)
        layout.addWidget(self.left_button)
        layout.addWidget(self.picker)
        layout.addStretch(1)
        layout.addWidget(self.temporary.button)
        layout.addWidget(self.right_button)
        return bar
