"""Opens "What produced this reply" and connects it with the provenance, the hashes and the replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QWidget

from desktop.services.provenance.provenance import ProvenanceService, ReplyProvenance
from desktop.services.session.chat_session import ChatSession
from desktop.store.database.database import StoreError
from desktop.views.widgets.banner import announce
from engine.words import _, paragraph

if TYPE_CHECKING:
    from desktop.services.provenance.replay import Compared, Replay
    from desktop.views.chat.reply_details_dialog import ReplyDetailsDialog

__all__ = ["ReplyDetailsController"]


class ReplyDetailsController(QObject):
    """`open(message)` shows the dialog; `notice(sentence, level)` says why something failed."""

    notice = Signal(str, str)

    def __init__(self, session: ChatSession, provenance: ProvenanceService, window: QWidget) -> None:
        super().__init__(window)
        self._session, self._provenance, self._window = session, provenance, window
        self.dialog: ReplyDetailsDialog | None = None
        self._replay: Replay | None = None
        provenance.hashes.found.connect(self._on_hash)
        provenance.hashes.progress.connect(self._on_hashing)
        session.engine_changed.connect(self._look_again)
        session.model_changed.connect(self._look_again)

    def commands(self) -> dict[str, Callable[[], object]]:
        """The command that opens the details of the last reply."""
        return {"origin": self.open_last}

    def open_last(self) -> None:
        """Show the details of the last reply of the open chat."""
        replies = [item.id for item in self._session.messages.items() if item.role == "assistant"]
        if replies:
            self.open(replies[-1])
        else:
            self.notice.emit(_("This chat has no replies yet."), "info")

    def open(self, message: int) -> None:
        """Show the details of a reply."""
        try:
            reply = self._provenance.of(message)
        except StoreError as error:
            self.notice.emit(str(error), "error")
            return
        if self.dialog is not None:
            self.dialog.close()
        from desktop.views.chat.reply_details_dialog import ReplyDetailsDialog  # when it is first opened

        self.dialog = dialog = ReplyDetailsDialog(reply, self._window)
        dialog.replay_requested.connect(self._begin)
        dialog.stop_requested.connect(self._stop)
        dialog.copy_requested.connect(self._copy)
        dialog.finished.connect(self._closed)
        if reply.path and not reply.hash:
            being = self._provenance.compute_hash(reply)
            dialog.show_hash("computing…" if being else _("unknown: the files were removed or changed"))
        if reply.vision_path and not reply.vision_hash:
            self._provenance.compute_vision_hash(reply)
        self._look_again()
        dialog.open()

    def _reply(self) -> ReplyProvenance | None:
        return self.dialog.reply if self.dialog is not None else None

    @Slot()
    def _look_again(self) -> None:
        """Show whether a replay is possible, and what may make it differ."""
        reply, model = self._reply(), self._session.model
        if reply is None or self.dialog is None or self._replay is not None:
            return
        from desktop.services.provenance.replay import doubts, why_not  # with the dialog

        trouble = why_not(reply, model, self._session.busy)
        if trouble:
            self.dialog.show_replay(trouble, False)
            return
        provenance = self._provenance
        different = doubts(
            reply, model, self._session.loaded_with, provenance.identity_of_loaded(),
            provenance.vision_identity_of_loaded(),
        )  # fmt: skip
        ready = _(
            "The reply can be generated again from its exact prompt, settings and seed, and compared "
            "token by token."
        )
        self.dialog.show_replay(
            paragraph(_("The replay may differ."), *different) if different else ready, True
        )

    @Slot()
    def _begin(self) -> None:
        from desktop.services.provenance.replay import Replay, why_not

        reply, session = self._reply(), self._session
        if reply is None or self.dialog is None or self._replay is not None:
            return
        if why_not(reply, session.model, session.busy):
            return
        self._replay = Replay(session, reply, self)
        self._replay.progress.connect(self._on_progress)
        self._replay.ended.connect(self._on_ended)
        self.dialog.show_running(_("Starting"), 0, 0)

    @Slot()
    def _stop(self) -> None:
        if self._replay is not None:
            self._replay.stop()

    @Slot(str, int, int)
    def _on_progress(self, words: str, done: int, total: int) -> None:
        if self.dialog is not None:
            self.dialog.show_running(
                _("{words}, {done:,} of {total:,}", words=words, done=done, total=total), done, total
            )

    @Slot(object, str)
    def _on_ended(self, compared: Compared | None, sentence: str) -> None:
        replay, self._replay = self._replay, None
        if replay is not None:
            replay.deleteLater()
        if self.dialog is None:
            return
        if compared is None:
            self.dialog.show_replay(
                sentence or _("The replay was stopped."), True, "danger" if sentence else "muted"
            )
        else:
            self.dialog.show_replay(compared.sentence, True, "good" if compared.identical else "danger")
            announce(self.dialog, compared.sentence)

    @Slot()
    def _copy(self) -> None:
        from desktop.services.provenance.provenance_text import as_json

        reply = self._reply()
        if reply is not None and self.dialog is not None:
            QGuiApplication.clipboard().setText(as_json(reply))
            self.dialog.copy.setText(_("Copied"))

    @Slot(str, str)
    def _on_hash(self, path: str, found: str) -> None:
        reply = self._reply()
        if reply is None or self.dialog is None or path not in (reply.path, reply.vision_path):
            return
        fresh = self._provenance.of(reply.message.id)
        self.dialog.reply = fresh
        self.dialog.show_vision()
        if path == reply.path and not reply.hash:
            self.dialog.show_hash(fresh.hash or _("unknown: the files could not be read or have changed"))

    @Slot(str, object, object)
    def _on_hashing(self, path: str, done: int, total: int) -> None:
        reply = self._reply()
        if reply is not None and self.dialog is not None and reply.path == path and not reply.hash and total:
            self.dialog.show_hash(_("computing, {done} %", done=100 * done // total))

    @Slot()
    def _closed(self) -> None:
        self._stop()
        self.dialog = None
