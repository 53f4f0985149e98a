"""The window: places the panes, makes their controllers and connects them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QSettings, Qt
from PySide6.QtGui import QCloseEvent, QDragEnterEvent, QDragLeaveEvent, QDropEvent, QKeyEvent
from PySide6.QtWidgets import QApplication, QMainWindow

from desktop.items.commands.slash import SlashWord
from desktop.items.models.local_models import starter_words
from desktop.services.services import Services
from desktop.settings import PANES, Appearance, Behaviour
from desktop.views.application.backup_controller import BackupController
from desktop.views.application.controller import ApplicationController
from desktop.views.application.data_folder_controller import DataFolderController
from desktop.views.chat.chat_pane import ChatPane
from desktop.views.chat.context_controller import ContextController
from desktop.views.chat.local_only_chat import LocalOnlyStrip
from desktop.views.chat.reply_details_controller import ReplyDetailsController
from desktop.views.chat.temporary_chat import TemporaryStrip
from desktop.views.commands.controller import CommandController
from desktop.views.commands.palette_controller import PaletteController, PaletteTargets
from desktop.views.comparison.controller import ComparisonController
from desktop.views.composer.autosave import DraftAutosave
from desktop.views.composer.controller import ComposerController
from desktop.views.composer.saved_prompt_controller import SavedPromptController
from desktop.views.layout.close_guard import CloseGuard
from desktop.views.layout.drop_overlay import DropOverlay, dropped_paths, is_model, model_path
from desktop.views.layout.file_opener import FileHandler, FileOpener
from desktop.views.layout.navigation import NavigationController
from desktop.views.layout.pane_cycle import PaneCycle
from desktop.views.layout.panes import LEFT, RIGHT, Panes
from desktop.views.layout.places import recall_places, remember_places
from desktop.views.layout.top_bar import TopBar
from desktop.views.models.controller import ModelController
from desktop.views.notebook.controller import NotebookController
from desktop.views.personas.controller import PersonaController
from desktop.views.personas.participants_controller import ParticipantsController
from desktop.views.preferences.controller import PreferencesController
from desktop.views.providers.controller import ServersController
from desktop.views.settings.controller import SettingsController
from desktop.views.settings.model.controller import ModelSettingsController
from desktop.views.settings.settings_pane import Inspector
from desktop.views.sidebar.controller import SidebarController
from desktop.views.sidebar.sidebar import Sidebar
from desktop.views.tools.controller import ToolController
from desktop.views.transcript.view import TranscriptView
from desktop.views.transfer.controller import TransferController, is_chats
from desktop.views.widgets.icons import application_icon
from desktop.views.widgets.listening import listen
from desktop.views.widgets.theme import Theme
from engine.settings import Settings
from engine.words import _

__all__ = ["MainWindow"]


class MainWindow(QMainWindow):
    """One window over one session.

    `geometry` keeps its place and panes; `close_services` ends the services when the window closes.
    """

    def __init__(
        self, services: Services, theme: Theme, geometry: QSettings, close_services: Callable[[], None]
    ) -> None:
        super().__init__()
        self.services, self.session, self.theme = services, services.session, theme
        self._geometry, self._close_services = geometry, close_services
        self.setWindowTitle("Inglenook")
        self.setWindowIcon(application_icon())
        self.setAcceptDrops(True)
        self.top_bar = TopBar()
        self.picker = self.top_bar.picker
        self.chat = ChatPane(self.session, services.context_meter, self.top_bar)
        self.sidebar = Sidebar(services.chat_list.rows)
        self.inspector = Inspector(PANES)
        self.panes = Panes(self.sidebar, self.chat, self.inspector)
        self.setCentralWidget(self.panes)
        self.drop_hint = DropOverlay(self)
        self.commands = CommandController(self, self.session, self.chat.transcript)
        self.actions_by_name = self.commands.by_name
        self._make_model_controllers()
        self._make_chat_controllers()
        self._make_program_controllers()
        self._bind_commands()
        self._connect()
        self._add_tips()
        self._show_model()
        for cls in (Appearance, Behaviour):
            self._show_settings(cls)
        recall_places(self, self.panes, geometry)
        self.settings_controller.recall(geometry)

    # -- the controllers: each gets the panes and services of its job

    def _make_model_controllers(self) -> None:
        services, session, chat, inspector = self.services, self.session, self.chat, self.inspector
        self.model_controller = ModelController(services, self.picker, chat.welcome, self)
        self.settings_controller = SettingsController(
            session,
            inspector,
            self.panes,
            services.validation,
            services.devices,
            services.memory_forecast,
            self,
        )
        self.servers = ServersController(
            session, services.providers, self.model_controller, self.picker, chat.status, inspector, self
        )
        self.model_settings = ModelSettingsController(
            session, services.devices, self.model_controller, inspector, self.picker
        )

    def _make_chat_controllers(self) -> None:
        services, session, chat, inspector = self.services, self.session, self.chat, self.inspector
        self.personas = PersonaController(session, chat, self.model_controller, services.local_models, self)
        self.top_bar.add_picker(self.personas.picker)
        self.reply_details = ReplyDetailsController(session, services.provenance, self)
        self.notebooks = NotebookController(
            session, chat, inspector, self.reply_details, self.personas.picker, self
        )
        self.transfer = TransferController(session, services.transfer, chat, self)
        self.sidebar_controller = SidebarController(
            services, self.sidebar, self.panes, chat, self.notebooks.open_hit, self._geometry, self
        )
        self.autosave = DraftAutosave(session, chat.composer, services.composer.draft_files, self)
        self.temporary = TemporaryStrip(session, chat, services.composer.move)
        self.local_only = LocalOnlyStrip(session, chat, self.actions_by_name["local_only"])
        self.composer_controller = ComposerController(services.composer, session, chat, self)
        self.composer_controller.passages.get_models = self.model_controller.open_embedding_models
        self.tools = ToolController(session, services.tools, services.composer.attachments, chat, self)
        self.context = ContextController(
            session,
            services.context_meter,
            chat,
            lambda: self.composer_controller.message(chat.composer.text()),
            self,
        )
        self.comparisons = ComparisonController(
            session,
            services.comparisons,
            chat,
            self.composer_controller,
            self.personas,
            services.local_models,
            self,
        )
        self.participants = ParticipantsController(
            session, chat, self.personas, self.composer_controller, services.context_meter
        )
        self.prompts = SavedPromptController(
            services.composer.prompts, session, chat, self.actions_by_name, self._slash_words(), self
        )
        self.navigation = NavigationController(
            session, self.panes, chat, inspector, self.autosave, self.notebooks
        )

    def _make_program_controllers(self) -> None:
        services, session, chat = self.services, self.session, self.chat
        self.application_controller = ApplicationController(
            services, chat.banner, self.navigation.open_chat, self
        )
        self.preferences = PreferencesController(
            services, self.model_controller, self.actions_by_name, self._geometry, self
        )
        self.backups = BackupController(session, services.backups, services.transfer, chat, self)
        self.data_folder = DataFolderController(services.data_folder, session, chat, self)
        self.close_guard = CloseGuard(session, self, self.data_folder)
        self.files = FileOpener(self._file_handlers(), self)
        self.pane_cycle = PaneCycle(
            (
                (self.sidebar, self.sidebar.focus_target),
                (self.top_bar, lambda: self.picker),
                (chat.transcript, lambda: chat.transcript),
                (chat.composer, lambda: chat.composer.box),
                (self.inspector, lambda: self.inspector.query),
            ),
            self,
        )
        listen(
            self,
            self.comparisons.page_made,
            lambda page: self.pane_cycle.add(page, page.focus_target, chat.transcript),
        )
        self.palette_controller = PaletteController(
            self,
            session,
            services.local_models,
            self.settings_controller.presets,
            self.commands,
            PaletteTargets(
                self.navigation.open_chat,
                self.navigation.open_message,
                self.settings_controller.show_setting,
                self.preferences.show_preference,
                lambda path: self.model_controller.open(Path(path)),
                self.model_controller.look_for_models,
                lambda: [(persona.id, persona.name) for persona in self.personas.service.personas()],
                self.personas.choose,
            ),
        )

    def _slash_words(self) -> dict[str, SlashWord]:
        choose_model = SlashWord(lambda _text: self.picker.showMenu())
        return {"model": choose_model, **self.participants.slash_words()}

    def _file_handlers(self) -> tuple[FileHandler, ...]:
        """Who gets a dropped file: the first that accepts it."""
        attach = self.composer_controller.files
        return (
            FileHandler(
                lambda path: is_model(path) and not is_chats(path),
                lambda paths: self.model_controller.open(model_path(paths[0])),
                _("Drop the model here to open it"),
            ),
            FileHandler(is_chats, self.transfer.import_files, _("Drop the chats here to import them")),
            FileHandler(attach.accepts, attach.take, _("Drop the files here to attach them to your message")),
        )

    def _bind_commands(self) -> None:
        controllers = (
            self.commands, self.palette_controller, self.navigation, self.pane_cycle, self.sidebar_controller,
            self.settings_controller, self.model_controller, self.chat,
            self.composer_controller, self.comparisons, self.prompts, self.notebooks, self.personas,
            self.participants, self.tools,
            self.temporary, self.local_only, self.context, self.reply_details, self.transfer, self.backups,
            self.data_folder, self.application_controller, self.preferences,
        )  # fmt: skip
        offers = [controller.commands() for controller in controllers]
        shown = {"sidebar": self.sidebar, "inspector": self.inspector, "tokens": self.chat.legend}
        self.commands.check(shown, pin=self.sidebar_controller.pinned)
        others = self.notebooks.run, self.comparisons.run
        self.commands.bind({"quit": self.close}, *offers, instead=lambda name: any(do(name) for do in others))

    def _add_tips(self) -> None:
        tip = self.commands.keymap.tip
        tip(self.top_bar.left, _("Chats"), "sidebar")
        tip(self.top_bar.right, _("Settings"), "inspector")
        tip(self.top_bar.temporary, _("New temporary chat, which is not saved"), "new_temporary")
        tip(self.chat.legend.buttons["off"], _("Turn off token colours"), "tokens")
        tip(self.sidebar.new, _("New chat"), "new_chat")
        tip(self.sidebar.new_folder, _("New folder"), "new_folder")
        tip(self.sidebar.query, _("Search titles and messages"), "search")
        tip(self.inspector.query, _("Search all settings"), "search_settings")

    def _connect(self) -> None:
        session, services, chat, sidebar = self.session, self.services, self.chat, self.sidebar
        listen(self, session.model_changed, lambda _model: self._show_model())
        listen(self, session.state_changed, lambda _state: self._show_model())
        session.conversation_changed.connect(sidebar.set_open)
        session.title_changed.connect(self._show_title)
        session.settings_changed.connect(self._show_settings)
        listen(self, session.library_changed, services.chat_list.load)
        listen(self, services.chat_list.folders_changed, session.follow_place)
        size = self.inspector.prompt_field.show_size
        listen(self, services.context_meter.changed, lambda found: size(found.system, found.about))
        listen(self, services.composer.attachments.changed, lambda _chat: self.context.draft_changed())
        sidebar.new_requested.connect(self.navigation.new_chat)
        sidebar.opened.connect(self.navigation.open_chat)
        sidebar.escaped.connect(self.navigation.write)
        self.sidebar_controller.hit_chosen.connect(self.navigation.leave_side)
        self.sidebar_controller.export_requested.connect(self.transfer.export)
        self.autosave.changed.connect(sidebar.set_drafts)
        self.autosave.begin()
        self.settings_controller.notice.connect(
            lambda text, level, undoable: chat.banner.show_notice(text, level, undo=undoable)
        )
        self.settings_controller.reload_requested.connect(self.model_controller.reload)
        chat.reload_requested.connect(self.model_controller.reload)
        chat.model_requested.connect(self.picker.showMenu)
        chat.details_requested.connect(self.reply_details.open)
        self.reply_details.notice.connect(chat.show_notice)
        self.comparisons.details_requested.connect(self.reply_details.open)
        self.comparisons.load_requested.connect(self.model_controller.load)
        self.top_bar.temporary.clicked.connect(self.navigation.new_temporary)
        self.top_bar.left.clicked.connect(lambda: self.panes.toggle(LEFT))
        self.top_bar.right.clicked.connect(lambda: self.panes.toggle(RIGHT))
        self.inspector.escaped.connect(self.navigation.write)
        self.panes.alone_changed.connect(self._show_alone)
        self.model_controller.notice.connect(chat.show_notice)
        self.model_controller.fetching.connect(self._show_fetching)
        self.model_controller.fetch_ended.connect(self._end_fetching)
        self.files.refused.connect(lambda sentence: chat.show_notice(sentence, "warning"))

    # -- what the session says

    def _show_model(self) -> None:
        model, opening = self.session.model, self.session.opening
        if opening:
            self.picker.show_loading(opening)
        else:
            self.picker.show_model(model.path if model else "", model.name if model else "")

    def _show_title(self, title: str) -> None:
        self.setWindowTitle(_("{title} – Inglenook", title=title) if title else "Inglenook")

    def _show_settings(self, cls: type[Settings]) -> None:
        if cls is Appearance:
            look = self.session.settings(Appearance)
            self.theme.apply(look.theme, look.text_scale, look.contrast)
            self.theme.motion.apply(look.motion)
            self.chat.transcript.set_text_scale(look.text_scale, self.theme.base_font)
            self.chat.transcript.unfold_thoughts(look.unfold_thoughts)
        if cls is Behaviour:
            self.chat.composer.set_send_with(self.session.settings(Behaviour).send_with)

    def _show_fetching(self, sentence: str, done: int, total: int) -> None:
        self.chat.status.show_progress(sentence, done, total)
        self.picker.show_fetching(True)
        self.actions_by_name["starter"].setText(_("Cancel the download"))

    def _end_fetching(self) -> None:
        self.chat.show_state(self.session.state)
        self.picker.show_fetching(False)
        self.actions_by_name["starter"].setText(starter_words())

    def _show_alone(self, side: str) -> None:
        self.sidebar.back.setVisible(side == LEFT)
        self.inspector.back.setVisible(side == RIGHT)

    def greet(self) -> None:
        """After the first paint: show what the last run has changed, and begin what waited for it."""
        self.data_folder.greet()
        self.services.updates.begin()

    def after_end(self, app: QApplication) -> int:
        """When everything is closed: move the data or start again, if that was asked for.

        Returns the exit code.
        """
        self.services.updates.restart_if_asked()
        return self.data_folder.move_if_asked(app)

    # -- files dropped onto the window

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if hint := self.files.hint(dropped_paths(event.mimeData())):
            event.acceptProposedAction()
            self.drop_hint.cover(hint)

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        self.drop_hint.hide()

    def dropEvent(self, event: QDropEvent) -> None:
        self.drop_hint.hide()
        if paths := dropped_paths(event.mimeData()):
            event.acceptProposedAction()
            self.files.open(paths)

    # -- the window itself

    def focusNextPrevChild(self, following: bool) -> bool:
        """Move the focus by Tab; controls of messages come and go, so they are put in order only now."""
        for transcript in self.findChildren(TranscriptView):
            transcript.pool.order_tabs(transcript)
        return super().focusNextPrevChild(following)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Esc that no other widget used: dismiss the notice, stop reading files, then clear the selection."""
        if event.key() != Qt.Key.Key_Escape:
            super().keyPressEvent(event)
        elif self.chat.banner.isVisible():
            self.chat.banner.hide()
        elif not self.services.composer.fitting.stop_ranking():
            self.chat.transcript.selection.clear()
            self.chat.transcript.selection.show()

    def closeEvent(self, event: QCloseEvent) -> None:
        """Remember the window's place, save and end everything; ask first if a reply would lose its end."""
        self.inspector.finish()
        self.autosave.save()
        if not self.close_guard.may_close():
            event.ignore()
            return
        self._leave()
        self._close_services()
        event.accept()

    def give_way(self) -> None:
        """Save what is typed, and go, for another window over the same services."""
        self.inspector.finish()
        self.autosave.save()
        self._leave()
        self.deleteLater()

    def _leave(self) -> None:
        self.sidebar_controller.close_folder()
        self.transfer.close_window()
        controllers = (self.notebooks, self.personas, self.model_controller, self.application_controller)
        for controller in (*controllers, self.preferences):
            controller.close()
        remember_places(self, self.panes, self._geometry)
        self.settings_controller.remember(self._geometry)
        self._geometry.sync()
        self.hide()
