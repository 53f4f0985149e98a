"""The parts of the window and the desks between them and the services: made here, in their order, and joined where two belong together."""

from __future__ import annotations

from PySide6.QtCore import QSettings, Qt
from PySide6.QtWidgets import QHBoxLayout, QMainWindow, QWidget

from desktop.services.services import Services
from desktop.settings import PANES
from desktop.views.application.backup_controller import SafetyDesk
from desktop.views.application.controller import StartDesk
from desktop.views.application.data_folder_controller import PlaceDesk
from desktop.views.chat.chat_pane import ChatPane
from desktop.views.chat.context_controller import ClarityDesk
from desktop.views.chat.reply_details_controller import OriginDesk
from desktop.views.chat.temporary_chat import TemporaryDesk
from desktop.views.composer.autosave import DraftKeeper
from desktop.views.composer.controller import WritingDesk
from desktop.views.layout.close_guard import LeavingDesk
from desktop.views.layout.drop_overlay import DropHint, is_model, model_path
from desktop.views.layout.file_opener import FileDesk
from desktop.views.layout.panes import Panes
from desktop.views.models.controller import ModelDesk
from desktop.views.models.library_controller import LibraryDesk
from desktop.views.models.model_picker import ModelPicker
from desktop.views.notebook.controller import NotebookDesk
from desktop.views.personas.controller import PersonaDesk
from desktop.views.personas.participants_controller import RoleDesk
from desktop.views.settings.controller import SettingsDesk
from desktop.views.settings.model.device_controller import DeviceDesk
from desktop.views.settings.model.drafting_controller import DraftDesk
from desktop.views.settings.model.memory_controller import MemoryDesk
from desktop.views.settings.settings_pane import Inspector
from desktop.views.sidebar.controller import SidebarDesk
from desktop.views.sidebar.folder_controller import FolderDesk
from desktop.views.sidebar.sidebar import Sidebar
from desktop.views.transfer.controller import ExchangeDesk
from desktop.views.widgets.icons import IconButton, application_icon

__all__ = ["WindowParts"]


class WindowParts(QMainWindow):
    """A window with its three panes, its top bar and its desks."""

    def __init__(self, services: Services, geometry: QSettings) -> None:
        super().__init__()
        session = services.session
        self.services, self.session, self._geometry = services, session, geometry
        self.setWindowTitle("Inglenook")
        self.setWindowIcon(application_icon())
        self.setAcceptDrops(True)
        self.picker = ModelPicker()
        self.temporary = TemporaryDesk(session, self)
        self.chat = ChatPane(session, self._top_bar())
        self.sidebar = Sidebar(services.shelf.rows)
        self.inspector = Inspector(PANES)
        self._make_desks()
        self.panes = Panes(self.sidebar, self.chat, self.inspector)
        self.setCentralWidget(self.panes)
        self.drop_hint = DropHint(self)

    def open_chat(self, conversation: int) -> None:
        """Show a conversation."""
        self.inspector.finish()
        self.panes.leave_side()
        self.session.open_conversation(conversation)

    def _make_desks(self) -> None:
        """What stands between a part of the window and its services, each for one job."""
        services, session, inspector = self.services, self.session, self.inspector
        self.files = FileDesk(self)
        self.desk = ModelDesk(session, services.catalogue, services.download, services.models, self)
        self.library = LibraryDesk(session, self.desk, services.catalogue, services.judge, services.hub, self)
        self.settings_desk = SettingsDesk(session, inspector, services.checks, services.devices, self)
        self.settings_desk.reload_requested.connect(self.desk.reload)
        self.chat.reload_requested.connect(self.desk.reload)
        self.device_desk = DeviceDesk(session, services.devices, inspector, self.picker, self)
        self.drafting = DraftDesk(session, self.desk, inspector, self)
        self.shelf_desk = SidebarDesk(services.shelf, self.sidebar, self.chat, self._geometry, self)
        self.personas = PersonaDesk(session, self.chat, self.desk, services.catalogue, self)
        self.top_line.insertWidget(2, self.personas.picker)
        self.temporary.connect_view(self.chat)
        self.folders = FolderDesk(session, services.checks, self)
        self.shelf_desk.folder_settings_requested.connect(self.folders.open)
        self.folders.changed.connect(services.shelf.load)
        services.shelf.folders_changed.connect(session.follow_place)
        self.unsent = DraftKeeper(session, self.chat.composer, services.writing.draft_files, self)
        self.unsent.changed.connect(self.sidebar.set_drafts)
        self.start_desk = StartDesk(services, self.chat.banner, self.open_chat, self)
        self.clarity = ClarityDesk(session, services.meter, self.chat, self)
        services.meter.changed.connect(lambda found: inspector.prompt_field.show_size(found.system, found.about))
        self.memory = MemoryDesk(session, services.memory, inspector, self)
        self.origins = OriginDesk(session, services.origins, self)
        self.origins.notice.connect(self.chat.show_notice)
        self.chat.origin_wanted.connect(lambda message: self.origins.open(message, self))
        self.files.add(is_model, lambda paths: self.desk.open(model_path(paths[0])), "Drop the model here to open it")
        self.exchange = ExchangeDesk(session, services.exchange, self.chat, self.files, self)
        self.shelf_desk.export_requested.connect(self.exchange.export)
        session.library_changed.connect(services.shelf.load)
        self.safety = SafetyDesk(session, services.backups, services.exchange, self.chat, self)
        self.place = PlaceDesk(services.place, session, self.chat, self)
        self.leaving = LeavingDesk(session, self, self.place)
        self.writing = WritingDesk(services.writing, session, self.chat, self)
        self.temporary.moved = services.writing.move
        self.clarity.draft = lambda: self.writing.message(self.chat.composer.text())
        services.writing.attachments.changed.connect(lambda _conversation: self.clarity.draft_changed())
        self.roles = RoleDesk(session, self.chat, self.personas, self.writing, services.meter)
        self.notebooks = NotebookDesk(session, self.chat, inspector, self)
        self.shelf_desk.show_in_notebook = self.notebooks.open_hit
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
