"""Several replies to one message, side by side: written with other seeds, settings, personas or models, or
versions that exist already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot

from desktop.items.models.local_models import model_name
from desktop.services.comparison.columns import (
    FEWEST,
    MOST,
    Column,
    Comparison,
    model_of,
    seeds,
    version_label,
)
from desktop.services.session.chat_session import ChatSession
from desktop.services.session.several import ColumnSettings
from desktop.store.conversations.participants import UNNAMED, Author
from desktop.store.database.database import StoreError
from engine.core import ModelInfo
from engine.remote import split_address
from engine.settings import SamplerSettings
from engine.words import N_, _, translate

_OTHER_MODEL = N_("Not generated: another model was loaded.")
_NO_MODEL = N_("Not generated: the model was unloaded.")


class ComparisonService(QObject):
    """At most one comparison for each chat, until it is closed. Columns for the loaded model are written at
    the same time; then the next model is loaded, as soon as no reply runs in any chat.

    Signals:
        opened(int conversation): it has a comparison now, or another one.
        changed(int conversation): a column was begun, or waits for something else.
        closed(int conversation)
    """

    opened = Signal(int)
    changed = Signal(int)
    closed = Signal(int)

    def __init__(self, session: ChatSession, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session, self._engine = session, session.replies.engine
        self._open: dict[int, Comparison] = {}
        self._loading = ""
        session.stopped.connect(self._on_stopped)
        session.file_replaced.connect(self._on_file_replaced)
        session.became_free.connect(self._go_on)
        session.engine_changed.connect(self._on_engine)
        session.model_changed.connect(self._on_model)
        self._engine.load_failed.connect(self._on_load_failed)

    def of(self, conversation: int) -> Comparison | None:
        """The comparison of a chat, if one is open."""
        return self._open.get(conversation)

    # -- beginning

    def write_several(self, message: int, count: int) -> bool:
        """Another `count` replies to a message of the open chat, or to the one that a reply answers, with the
        same settings and different seeds.
        """
        settings = self.seeded(count)
        return bool(settings) and self.begin(message, settings)

    def seeded(self, count: int) -> list[ColumnSettings]:
        """The settings of `count` replies with different seeds; none, with a notice, where a seed changes
        nothing.
        """
        sampler = self._session.settings(SamplerSettings)
        if sampler.temperature == 0 or sampler.top_k == 1:
            self._session.notice.emit(
                _(
                    "With these settings the most likely token is always chosen, so all replies would be "
                    "the same. Raise the temperature or Top K first, or compare other settings."
                ),
                "warning",
            )
            return []
        drawn = seeds(sampler.seed, min(max(count, FEWEST), MOST))
        return [ColumnSettings(seed=seed, label=_("Seed {seed}", seed=seed)) for seed in drawn]

    def submit(self, text: str, settings: Sequence[ColumnSettings]) -> bool:
        """Send a message in the open chat and have several replies to it written; False if it is not sent."""
        message = self._session.several.add_message(text)
        if message:
            self.begin(message, settings)
        return bool(message)

    def begin(self, message: int, settings: Sequence[ColumnSettings]) -> bool:
        """Have several replies written to a message of the open chat, or to the one that a reply answers."""
        session = self._session
        try:
            answered, author = self._answered(message)
        except StoreError as error:
            session.notice.emit(str(error), "error")
            return False
        model = session.model
        if not answered or not settings or model is None:
            session.notice.emit(_("There is nothing to reply to yet. Write a message first."), "warning")
            return False
        columns = [Column(each, waits=True) for each in self._resolved(settings, model)]
        if session.local_only and any(split_address(each.settings.model) for each in columns):
            session.model_refused.emit(
                _(
                    "This chat stays on this computer, so models on servers cannot be compared in it. "
                    "Choose models on this computer."
                )
            )
            return False
        comparison = Comparison(session.conversation, answered, author, columns)
        now = [column for column in columns if column.settings.model == model.path]
        if now and not self._begin(comparison, now, beside=False):
            return False
        if not now and session.state != "idle":
            session.notice.emit(
                _("A reply is still being written. Wait for it, or press Esc to stop it."), "warning"
            )
            return False
        self._show(comparison)
        self._go_on()
        return True

    def show_versions(self, message: int) -> bool:
        """Put the versions of a reply of the open chat side by side, the latest ones if there are many."""
        session = self._session
        try:
            store = session.stores.of(message)
            answered, author = self._answered(message)
            siblings = [store.message(number) for number in store.variants(message)]
        except StoreError as error:
            session.notice.emit(str(error), "error")
            return False
        replies = [each for each in siblings if each.role == "assistant"][-MOST:]
        if len(replies) < FEWEST:
            session.notice.emit(_("This reply has only one version."), "info")
            return False
        named = len({model_of(each) for each in replies}) > 1
        columns = [Column(ColumnSettings(label=version_label(each, named)), each.id) for each in replies]
        self._show(Comparison(session.conversation, answered, author, columns))
        return True

    def _show(self, comparison: Comparison) -> None:
        for conversation in tuple(self._open):
            self._is_there(conversation)  # else it is closed
        self._open[comparison.conversation] = comparison
        self.opened.emit(comparison.conversation)

    # -- while it is open

    def stop(self, conversation: int, column: Column) -> None:
        """Stop one reply; one that waits for its model is not written."""
        if column.message:
            self._engine.stop_reply(column.message)
        elif column.waits:
            column.waits, column.words = False, _("Not generated: stopped by you.")
            self.changed.emit(conversation)

    def has_failed(self, column: Column) -> bool:
        """Whether its reply was not begun, or failed; `try_again` writes it again then."""
        if column.waits or not column.message:
            return not column.waits
        try:
            return self._session.stores.of(column.message).message(column.message).state == "failed"
        except StoreError:
            return False

    def try_again(self, conversation: int, column: Column) -> bool:
        """Write the reply of a column that has failed, with its model; what has failed stays as a version."""
        comparison = self._open.get(conversation)
        if comparison is None or column not in comparison.columns or not self.has_failed(column):
            return False
        column.message, column.waits, column.words = 0, True, ""
        self._go_on()
        self.changed.emit(conversation)
        return True

    def stop_all(self, conversation: int) -> None:
        """Stop all replies of a comparison."""
        comparison = self._open.get(conversation)
        for column in comparison.columns if comparison is not None else ():
            self.stop(conversation, column)

    def keep(self, conversation: int, column: Column, discard: bool = False) -> bool:
        """Show this reply in the open chat, and close the comparison. Others that still run are stopped; they
        stay as versions, unless they are to be discarded.
        """
        comparison = self._open.get(conversation)
        if comparison is None or not column.message:
            return False
        others = [each for each in comparison.columns if each is not column]
        if not self._session.keep_version(
            column.message, [each.message for each in others if each.message] if discard else ()
        ):
            return False
        for each in others:
            self.stop(conversation, each)
        self.close_comparison(conversation)
        return True

    def close_comparison(self, conversation: int) -> None:
        """Close a comparison: replies that run go on, those that were not begun are not written."""
        if self._open.pop(conversation, None) is not None:
            self.closed.emit(conversation)

    # -- parts

    def _answered(self, message: int) -> tuple[int, Author]:
        """The message that is answered, and who wrote the given reply to it."""
        found = self._session.stores.of(message).message(message)
        return (found.parent_id or 0, found.author) if found.role == "assistant" else (found.id, UNNAMED)

    def _resolved(self, settings: Sequence[ColumnSettings], model: ModelInfo) -> list[ColumnSettings]:
        """Every column with its model, and with a seed of its own where it would repeat another one."""
        fixed, found = self._session.settings(SamplerSettings).seed, list[ColumnSettings]()
        given = {fixed, *(each.seed for each in settings)}
        for each in settings:
            named = replace(each, model=str(Path(each.model)) if each.model else model.path)
            same = {other.seed for other in found if replace(other, seed=None) == replace(named, seed=None)}
            if same and named.seed is None and fixed is not None:
                drawn = seeds(fixed, len(same | given) + 1)
                named = replace(named, seed=next(seed for seed in drawn if seed not in same | given))
            found.append(named)
        return found

    def _begin(self, comparison: Comparison, columns: list[Column], beside: bool) -> bool:
        """Begin these columns with the loaded model."""
        messages = self._session.several.write(
            comparison.conversation,
            comparison.answered,
            [column.settings for column in columns],
            comparison.author,
            beside,
        )
        if not messages:
            for column in columns:
                column.waits, column.words = False, _("Not generated: it could not be started.")
            return False
        for column, message in zip(columns, messages, strict=True):
            column.message, column.waits, column.words = message, False, ""
        return True

    @Slot()
    def _go_on(self) -> None:
        """Begin the columns whose model is loaded; load the next model if nothing else runs."""
        engine, model = self._engine, self._session.model
        loads = engine.state == "loading"
        for comparison in tuple(self._open.values()):
            ready = [each for each in comparison.waiting if model and each.settings.model == model.path]
            if ready and not loads:
                self._begin(comparison, ready, beside=True)
                self.changed.emit(comparison.conversation)
        if not loads and not self._session.busy:
            for comparison in tuple(self._open.values()):
                if comparison.waiting and self._is_there(comparison.conversation):
                    self._loading = comparison.waiting[0].settings.model
                    self._session.open_model(self._loading)
                    break
        self._say_why()

    def _is_there(self, conversation: int) -> bool:
        """Whether a chat still exists; the comparison of one that does not is closed."""
        try:
            there = not self._session.stores.of(conversation).get(conversation).deleted
        except StoreError:
            there = False
        if not there:
            self.close_comparison(conversation)
        return there

    def _say_why(self) -> None:
        """Say in each column that waits what it waits for."""
        for conversation, comparison in self._open.items():
            for column in comparison.waiting:
                name = model_name(column.settings.model)
                own = any(self._engine.state_of(each.message) != "idle" for each in comparison.columns)
                if column.settings.model == self._loading:
                    words = _("Loading {name}.", name=name)
                elif own:
                    words = _(
                        "Waiting for {name}, which is loaded when the other replies are complete.", name=name
                    )
                else:
                    words = _(
                        "Waiting for {name}, which is loaded when no other reply is being written.", name=name
                    )
                if words != column.words:
                    column.words = words
                    self.changed.emit(conversation)

    def _give_up(self, words: str, path: str = "") -> None:
        """Do not write the columns that wait for the model at `path`; "" is any."""
        for conversation, comparison in self._open.items():
            given_up = [each for each in comparison.waiting if path in ("", each.settings.model)]
            for column in given_up:
                column.waits, column.words = False, words
            if given_up:
                self.changed.emit(conversation)

    @Slot(int)
    def _on_stopped(self, conversation: int) -> None:
        comparison = self._open.get(conversation)
        for column in comparison.waiting if comparison is not None else ():
            self.stop(conversation, column)

    @Slot()
    def _on_file_replaced(self) -> None:
        for conversation in tuple(self._open):
            self.close_comparison(conversation)

    @Slot()
    def _on_engine(self) -> None:
        """Look whether our load goes on: it may have been stopped, or replaced by another one."""
        engine = self._engine
        if self._loading and engine.opening not in ("", self._loading):
            self._loading = ""
            self._give_up(translate(_OTHER_MODEL))
        elif self._loading and engine.state in ("idle", "no_model"):
            self._loading = ""
            self._give_up(_("Not generated: loading its model was cancelled."))
        if engine.state == "no_model" and not self._loading:
            self._go_on()  # another model may load where one could not
        self._say_why()

    @Slot(object)
    def _on_model(self, model: ModelInfo | None) -> None:
        """Our model is there; or the user has loaded another one, which stays, or unloaded it."""
        ours = self._loading
        if model is None and ours:
            return  # the old one has made room
        self._loading = ""
        # the old one may make room before the new one is there
        words = translate(_OTHER_MODEL) if model is not None or self._engine.opening else translate(_NO_MODEL)
        for comparison in self._open.values():
            for each in comparison.waiting:
                if model is not None and each.settings.model == ours:
                    each.settings = replace(each.settings, model=model.path)
                elif not ours and (model is None or each.settings.model != model.path):
                    each.waits, each.words = False, words
                    self.changed.emit(comparison.conversation)

    @Slot(str, str, str)
    def _on_load_failed(self, path: str, sentence: str, _details: str) -> None:
        if path == self._loading:
            self._loading = ""
            self._give_up(_("Not generated: {sentence}", sentence=sentence), path)
