"""The transcript widget: a `MessagesModel` as a virtual list of block rows with anchored scrolling,
selection and editing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from PySide6.QtCore import QEvent, QPoint, Qt, Signal, Slot
from PySide6.QtGui import (
    QAccessible,
    QContextMenuEvent,
    QFont,
    QHideEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QShowEvent,
)
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QMenu, QWidget

from desktop.blocks import THINKING_TAGS, Tag
from desktop.items.chats.messages import MessagesModel
from desktop.services.system.debounce import debounce
from desktop.store.conversations.token_trace import TokenTrace
from desktop.views.transcript.commands import ALL_ACTIONS, copy_text, handle_key, make_menu
from desktop.views.transcript.find import Finding
from desktop.views.transcript.inline_edit import InlineEdit
from desktop.views.transcript.message_list import MessageList
from desktop.views.transcript.model_sync import ModelSync
from desktop.views.transcript.mouse import Pointer
from desktop.views.transcript.overlays import Overlays
from desktop.views.transcript.parts import TranscriptParts
from desktop.views.transcript.reading.reading import Reading
from desktop.views.transcript.rendering.code_highlight import CodeColours, IdleRunner
from desktop.views.transcript.rendering.image_loader import ImageLoader
from desktop.views.transcript.rendering.markdown import prepare
from desktop.views.transcript.row_pool import RowPool
from desktop.views.transcript.row_widgets.avatars import Avatars
from desktop.views.transcript.row_widgets.context import RowContext, RowSignals
from desktop.views.transcript.row_widgets.kinds import ROW_WIDGETS
from desktop.views.transcript.rows import Row
from desktop.views.transcript.scrolling import Scrolling
from desktop.views.transcript.selection import Selection
from desktop.views.transcript.style import Style, TranscriptColours, make_style
from desktop.views.transcript.tokens.colours import TokenView
from desktop.views.transcript.tokens.inspector import TokenInspector
from engine.words import _

__all__ = ["TranscriptView"]

_FRAME = 0.016
_WARM_UP_MS = 400
"""After this time the Markdown parser is loaded and rows are made, so that the first text and the first
scrolling do not wait for them.
"""
_STYLE_CHANGES = (QEvent.Type.PaletteChange, QEvent.Type.FontChange, QEvent.Type.StyleChange)


class TranscriptView(QAbstractScrollArea):
    """Shows `model`.

    The view follows the end of the conversation while it is there and otherwise never moves unasked.
    `edit_words(message id)` is a sentence about what editing a message costs; `why_not` is that of
    `TokenInspector`; `offered` are the actions for messages.

    Signals:
        action(str name, int message): "edit", "regenerate", "continue", "fork", "origin", "delete",
        "previous", "next", "several", "compare", "versions", "speak" or, for what is selected, "quote" was
        chosen (copying is done here).
        edited(int message, str text, bool answer): an inline edit that `begin_edit` began was saved; a user's
        message asks for an answer, or for none.
    """

    action = Signal(str, int)
    edited = Signal(int, str, bool)
    _due = Signal()

    def __init__(
        self,
        model: MessagesModel,
        edit_words: Callable[[int], str] = lambda message: "",
        why_not: Callable[[TokenTrace], tuple[str, frozenset[int]]] = lambda trace: ("", frozenset()),
        offered: frozenset[str] = ALL_ACTIONS,
    ) -> None:
        super().__init__()
        self.offered = offered
        self._percent = 100
        self._base: QFont | None = None
        self._style = self._make_style()
        self._style_outdated = False
        self.avatars = Avatars(self)
        self._make_parts(edit_words, why_not)
        self._sync: ModelSync | None = None
        self._waits = False
        self._last = 0.0
        self._flush = debounce(self, self.flush)
        self._flush.setTimerType(Qt.TimerType.PreciseTimer)
        self._warm_up = debounce(self, self._prepare, _WARM_UP_MS)
        self._order = debounce(self, self.pool.put_in_order, _WARM_UP_MS)
        self._due.connect(self._on_due, Qt.ConnectionType.QueuedConnection)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        # otherwise all text is laid out again when the bar is first needed
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)
        self.setAccessibleName(_("Chat"))
        self.setAccessibleDescription(_("Press F7 to read the messages with the caret."))
        self.viewport().setMouseTracking(True)
        # it paints every pixel: only then Qt copies pixels when it scrolls
        self.viewport().setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.set_model(model)

    def _make_parts(
        self, edit_words: Callable[[int], str], why_not: Callable[[TokenTrace], tuple[str, frozenset[int]]]
    ) -> None:
        self._code_colours = CodeColours(IdleRunner(self))
        self.pictures = ImageLoader(self)
        tokens = TokenView()
        context = RowContext(
            self.viewport(), self._connected_signals(), self._code_colours, self.pictures, self.avatars,
            tokens, edit_words, self.offered,
        )  # fmt: skip
        self.messages = MessageList(self._style)
        self.pool = RowPool(lambda kind: ROW_WIDGETS[kind](context), self.viewport().scroll)
        self.selection = Selection(self.messages, self.pool)
        parts = self._parts = TranscriptParts(self, self, self.messages, self.pool, self.selection)
        self.scrolling = Scrolling(parts)
        self.inspection = TokenInspector(parts, self.scrolling, context.signals, tokens, why_not)
        self.finding = Finding(parts, self.scrolling)
        self._pointer = Pointer(parts, self.scrolling, self.inspection)
        self.inline_edit = InlineEdit(parts, self.scrolling, self.edited.emit)
        context.signals.edit_saved.connect(self.inline_edit.save)
        self._overlays = Overlays(self.viewport(), self.scroll_to_end)
        self.reading = Reading(parts)

    def _connected_signals(self) -> RowSignals:
        signals = RowSignals(self)
        signals.action.connect(self.act)
        signals.focused.connect(lambda row: self.scrolling.show_row(row))
        signals.outdated.connect(self._remeasure)
        signals.folded.connect(lambda row: self.scrolling.fold(row))
        signals.more_requested.connect(lambda row: self.scrolling.show_more(row))
        signals.code_copied.connect(self._copy_code)
        signals.code_saved.connect(self._save_code)
        signals.wrap_changed.connect(self._wrap_code)
        signals.edit_cancelled.connect(self.cancel_edit)
        return signals

    def _prepare(self) -> None:
        prepare()
        self._code_colours.runner.run(self.pool, self.pool.stock())

    def set_model(self, model: MessagesModel) -> None:
        """Show another model."""
        if self._sync is not None:
            self._sync.model.text_appended.disconnect(self._append)
            self._sync.stop()
        self._sync = sync = ModelSync(self.messages, model, self)
        model.text_appended.connect(self._append)
        sync.changed.connect(self.schedule)
        sync.changed.connect(self.finding.chat_changed)
        sync.changed.connect(self.reading.changed)
        sync.renewed.connect(self._renewed)
        sync.sent.connect(self.scroll_to_end)
        sync.reset()

    def set_thinking(self, tags: Sequence[Tag] = THINKING_TAGS) -> None:
        """Find thoughts between `tags` in new messages."""
        self.messages.tags = tuple(tags)

    def unfold_thoughts(self, unfolded: bool) -> None:
        """Whether thoughts are shown while they are written, unless the reader folds or unfolds one."""
        self.messages.unfold_thoughts(unfolded)
        self.schedule()

    def _renewed(self) -> None:
        self.inline_edit.forget()
        self.inspection.close()
        self.finding.close()
        self.reading.close()
        self.selection.clear()
        self.scrolling.reset()
        self.schedule()

    def schedule(self) -> None:
        """Show what has changed soon, at most once a frame."""
        if self._waits:
            return
        self._waits = True
        wait = round((_FRAME - (perf_counter() - self._last)) * 1000)
        if wait > 0:
            self._flush.start(wait)
        else:
            # unlike a timer this comes before painting: other changes of the same moment are painted with it
            self._due.emit()

    @Slot(int, str)
    def _append(self, position: int, text: str) -> None:
        """Show more text in this turn of the event loop: the engine's thread has throttled it already."""
        if self._sync is None:
            return
        self._sync.append(position, text)
        self.finding.chat_changed()
        if not self._waits or self._flush.isActive():
            self._waits = True
            self._flush.stop()
            self._due.emit()

    @Slot()
    def _on_due(self) -> None:
        if self._waits:
            self.flush()

    def flush(self) -> None:
        """Show the model as it is now. Happens automatically within a frame of each change."""
        self._flush.stop()
        # what asks for the next frame while this one is made waits for its time
        self._waits, self._last = False, perf_counter()
        if self._style_outdated:
            self._style_outdated = False
            self._style = self.messages.style = self._make_style()
            self.messages.forget_heights()
        self.scrolling.keep_thought()
        if self._sync is not None:
            self._sync.sync()
        if self.messages.step():
            self.schedule()
        self.arrange()
        self._last = perf_counter()

    def settled(self) -> bool:
        """Whether everything is shown, drawn and coloured: nothing is waiting."""
        return not self._waits and self._code_colours.runner.idle() and self.pictures.idle()

    def arrange(self) -> None:
        """Place the rows as they are now, and what lies over them."""
        plan = self.scrolling.begin()
        if plan is None:
            return
        value = self.pool.arrange(plan)
        while self.inspection.load(value):  # its rows were exchanged for others
            self.selection.check()
            value = self.pool.arrange(plan)
        self.scrolling.end(value)
        if QAccessible.isActive():
            self._order.start()  # when the reader pauses: moving widgets paints them again
        # what is not ready comes with the next frame, also when the reader scrolls
        self._last = perf_counter()
        if self.pool.unfinished:
            self.schedule()
        self.selection.show()
        self.finding.show_marks()
        self._pointer.reveal()
        self._place_overlays()
        self.inspection.follow()
        if self.messages.fill_thought_times(self.pool.live, self.trace):
            self.schedule()

    def put_off(self) -> None:
        """Put off what can wait, because the reader scrolls."""
        self._code_colours.runner.rest()

    def pinned(self) -> set[Row]:
        """Rows whose widgets must live on when they are scrolled away."""
        return self._pointer.pinned() | self.selection.pinned() | self.inline_edit.pinned()

    def trace(self, message_id: int) -> TokenTrace | None:
        """The tokens of a message, where they are known."""
        return self._sync.model.trace(message_id) if self._sync is not None else None

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        self.scrolling.moved()

    def scroll_to_end(self) -> None:
        """Go to the end and stay there while it grows."""
        self.scrolling.to_end()

    def act(self, name: str, message_id: int) -> None:
        """Copy a message, or emit `action` for any other name."""
        if not self.messages.rows_of(message_id):
            return  # the message has gone and its widget goes within this frame
        if name == "copy":
            copy_text(self.messages.message(message_id).item.text)
        else:
            self.action.emit(name, message_id)

    def _copy_code(self, row: Row) -> None:
        copy_text(self.messages.body(row))

    def _save_code(self, row: Row) -> None:
        from desktop.views.transcript.row_widgets.save_code import ask_and_save  # only when it is needed

        ask_and_save(self, self.messages.body(row), row.block.language if row.block is not None else "")

    def _wrap_code(self, row: Row) -> None:
        for part in self.messages.block_rows(row):
            part.wrapped = row.wrapped
            self._remeasure(part)

    def _remeasure(self, row: Row) -> None:
        row.measured = False
        self.schedule()

    def begin_edit(self, message_id: int) -> None:
        """Turn a message into a text box. Raises KeyError when the message is not here."""
        self.inline_edit.begin(message_id)

    def cancel_edit(self, message_id: int) -> None:
        """Show the message again as it was."""
        self.inline_edit.cancel(message_id)

    def _make_style(self) -> Style:
        colours = TranscriptColours.from_palette(self.palette())
        return make_style(self._base or self.font(), self._percent, colours)

    def set_text_scale(self, percent: int, base: QFont | None = None) -> None:
        """Show text at `percent` of `base`, or else of the widget's font."""
        if (percent, base) != (self._percent, self._base):
            self._percent, self._base = percent, base
            self._restyle()

    def _restyle(self) -> None:
        self._style_outdated = True
        self.schedule()
        self.viewport().update()

    def set_empty_widget(self, widget: QWidget) -> None:
        """Show `widget`, which now belongs to the view, while there are no messages."""
        self._overlays.set_empty(widget)
        self._place_overlays()

    def _place_overlays(self) -> None:
        self._overlays.place(self._style.colours, empty=not self.messages.all, at_end=self.scrolling.at_end)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in _STYLE_CHANGES and hasattr(self, "_flush"):
            self._restyle()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.finding.place()
        self.arrange()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._warm_up.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._warm_up.stop()
        self.inspection.close()
        self._pointer.stop()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        painter.fillRect(event.rect(), self._style.colours.background)
        painter.end()

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self._pointer.leave()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._pointer.press(event)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self._pointer.double_click(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._pointer.move(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._pointer.release(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if not handle_key(self._parts, self.scrolling, self.finding, event):
            super().keyPressEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        self.make_menu(event.pos()).popup(event.globalPos())

    def make_menu(self, point: QPoint) -> QMenu:
        """The context menu at a point of the viewport."""
        return make_menu(self._parts, self.scrolling, point)

    def copy(self) -> None:
        """Put what is selected on the clipboard."""
        copy_text(self.selection.text())

    def select_all(self) -> None:
        """Select the whole conversation."""
        self.selection.select_all()
