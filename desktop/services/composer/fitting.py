"""Prompts that are too long: measured, and shortened by their files or their message."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QObject, Signal

from desktop.services.composer.attachments import AttachmentService
from desktop.services.composer.fit_to_context import fitted, shortened, size_of
from desktop.services.composer.meaning import MeaningService
from desktop.services.session.chat_session import ChatSession
from desktop.services.session.context import is_temporary
from desktop.store.attachments.message_format import Attachment
from desktop.store.database.database import StoreError
from engine.words import _

__all__ = ["FittingService"]


class FittingService(QObject):
    """Makes the next message of the open chat fit into the context; what it cannot do, `attachments` refuses.

    Signals:
        sized(object size): the `PromptSize` for `check`; None if it is not known.
        fitted(int conversation, object files): its files were shortened to fit; those before that, whole.
        ranking(int percent): how much is read to find passages by meaning; -1 at the end.
        shortened(int conversation, str text): the beginning of a message that fits.
    """

    sized = Signal(object)
    fitted = Signal(int, object)
    shortened = Signal(int, str)
    ranking = Signal(int)

    def __init__(
        self,
        session: ChatSession,
        attachments: AttachmentService,
        meaning: MeaningService | None = None,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._session, self._attachments, self.meaning = session, attachments, meaning
        self.by_meaning = False
        """Whether the passages that were kept last match by meaning, too."""
        session.conversation_changed.connect(lambda _conversation: self.stop_ranking())

    def check(self, message: str, opening: str) -> bool:
        """Measure the prompt with `message`; emits `sized`. False if that is not possible."""
        try:
            request = self._session.preview_request(message, opening)
        except StoreError:
            return False
        self._session.ask(size_of(request), self.sized.emit)
        return True

    def fit(self, message: str, own: str, opening: str, *, by_match: bool = False) -> None:
        """Shorten the open chat's files so that `message`, made of them and the user's `own` words, fits: to
        their beginnings, or to the passages that match these words; emits `fitted`. Files that were shortened
        before are shortened again from what they were. With an embedding model, passages match by words and
        meaning.
        """
        conversation = self._session.conversation
        try:
            request = self._session.preview_request(message, opening)
        except StoreError as error:
            self._attachments.refused.emit(str(error))
            return
        keys, files = self._attachments.keys(conversation), self._attachments.whole(conversation)

        def answered(shorter: Sequence[Attachment] | None) -> None:
            if shorter is not None and keys == self._attachments.keys(conversation):
                self._attachments.put(shorter, conversation, files)
                self.fitted.emit(conversation, files)

        def fit(orders: tuple[tuple[int, ...], ...] = (), sentence: str = "") -> None:
            self.ranking.emit(-1)
            self.by_meaning = bool(orders)
            if sentence:
                self._attachments.refused.emit(
                    _("{problem} The passages were chosen by their words only.", problem=sentence)
                )
            if keys == self._attachments.keys(conversation):
                self._session.ask(fitted(request, files, own, by_match=by_match, meaning=orders), answered)

        meaning = self.meaning
        if not by_match or meaning is None:
            fit()
            return

        def rank() -> None:
            if (model := meaning.model()) is None:
                fit()
            else:
                keep = not is_temporary(conversation)
                meaning.rank(model, files, own, keep, self.ranking.emit, fit)

        meaning.when_known(rank)
        if meaning.running:
            self.ranking.emit(0)

    def shorten(self, message: str, opening: str) -> None:
        """Find how much of a message without files fits; emits `shortened`."""
        try:
            request = self._session.preview_request(message, opening)
        except StoreError as error:
            self._attachments.refused.emit(str(error))
            return
        conversation = self._session.conversation

        def answered(shorter: str | None) -> None:
            if shorter is not None:
                self.shortened.emit(conversation, shorter)

        self._session.ask(shortened(request), answered)

    def stop_ranking(self) -> bool:
        """Stop reading files to find passages by meaning, and leave them as they are; False if none were."""
        if self.meaning is None or not self.meaning.running:
            return False
        self.meaning.stop()
        self.ranking.emit(-1)
        return True
