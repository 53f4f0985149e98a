"""The calls of tools in a chat: from a reply that makes them to the next reply, which reads their results.

Each call of a reply becomes a message below it. Calls that need it wait for the user; the others run at once,
side by side. When the last one has ended, the next reply begins below them, unless the user has turned to
another version meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol

from PySide6.QtCore import QObject, Signal, SignalInstance, Slot

from desktop.services.engine.reply_runner import ReplyRunner
from desktop.services.session.context import ConversationContext, is_temporary
from desktop.services.session.signals import SessionSignals, reports_store_errors
from desktop.services.session.visible_chat import VisibleChat
from desktop.settings import ToolSettings
from desktop.store.conversations.records import StoredMessage
from desktop.store.conversations.stores import ConversationStores
from desktop.store.conversations.tool_calls import NOT_ALLOWED, UNFINISHED, StoredCall, put_call
from desktop.store.database.database import StoreError
from engine.core import Tool, ToolCall
from engine.printable import one_line
from engine.words import _

__all__ = ["MOST_ROUNDS", "ToolSource", "ToolTurns"]

MOST_ROUNDS = 25
"""Replies to one message that may call tools; the calls of further ones wait for the user, whatever is
allowed: a small model may never stop by itself.
"""
_UNKNOWN = 'There is no tool called "{name}".'
"""A result that the model reads, in every language of the window."""


class _OfServer(Protocol):
    @property
    def server(self) -> str:
        """The server's name."""

    @property
    def tool(self) -> str:
        """The tool's own name there."""


class ToolSource(Protocol):
    """What runs tools: `ToolService`, or a stand-in of a test."""

    @property
    def changed(self) -> SignalInstance:
        """The tools may be others."""

    @property
    def ended(self) -> SignalInstance:
        """(int number, str result, bool error) of a call."""

    def offered(
        self, off: Collection[str] = (), local_only: bool = False
    ) -> Sequence[tuple[Tool, _OfServer]]:
        """The tools as the model may call them, without those of the servers that are `off`."""

    def permission(self, server: str, tool: str) -> str:
        """ "ask", "always" or "never"."""

    def set_permission(self, server: str, tool: str, value: str) -> None:
        """Allow a tool's calls in all chats, or have them asked for."""

    def call(self, server: str, tool: str, arguments: str) -> int:
        """Begin a call; its number."""

    def cancel(self, number: int) -> None:
        """End a call; it has no result then."""


class _Run(NamedTuple):
    """A call that runs, by its message."""

    chat: int
    message: int


class ToolTurns(QObject):
    """Offers tools to replies, and runs what they call.

    Signals:
        changed(int conversation): calls of a chat wait, run or have ended.
        offer_changed(): the open chat has other tools.
    """

    changed = Signal(int)
    offer_changed = Signal()

    def __init__(
        self,
        signals: SessionSignals,
        stores: ConversationStores,
        runner: ReplyRunner,
        visible: VisibleChat,
        go_on: Callable[[int, StoredMessage], bool],
    ) -> None:
        super().__init__(signals)
        self._signals, self._stores, self._runner, self._visible = signals, stores, runner, visible
        self._go_on = go_on
        self._source: ToolSource | None = None
        self._offer: tuple[Tool, ...] = ()
        self._running: dict[int, _Run] = {}
        self._due: dict[int, StoredMessage] = {}  # by chat, the last message of a round
        runner.called.connect(self._on_called)
        runner.engine.became_free.connect(self._on_free)

    def use(self, source: ToolSource) -> None:
        """Take tools from `source`."""
        self._source = source
        source.ended.connect(self._on_result)
        source.changed.connect(self._look_at_offer)
        self._signals.settings_changed.connect(self._look_at_offer)

    def offered(self, context: ConversationContext) -> tuple[Tool, ...]:
        """The tools for the replies of a chat: none in notebooks and where several participants speak."""
        return tuple(tool for tool, _unused in self._found(context))

    def offered_here(self) -> tuple[Tool, ...]:
        """The tools for the replies of the open chat."""
        return self.offered(self._visible.context)

    @Slot()
    def _look_at_offer(self, *_unused: object) -> None:
        offer = self.offered_here()
        if offer != self._offer:
            self._offer = offer
            self.offer_changed.emit()

    def _found(self, context: ConversationContext) -> Sequence[tuple[Tool, _OfServer]]:
        model = self._runner.engine.model
        if self._source is None or context.is_notebook or context.participants:
            return ()
        if model is not None and model.why_not("tools"):
            return ()
        return self._source.offered(context.layers.settings(ToolSettings).off, context.local_only)

    # -- what the user says

    @reports_store_errors
    def allow(self, message_id: int, always: bool = False) -> bool:
        """Run a call that waits; with `always`, later ones of this tool need not be asked for."""
        store = self._stores.of(message_id)
        message = store.message(message_id)
        call = message.call
        if call is None or not call.waiting or self._source is None:
            return False
        places = [place for _unused, place in self._found(self._visible.read(message.conversation_id))]
        if (call.server, call.tool) not in [(place.server, place.tool) for place in places]:
            # its server is off or does not run, or is on another computer, and the chat stays on this one
            words = _(
                "{tool} is not offered in this chat now. Look at File > Tools.", tool=one_line(call.name)
            )
            self._signals.notice.emit(words, "warning")
            return False
        if always:
            self._source.set_permission(call.server, call.tool, "always")
        self._run(message, call._replace(waiting=False))
        return self._show(message.conversation_id)

    @reports_store_errors
    def refuse(self, message_id: int) -> bool:
        """Do not run a call that waits; the model is told, and goes on when no other call waits."""
        message = self._stores.of(message_id).message(message_id)
        if message.call is None or not message.call.waiting:
            return False
        self._end(message, NOT_ALLOWED, "stopped")
        return self._next(message)

    @reports_store_errors
    def stop(self, chat: int) -> bool:
        """End the calls of a chat that run; no reply follows them. False if none runs."""
        return self._stop([number for number, run in self._running.items() if run.chat == chat], chat)

    def stop_below(self, message_id: int) -> None:
        """End the calls that run in a message or below it, before it is deleted. Raises `StoreError`."""
        store = self._stores.of(message_id)
        running = [
            (number, run) for number, run in self._running.items() if store is self._stores.of(run.message)
        ]
        found = [number for number, run in running if message_id in store.ancestry(run.message)]
        self._stop(found, store.message(message_id).conversation_id)

    def _stop(self, numbers: Sequence[int], chat: int) -> bool:
        for number in numbers:
            run = self._running.pop(number)
            if self._source is not None:
                self._source.cancel(number)
            self._end(self._stores.of(run.message).message(run.message), UNFINISHED, "stopped")
        if numbers:
            self._show(chat)
        return bool(numbers)

    def settle(self, context: ConversationContext) -> None:
        """End all calls of the shown path, before something else than their results follows. Raises
        `StoreError`.
        """
        self.stop(context.id)
        for message in context.path():
            if message.call is not None and message.call.waiting:
                self._end(message, NOT_ALLOWED, "stopped")

    @property
    def conversations(self) -> frozenset[int]:
        """The chats in which calls run."""
        return frozenset(run.chat for run in self._running.values())

    def running_in(self, chat: int) -> bool:
        """Whether calls of a chat run."""
        return any(run.chat == chat for run in self._running.values())

    def pending_in(self, chat: int) -> bool:
        """Whether calls of a chat wait or run, or their results are still to be read. Raises `StoreError`."""
        if chat in self._due or self.running_in(chat):
            return True
        return self.waiting_in(chat)

    def waiting_in(self, chat: int) -> bool:
        """Whether calls of a chat wait for the user. Raises `StoreError`."""
        return any(each.call is not None and each.call.waiting for each in self._stores.of(chat).path(chat))

    # -- what replies and tools say

    @Slot(int, int, object)
    @reports_store_errors
    def _on_called(self, chat: int, message_id: int, calls: tuple[ToolCall, ...]) -> bool:
        """A reply has ended with calls: make a message of each, and run those that may."""
        context = self._visible.context if chat == self._visible.id else self._visible.read(chat)
        known = {tool.name: place for tool, place in self._found(context)}
        above = context.store.path_to(message_id)
        rounds = 0
        for message in reversed(above):
            if message.role == "user":
                break
            rounds += message.role == "assistant"
        parent, made = message_id, list[StoredMessage]()
        for each in calls:
            place = known.get(each.name)
            server, tool = (place.server, place.tool) if place is not None else ("", "")
            call = StoredCall(each.id, each.name, each.arguments, server, tool, place is not None)
            text = "" if place is not None else _UNKNOWN.format(name=each.name)
            state = "stopped" if place is not None else "failed"
            made.append(context.store.add_message(chat, parent, "tool", text, state, call=call))
            parent = made[-1].id
        if rounds > MOST_ROUNDS:
            return self._show(chat)
        for message in made:
            self._run_if_allowed(message)
        return self._next(made[-1])

    def _run_if_allowed(self, message: StoredMessage) -> None:
        call = message.call
        if call is None or not call.waiting or self._source is None:
            return
        if self._source.permission(call.server, call.tool) == "always":
            self._run(message, call._replace(waiting=False))

    def _run(self, message: StoredMessage, call: StoredCall) -> None:
        assert self._source is not None
        put_call(self._stores.database_of(message.id), message.id, call, "running")
        number = self._source.call(call.server, call.tool, call.arguments)
        self._running[number] = _Run(message.conversation_id, message.id)

    @Slot(int, str, bool)
    @reports_store_errors
    def _on_result(self, number: int, result: str, error: bool) -> bool:
        run = self._running.pop(number, None)
        if run is None:  # stopped meanwhile
            return False
        try:
            message = self._stores.of(run.message).message(run.message)
        except StoreError:
            if is_temporary(run.message):  # its chat was left
                return False
            raise
        self._end(message, result, "failed" if error else "complete")
        return self._next(message)

    def _end(self, message: StoredMessage, result: str, state: str) -> None:
        call = message.call
        assert call is not None
        if call.waiting:
            put_call(
                self._stores.database_of(message.id), message.id, call._replace(waiting=False), message.state
            )
        self._stores.of(message.id).finish(message.id, result, state, {})

    def _show(self, chat: int) -> bool:
        self._visible.refresh(chat)
        self.changed.emit(chat)
        return True

    def _next(self, message: StoredMessage) -> bool:
        """Show what has changed, and begin the reply to a round's results if that is due."""
        last = self._last_of_round(message)
        if last is not None:
            self._due[message.conversation_id] = last
            self._read_results()
        return self._show(message.conversation_id)

    def _last_of_round(self, message: StoredMessage) -> StoredMessage | None:
        """The last message of its round, if the round is shown, nothing follows it, and all calls of it have
        ended.
        """
        path = self._stores.of(message.id).path(message.conversation_id)
        ids = [each.id for each in path]
        if message.id not in ids:
            return None
        last = ids.index(message.id)
        while last + 1 < len(path) and path[last + 1].call is not None:
            last += 1
        if last + 1 < len(path):
            return None
        while last >= 0 and (call := path[last].call) is not None:
            if call.waiting or path[last].state == "running":
                return None
            last -= 1
        return path[-1]

    @Slot()
    def _on_free(self) -> None:
        self._read_results()

    @reports_store_errors
    def _read_results(self) -> bool:
        """Begin the replies that are due, in the chats that are free for one."""
        state_in = self._runner.engine.state_in
        free = [chat for chat in self._due if state_in(chat) in ("idle", "no_model", "loading")]
        begun = [self._go_on(chat, self._due.pop(chat)) for chat in free]
        return any(begun)
