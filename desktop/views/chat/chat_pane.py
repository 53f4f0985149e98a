"""The centre of the window: the transcript, notices, the composer and the status line, wired to the
session.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from desktop.services.engine.reply_record import avoided_text
from desktop.services.session.branching import branch_trouble
from desktop.services.session.chat_session import ChatSession
from desktop.services.session.context_meter import ContextMeter
from desktop.services.system import speech
from desktop.views.chat.announcer import REPLYING, Announcer
from desktop.views.chat.message_commands import MessageCommands
from desktop.views.chat.other_versions import OtherVersions
from desktop.views.chat.read_aloud import ReadAloud
from desktop.views.chat.status_bar import StatusBar
from desktop.views.chat.thought_tags import keep_thought_tags
from desktop.views.chat.token_controller import TokenController
from desktop.views.chat.token_legend import TokenLegend
from desktop.views.chat.welcome_page import BASE_MODEL, WelcomePage
from desktop.views.composer.autosave import saved_draft
from desktop.views.composer.composer import COLUMN_WIDTH, Composer
from desktop.views.layout.fill import fill
from desktop.views.transcript import TranscriptView
from desktop.views.transcript.commands import ALL_ACTIONS
from desktop.views.widgets.banner import Banner
from desktop.views.widgets.listening import listen
from desktop.views.widgets.text_label import set_styled
from engine.core import ModelInfo, Stats
from engine.settings import Settings, SpeculationSettings
from engine.words import N_, _, translate

__all__ = ["ChatPane"]

SWITCH_OFF = N_("Turn off drafting")
RELOAD = N_("Reload the model")
NOTEBOOK = N_("New notebook")
CHOOSE = N_("Choose a model")


class ChatPane(QWidget):
    """Shows and drives the open conversation of `session`.

    `header` is put at the top. `details_requested(message)`: the user asks for the details of a reply.
    `reload_requested()`: the user wants to load the model again; `model_requested()`: to choose another one.
    """

    details_requested = Signal(int)
    reload_requested = Signal()
    model_requested = Signal()

    def __init__(self, session: ChatSession, meter: ContextMeter, header: QWidget) -> None:
        super().__init__()
        self._session = session
        self._offers_reload = False
        self._explained_base = False  # of the loaded model
        self._busy = False  # a reply runs in the open chat
        reader = speech.find_speech_program()
        self.transcript = TranscriptView(
            session.messages,
            meter.edit_words,
            lambda trace: branch_trouble(session.model, session.state, trace),
            ALL_ACTIONS | {"speak"} if reader is not None else ALL_ACTIONS,
        )
        self.read_aloud = ReadAloud(session, self.transcript, reader)
        self.announcer = Announcer(session, self.transcript)
        self.legend = TokenLegend()
        self.tokens = TokenController(session, self.transcript, self.legend, self)
        self.welcome = WelcomePage()
        self.transcript.set_empty_widget(self.welcome)
        self.transcript.setMinimumHeight(1)  # a low window takes the room from here, not from what is written
        self.banner = Banner()
        self.banner.setMaximumWidth(COLUMN_WIDTH)
        self.composer = Composer(lambda conversation: saved_draft(session, conversation))
        self.status = StatusBar()
        self.message_commands = MessageCommands(
            session, self.transcript, self.read_aloud, self.composer, self.banner,
            self.details_requested.emit, self,
        )  # fmt: skip
        OtherVersions(session, self.transcript, self)
        self._header = header
        self.transcript.installEventFilter(self)
        self._arrange(header)
        self._connect()
        self.show_state(session.state)
        self.show_model()

    def _arrange(self, header: QWidget) -> None:
        strip = fill(QHBoxLayout(), 1, (self.banner, 1000), 1, margins=(14, 0, 14, 0))
        self._column = fill(
            QVBoxLayout(self),
            header,
            self.legend,
            self.read_aloud,
            (self.transcript, 1),
            strip,
            self.composer,
            self.status,
            margins=(0, 0, 0, 0),
            spacing=0,
        )

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Show above the transcript that it has the focus: it has no frame. Text typed there is written in
        the message box.
        """
        if event.type() in (QEvent.Type.FocusIn, QEvent.Type.FocusOut):
            set_styled(self._header, "below", "focused" if event.type() == QEvent.Type.FocusIn else "")
        return isinstance(event, QKeyEvent) and self.composer.take_key(event)

    def add_page(self, page: QWidget) -> None:
        """Add `page`, hidden, where it can replace the transcript."""
        page.hide()
        self._column.insertWidget(self._column.indexOf(self.transcript), page, 1)

    def add_strip(self, strip: QWidget) -> None:
        """Put `strip` below the header."""
        self._column.insertWidget(1, strip)

    def _connect(self) -> None:
        session = self._session
        session.state_changed.connect(self.show_state)
        session.progress.connect(self._show_progress)
        session.stats_changed.connect(self.status.show_stats)
        session.running_changed.connect(self._show_running)
        session.avoided.connect(self._show_avoided)
        session.settings_changed.connect(self._settings_changed)
        session.draft_refused.connect(self._show_refused_draft)
        session.model_refused.connect(self.offer_models)
        session.model_changed.connect(self._model_came)
        keep_thought_tags(session, self.transcript)
        listen(self, session.local_only_changed, lambda _pinned: self.show_model())
        session.conversation_changed.connect(self._show_conversation)
        session.notice.connect(self.show_notice)
        session.undo_available.connect(self._undo_changed)
        self.banner.undo_requested.connect(session.undo)
        self.composer.stop_requested.connect(session.stop)
        listen(self, self.read_aloud.failed, lambda sentence: self.show_notice(sentence, "warning"))
        self.welcome.example_chosen.connect(self._take_example)
        self.welcome.notebook_requested.connect(session.new_notebook)

    # -- what the session says

    def show_state(self, state: str) -> None:
        """Show what the engine is doing for the open chat."""
        busy = state in REPLYING
        refused_in, sentence = self._session.refused
        if state != refused_in and sentence:
            self.banner.hide_text(sentence)  # its text is outdated
        self.composer.set_answering(busy)
        begins, self._busy = busy and not self._busy, busy
        if begins and state != "stopping":
            self.status.show_stats(None, "")  # the figures of the last reply
        if state in ("no_model", "idle", "waiting", "answering", "stopping"):
            words = {
                "no_model": _("No model loaded"),
                "idle": self._ready(),
                "waiting": _("Waiting for other replies"),
                "answering": _("Answering"),
                "stopping": _("Stopping"),
            }[state]
            avoided = avoided_text(self._session.avoided_count) if busy else ""
            self.status.show_state(f"{words}, {avoided}" if avoided else words)
        else:
            self.status.show_progress(
                {"loading": _("Loading the model"), "prefill": _("Reading the prompt")}[state], 0, 0
            )
        if state == "loading":
            self.welcome.show_loading(_("Starting"), 0, 0)
        elif state in ("no_model", "idle"):
            self.show_model()

    def _ready(self) -> str:
        """With the GPUs that the model is on."""
        where = self._session.model.where if self._session.model is not None else ""
        return _("Ready on {where}", where=where) if where else _("Ready")

    def _model_came(self, model: ModelInfo | None) -> None:
        if model is not None and self._offers_reload:
            self.banner.hide_offer(translate(RELOAD))
            self._offers_reload = False
        self.banner.hide_offer(translate(NOTEBOOK))
        self.banner.hide_offer(translate(CHOOSE))
        self._explained_base = False
        self.show_model()
        self._explain_base_model()

    def _explain_base_model(self) -> None:
        """Say once for each loaded base model what it is good for, unless the empty page does."""
        session = self._session
        if session.notebook or not session.messages.rowCount():
            self.banner.hide_offer(translate(NOTEBOOK))
            return
        if self._explained_base or not session.base_model:
            return
        self._explained_base = True
        self.banner.show_notice(BASE_MODEL, "warning", offer=(translate(NOTEBOOK), session.new_notebook))

    def _show_running(self, stats: Stats) -> None:
        self.status.show_stats(stats, "")

    def _show_avoided(self, count: int, text: str) -> None:
        if self._session.state == "answering":
            self.show_state("answering")

    def _show_refused_draft(self, sentence: str) -> None:
        self.banner.show_notice(
            sentence, "warning", offer=(translate(SWITCH_OFF), self._session.switch_drafting_off)
        )

    def offer_models(self, sentence: str) -> None:
        """Show a notice about a model that cannot be used, with the offer to choose another one."""
        self.banner.show_notice(sentence, "warning", offer=(translate(CHOOSE), self.model_requested.emit))

    def _settings_changed(self, cls: type[Settings]) -> None:
        if cls is SpeculationSettings:
            self.banner.hide_offer(translate(SWITCH_OFF))

    def _show_progress(self, stage: str, done: int, total: int) -> None:
        if self._session.state in ("waiting", "answering", "stopping"):
            return  # of one of several replies
        counted = (
            _("{stage}, {done:,} of {total:,}", stage=stage, done=done, total=total)
            if self._session.state == "prefill" and total
            else stage
        )
        self.status.show_progress(counted, done, total)
        if self._session.state == "loading":
            self.welcome.show_loading(stage, done, total)

    def show_model(self) -> None:
        """Let the empty page show whether a model is loaded, and which."""
        model = self._session.model
        if model is not None:
            self.welcome.show_ready(
                model.name, self._session.base_model, model.host, self._session.local_only
            )
        elif self._session.state != "loading":
            self.welcome.show_first_run()

    def _show_conversation(self, conversation: int) -> None:
        self.composer.switch_conversation(conversation)
        self._busy = self._session.state in REPLYING
        self.show_state(self._session.state)
        self._explain_base_model()
        if self.isVisible():
            self.composer.setFocus()

    def show_notice(self, text: str, level: str) -> None:
        """Show a notice of the session, once with the details of a bug, the offer to load the model again, or
        to choose the one that is missing.
        """
        session = self._session
        if session.refused == ("no_model", text):
            self.offer_models(text)
            return
        details, session.error_details = (session.error_details if level != "info" else ""), ""
        self._offers_reload, session.reload_offered = level == "error" and session.reload_offered, False
        chooses, session.choice_offered = level == "error" and session.choice_offered, False
        offer = (translate(RELOAD), self.reload_requested.emit) if self._offers_reload else None
        if chooses:
            offer = (translate(CHOOSE), self.model_requested.emit)
        self.banner.show_notice(text, level, details=details, offer=offer)

    def _undo_changed(self, available: bool, _what: str) -> None:
        if not available:
            self.banner.hide_undo()

    # -- what the user does

    def commands(self) -> dict[str, Callable[[], object]]:
        """The commands about the open chat's messages."""
        return {**self.message_commands.commands(), "tokens": self.tokens.toggle}

    def _take_example(self, text: str) -> None:
        self.composer.set_text(text)
        self.composer.setFocus()
