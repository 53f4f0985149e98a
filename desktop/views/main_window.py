"""The window: places the views and connects them; what they do is theirs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QSettings, Qt
from PySide6.QtGui import QCloseEvent, QDragEnterEvent, QDragLeaveEvent, QDropEvent, QKeyEvent

from desktop.services.services import Services
from desktop.settings import Appearance, Behaviour
from desktop.views.commands.actions import add_menus
from desktop.views.commands.controller import CommandController
from desktop.views.layout.drop_overlay import dropped_paths
from desktop.views.layout.panes import LEFT, RIGHT
from desktop.views.models.model_picker import STARTER_WORDS
from desktop.views.widgets.theme import Theme
from desktop.views.window_parts import WindowParts
from engine.settings import Settings, setting_info

if TYPE_CHECKING:
    pass

__all__ = ["MainWindow"]


class MainWindow(WindowParts):
    """One window over one session.

    `geometry` keeps its place and panes; `close_services` ends everything behind it.
    """

    def __init__(
        self, services: Services, theme: Theme, geometry: QSettings, close_services: Callable[[], None]
    ) -> None:
        super().__init__(services, geometry)
        self.theme = theme
        self._close_services = close_services
        self.commands = CommandController(self)
        self.actions_by_name = self.notebooks.actions = add_menus(
            self, self._handlers() | self.commands.handlers()
        )
        self.commands.attach(self.actions_by_name)
        self._connect()
        for cls in (Appearance, Behaviour):
            self._show_settings(cls)
        self._restore_geometry()

    def _handlers(self) -> dict[str, Callable[[], Any]]:
        session, chat, models = self.session, self.chat, self.model_controller
        return self.notebooks.handlers({
            "new_chat": self.new_chat,
            "new_temporary": self.new_temporary,
            "keep": self.temporary.keep,
            "persona": self.personas.picker.open_menu,
            "personas": self.personas.manage,
            "roles": self.roles.open,
            "library": lambda: self.library.open(self),
            "open_file": models.ask_for_file,
            "open_folder": models.ask_for_folder,
            "starter": models.get_starter,
            "unload": models.unload,
            "reload": models.reload,
            "import_chats": self.exchange.ask_for_files,
            "export_chat": self.exchange.export_open,
            "export_all": self.exchange.export_all,
            "restore_backup": self.safety.open,
            "copy_chat": self.exchange.copy_chat,
            "quit": self.close,
            "copy_reply": chat.copy_last,
            "find": chat.transcript.finding.open,
            "search": self.search,
            "stop": session.stop,
            **self.writing.handlers(),
            "regenerate": chat.regenerate_last,
            "continue": chat.continue_last,
            "previous_variant": lambda: chat.step_variant(-1),
            "next_variant": lambda: chat.step_variant(1),
            "origin": lambda: self.origins.open_last(self),
            "rename": self.rename,
            "delete_chat": lambda: self.sidebar_controller.delete([session.conversation]),
            "new_folder": self._new_folder,
            "pin": self.sidebar_controller.toggle_pin,
            "trash": self._show_trash,
            "write": self.write,
            "sidebar": lambda: self.panes.toggle(LEFT),
            "inspector": lambda: self.panes.toggle(RIGHT),
            "tokens": chat.tokens.toggle,
            "figures": self.clarity.open_figures,
            "context": self.clarity.show_context,
            "larger": lambda: self.scale_text(10),
            "smaller": lambda: self.scale_text(-10),
            "normal": lambda: self.scale_text(0),
            "log": self.application_controller.show_log,
            "menu_entry": self.application_controller.show_menu_entry,
            "about": self._show_about,
        })  # fmt: skip

    def _show_about(self) -> None:
        from desktop.views.application.about_dialog import AboutDialog  # when it is first wanted

        AboutDialog(self).open()

    def _connect(self) -> None:
        session, sidebar, inspector = self.session, self.sidebar, self.inspector
        session.model_changed.connect(lambda _model: self._show_model())
        session.state_changed.connect(lambda _state: self._show_model())
        session.conversation_changed.connect(self._show_conversation)
        session.title_changed.connect(self._show_title)
        session.settings_changed.connect(self._show_settings)
        session.undo_available.connect(self._show_undo)
        sidebar.new_requested.connect(self.new_chat)
        sidebar.opened.connect(self.open_chat)
        self.sidebar_controller.hit_chosen.connect(self._leave_sidebar)
        sidebar.escaped.connect(self.write)
        self.settings_controller.notice.connect(self._show_notice)
        self.temporary.button.clicked.connect(self.new_temporary)
        self.unsent.begin()
        self.left_button.clicked.connect(lambda: self.panes.toggle(LEFT))
        self.right_button.clicked.connect(lambda: self.panes.toggle(RIGHT))
        inspector.escaped.connect(self.write)
        self.panes.alone_changed.connect(self._show_alone)
        self.chat.busy_changed.connect(self._show_busy)
        self.model_controller.connect_views(self.picker, self.chat.welcome)
        for view in (self.picker, self.chat.welcome):
            view.library_requested.connect(lambda: self.library.open(self))
        self.model_controller.notice.connect(self.chat.show_notice)
        self.model_controller.fetching.connect(self._show_fetching)
        self.model_controller.fetch_ended.connect(self._end_fetching)
        self.writing.begin(self)
        self._show_model()
        self._show_undo(False, "")
        self._show_busy(session.state not in ("no_model", "idle"))

    # -- what the session says

    def _show_model(self) -> None:
        model, opening = self.session.model, self.session.opening
        if opening:
            self.picker.show_loading(opening)
        else:
            self.picker.show_model(model.path if model else "", model.name if model else "")

    def _show_conversation(self, conversation: int) -> None:
        self.sidebar.set_open(conversation)
        self.actions_by_name["keep"].setEnabled(self.session.temporary)

    def _show_title(self, title: str) -> None:
        self.setWindowTitle(f"{title} – Inglenook" if title else "Inglenook")

    def _show_settings(self, cls: type[Settings]) -> None:
        if cls is Appearance:
            look = self.session.settings(Appearance)
            self.theme.apply(look.theme, look.text_scale)
            self.theme.motion.apply(look.motion)
            self.chat.transcript.set_text_scale(look.text_scale, self.theme.base_font)
            self.chat.transcript.unfold_thoughts(look.unfold_thoughts)
        if cls is Behaviour:
            self.chat.composer.set_send_with(self.session.settings(Behaviour).send_with)

    def _show_undo(self, available: bool, what: str) -> None:
        self.actions_by_name["undo"].setEnabled(available)
        self.actions_by_name["undo"].setText(f"Undo {what}" if what else "Undo delete")

    def _show_busy(self, busy: bool) -> None:
        # While nothing runs Esc belongs to whatever has the focus: it clears a selection or ends an edit.
        self.actions_by_name["stop"].setEnabled(busy)

    def _show_fetching(self, sentence: str, done: int, total: int) -> None:
        self.chat.status.show_progress(sentence, done, total)
        self.picker.show_fetching(True)
        self.actions_by_name["starter"].setText("Cancel the download")

    def _end_fetching(self) -> None:
        self.chat.show_state(self.session.state)
        self.picker.show_fetching(False)
        self.actions_by_name["starter"].setText(STARTER_WORDS)

    def _show_alone(self, side: str) -> None:
        self.sidebar.back.setVisible(side == LEFT)
        self.inspector.back.setVisible(side == RIGHT)

    # -- what the user does

    def new_chat(self) -> None:
        """Open an empty conversation, ready to write."""
        self.inspector.finish()
        self.unsent.save()
        self.session.new_conversation()
        self.write()

    def new_temporary(self) -> None:
        """Open an empty conversation of which nothing is saved, ready to write."""
        self.inspector.finish()
        self.session.new_temporary()
        self.write()

    def open_message(self, message: int) -> None:
        """Show a message that was found, in its conversation."""
        self._leave_sidebar()
        self.chat.open_message(message)

    def _leave_sidebar(self) -> None:
        self.inspector.finish()
        self.panes.leave_side()

    def _show_sidebar(self) -> None:
        if self.sidebar.isHidden():
            self.panes.toggle(LEFT)

    def _new_folder(self) -> None:
        self._show_sidebar()
        self.sidebar_controller.new_folder()

    def _show_trash(self) -> None:
        self._show_sidebar()
        self.sidebar_controller.show_trash()

    def rename(self) -> None:
        """Write another title for the open chat."""
        self._show_sidebar()
        self.sidebar.begin_rename(self.session.conversation)

    def search(self) -> None:
        """Put the cursor into the search box."""
        self._show_sidebar()
        self.sidebar.query.setFocus()
        self.sidebar.query.selectAll()

    def write(self) -> None:
        """Put the cursor into the message box."""
        self.panes.leave_side()
        page = self.notebooks.open_page
        (page.editor if page is not None else self.chat.composer).setFocus()

    def scale_text(self, step: int) -> None:
        """Text larger or smaller by `step` percent; 0 is the normal size."""
        field = next(field for field in dataclasses.fields(Appearance) if field.name == "text_scale")
        info, now = setting_info(field), self.session.settings(Appearance)
        scale = max(int(info.low or 0), min(int(info.high or 0), now.text_scale + step)) if step else 100
        self.session.set_settings(dataclasses.replace(now, text_scale=scale))

    def _show_notice(self, text: str, level: str, undoable: bool) -> None:
        self.chat.banner.show_notice(text, level, undo=undoable)

    # -- files dropped onto the window

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        words = self.files.words(dropped_paths(event.mimeData()))
        if words:
            event.acceptProposedAction()
            self.drop_hint.cover(words)

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        self.drop_hint.hide()

    def dropEvent(self, event: QDropEvent) -> None:
        self.drop_hint.hide()
        paths = dropped_paths(event.mimeData())
        if paths:
            event.acceptProposedAction()
            self.files.take(paths)

    # -- the window itself

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Esc that nothing else wanted: dismiss the notice, then clear the selection."""
        if event.key() != Qt.Key.Key_Escape:
            super().keyPressEvent(event)
        elif self.chat.banner.isVisible():
            self.chat.banner.hide()
        else:
            self.chat.transcript.selection.clear()
            self.chat.transcript.selection.show()

    def _restore_geometry(self) -> None:
        place = self._geometry.value("window")
        if place is None or not self.restoreGeometry(place):
            self.resize(1180, 780)
        sizes = self._geometry.value("panes")
        if sizes is not None:
            self.panes.restoreState(sizes)
        for side in (LEFT, RIGHT):
            self.panes.set_wanted(side, str(self._geometry.value(side, "true")) == "true")
        self.settings_controller.recall(self._geometry)

    def closeEvent(self, event: QCloseEvent) -> None:
        """Keep the window's place; stop, save and end what runs; where a reply would lose its end, ask
        first.
        """
        self.inspector.finish()
        self.unsent.save()
        if not self.leaving.may_close():
            event.ignore()
            return
        self.notebooks.close()
        self.folders.close()
        self.personas.close()
        self.library.close_window()
        self.exchange.close_window()
        self.application_controller.close()
        self._geometry.setValue("window", self.saveGeometry())
        self._geometry.setValue("panes", self.panes.saveState())
        for side in (LEFT, RIGHT):
            self._geometry.setValue(side, "true" if self.panes.wanted(side) else "false")
        self.settings_controller.remember(self._geometry)
        self._geometry.sync()
        self.hide()
        self._close_services()
        event.accept()
