"""The signals of a chat session, and how its parts report errors of the store."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from PySide6.QtCore import QObject, Signal

from desktop.store.database.database import StoreError

__all__ = ["SessionSignals", "reports_store_errors"]


class SessionSignals(QObject):
    """What `ChatSession` tells the window; its parts emit them.

    `error_details` has the report of the last error; `reload_offered`: with the next notice of an error the
    user is offered to load the model again; `choice_offered`: to choose one. Whoever shows the notice clears
    them.

    Signals:
        notice(str sentence, str level): "info", "warning" or "error".
        settings_changed(object): a settings class whose effective values changed in the open chat.
        prompt_changed(object): the `Prompt` of the open chat.
        persona_changed(object): its `Persona`, or None.
        cast_changed(): its participants, one of their names, or the name that the user writes as changed.
        stats_changed(object, str reason): the `Stats` (or None) of its latest reply.
        running_changed(object): the `Stats` so far of the reply that runs in it, a few times a second.
        avoided(int count, str text): a banned text was taken back, for the `count`-th time in that reply.
        conversation_changed(int): another chat is open.
        title_changed(str): the open chat's title.
        undo_available(bool, str what)
        library_changed(): chats and folders were changed by something else than this session.
        state_changed(str): one of `engine_controller.STATES`, as it is for the open chat.
        engine_changed(): the state of the engine, or of any chat, is another one.
        became_free(): a chat in which no reply runs can begin one, as something else has ended.
        model_refused(str sentence): the model is on a server and the open chat stays on this computer, or the
            file of the last model is gone.
        local_only_changed(bool): whether the open chat stays on this computer.
        draft_refused(str sentence): the chosen draft model cannot draft for the loaded one.
        reply_ended(int conversation, int message, bool stopped): a reply has ended and is saved; the state
            there is not yet "idle". `stopped`: it was asked to end, even if it was complete by then.
        stopped(int conversation): the user has stopped what runs in a chat.
        file_replaced(): another file has taken the place of that with the chats: their numbers mean others.
        document_shown(): another notebook is open, or its document was changed by something else than its
            page.
        progress(str stage, int done, int total): of loading and of reading the open chat's prompt; total 0
            is unknown.
        model_changed(object): the `ModelInfo` of the loaded model, or None.
        adapted_changed(): `ChatSession.adapted` may be another.
    """

    notice = Signal(str, str)
    settings_changed = Signal(object)
    prompt_changed = Signal(object)
    persona_changed = Signal(object)
    cast_changed = Signal()
    stats_changed = Signal(object, str)
    running_changed = Signal(object)
    avoided = Signal(int, str)
    conversation_changed = Signal(int)
    title_changed = Signal(str)
    undo_available = Signal(bool, str)
    library_changed = Signal()
    state_changed = Signal(str)
    engine_changed = Signal()
    became_free = Signal()
    draft_refused = Signal(str)
    model_refused = Signal(str)
    local_only_changed = Signal(bool)
    reply_ended = Signal(int, int, bool)
    stopped = Signal(int)
    file_replaced = Signal()
    document_shown = Signal()
    progress = Signal(str, int, int)
    model_changed = Signal(object)
    adapted_changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.error_details = ""
        self.reload_offered = self.choice_offered = False

    def report_error(
        self, sentence: str, details: str, offer_reload: bool = False, offer_choice: bool = False
    ) -> None:
        """Emit a notice of an error, with its details and an offer at hand."""
        self.error_details, self.reload_offered, self.choice_offered = details, offer_reload, offer_choice
        self.notice.emit(sentence, "error")


class _Part(Protocol):
    _signals: SessionSignals


P = ParamSpec("P")
Q = TypeVar("Q", bound=_Part)


def reports_store_errors(method: Callable[Concatenate[Q, P], bool]) -> Callable[Concatenate[Q, P], bool]:
    """Turn a `StoreError` of a part's method into a notice; the method returns False then."""

    @functools.wraps(method)
    def wrapper(self: Q, /, *args: P.args, **kwargs: P.kwargs) -> bool:
        try:
            return method(self, *args, **kwargs)
        except StoreError as error:
            self._signals.notice.emit(str(error), "error")
            return False

    return wrapper
