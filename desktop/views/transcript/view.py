"""The transcript widget: a `MessagesModel` as a virtual list of block rows with anchored scrolling,
selection and editing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from PySide6.QtCore import QEvent, QPoint, Qt, QTimer, Signal, Slot
from PySide6.QtGui import (
    QContextMenuEvent,
    QFont,
    QGuiApplication,
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
from desktop.store.conversations.token_trace import TokenTrace
from desktop.views.transcript.commands import make_menu, press_key
from desktop.views.transcript.find import Finding
from desktop.views.transcript.inline_edit import Editing
from desktop.views.transcript.message_list import Conversation
from desktop.views.transcript.model_sync import ModelFeed
from desktop.views.transcript.mouse import Pointer
from desktop.views.transcript.overlays import Overlays
from desktop.views.transcript.rendering.code_highlight import CodeColours, IdleRunner
from desktop.views.transcript.rendering.image_loader import ImageLoader
from desktop.views.transcript.rendering.markdown import prepare
from desktop.views.transcript.row_pool import Stage
from desktop.views.transcript.row_widgets.base import RowWidget
from desktop.views.transcript.row_widgets.factory import RowFactory, RowHooks
from desktop.views.transcript.rows import Row
from desktop.views.transcript.save_code import ask_and_save
from desktop.views.transcript.scrolling import Scrolling
from desktop.views.transcript.selection import Selection
from desktop.views.transcript.style import Look, TranscriptColours, make_look
from desktop.views.transcript.thinking_time import fill_times
from desktop.views.transcript.tokens.inspector import Inspection

__all__ = ["TranscriptView"]

_FRAME = 0.016
_EARLY_MS = 400
"""After so long the reader of Markdown is made ready, which the first text would else wait for."""


class TranscriptView(QAbstractScrollArea):
    """Shows `model`.

    The view follows the end of the conversation while it is there and else never moves by itself.

    `action(name, message id)`: "edit", "regenerate", "continue", "fork", "origin", "delete", "previous" or
    "next" was asked for (copying is done here). `edit_words(message id)` says what editing a message costs.
    `edited(message id, text, answer)`: an inline edit that `begin_edit` began was saved; a user's message
    asks for an answer, or for none.
    """

    action = Signal(str, int)
    edited = Signal(int, str, bool)
    _due = Signal()

    def __init__(self, model: MessagesModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._percent = 100
        self._base: QFont | None = None
        self.edit_words: Callable[[int], str] = lambda message: ""
        self._given: TranscriptColours | None = None
        self._look = self._make_look()
        self._conversation = Conversation(self._look)
        self._colours = CodeColours(IdleRunner(self))
        hooks = RowHooks(
            self.put_on_clipboard, self._save_code, self.act, self._show_row, self.fold, self._show_more,
            self._save_edit, self.cancel_edit, self.remeasure, self._wrap_code, self._conversation.code,
            lambda message: self.edit_words(message),
        )  # fmt: skip
        self.inspection = Inspection(self, self._conversation)
        self._pictures = ImageLoader(self)
        self.stage = Stage(RowFactory(self.viewport(), self._colours, self._pictures, hooks, self.inspection))
        self.scrolling = Scrolling(self, self._conversation, self.stage)
        self.selection = Selection(self._conversation, self.stage)
        self.finding = Finding(self, self._conversation)
        self._pointer = Pointer(self)
        self._overlays = Overlays(self.viewport(), self.scroll_to_end)
        self._restyle = False
        self._hovered: int | None = None
        self._editing = Editing(self, self._conversation)
        self._feed: ModelFeed | None = None
        self._last = 0.0
        self._flush = QTimer(self)
        self._flush.setSingleShot(True)
        self._flush.setTimerType(Qt.TimerType.PreciseTimer)
        self._flush.timeout.connect(self.flush)
        self._early = QTimer(self)
        self._early.setSingleShot(True)
        self._early.setInterval(_EARLY_MS)
        self._early.timeout.connect(prepare)
        self._waits = False
        self._due.connect(self._on_due, Qt.ConnectionType.QueuedConnection)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        # else text flows anew when the bar is first needed
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)
        self.setAccessibleName("Conversation")
        self.viewport().setMouseTracking(True)
        self.set_model(model)

    def set_model(self, model: MessagesModel) -> None:
        """Show another model."""
        if self._feed is not None:
            self._feed.stop()
        self._feed = ModelFeed(self._conversation, model, self)
        self._feed.changed.connect(self._schedule)
        self._feed.grown.connect(self._schedule)
        self._feed.changed.connect(self.finding.chat_changed)
        self._feed.grown.connect(self.finding.chat_changed)
        self._feed.renewed.connect(self._renewed)
        self._feed.spoken.connect(self.scroll_to_end)
        self._feed.reset()

    def set_thinking(self, tags: Sequence[Tag] = THINKING_TAGS) -> None:
        """Find thoughts between `tags` in messages that come."""
        self._conversation.tags = tuple(tags)

    def unfold_thoughts(self, unfolded: bool) -> None:
        """Whether thoughts are shown while they are written, unless the reader folds or unfolds one."""
        self._conversation.unfold_thoughts(unfolded)
        self._schedule()

    def _renewed(self) -> None:
        self._editing.forget()
        self.inspection.close()
        self.finding.close()
        self.selection.clear()
        self.scrolling.begin_anew()
        self._schedule()

    def _schedule(self) -> None:
        """Arrange soon, at most once a frame."""
        if self._waits:
            return
        self._waits = True
        wait = round((_FRAME - (perf_counter() - self._last)) * 1000)
        if wait > 0:
            self._flush.start(wait)
        else:
            # comes before what is painted, unlike a timer: what changed with it elsewhere is painted in the
            # same pass
            self._due.emit()

    @Slot()
    def _on_due(self) -> None:
        if self._waits:
            self.flush()

    def flush(self) -> None:
        """Show the model as it is now. Happens by itself within a frame of each change."""
        self._flush.stop()
        # what asks for the next frame while this one is made waits for its time
        self._waits, self._last = False, perf_counter()
        if self._restyle:
            self._restyle = False
            self._look = self._make_look()
            self._conversation.look = self._look
            self._conversation.forget_heights()
        self.scrolling.keep_thought()
        if self._feed is not None:
            self._feed.sync()
        if self._conversation.step():
            self._schedule()
        self.arrange()
        self._last = perf_counter()

    def settled(self) -> bool:
        """Whether everything is shown, drawn and coloured: nothing of this view waits for its turn."""
        return not self._waits and self._colours.runner.idle() and self._pictures.idle()

    def arrange(self) -> None:
        """Place the rows as they are now, and what lies over them."""
        if not self.scrolling.arrange():
            return
        # what is not ready comes with the next frame, also when the reader scrolls
        self._last = perf_counter()
        if self.stage.unfinished:
            self._schedule()
        self.selection.show()
        self.finding.show_marks()
        self._reveal()
        self._place_overlays()
        self.inspection.follow()
        if fill_times(self._conversation, self.stage, self.trace):
            self._schedule()

    def pinned(self) -> set[Row]:
        """Rows that must live on when they are scrolled away."""
        return self._pointer.pinned() | self.selection.pinned() | self._editing.pinned()

    def trace(self, message_id: int) -> TokenTrace | None:
        """The tokens of a message, where they are known."""
        return self._feed.model.trace(message_id) if self._feed is not None else None

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        self.scrolling.moved()

    def scroll_to_end(self) -> None:
        """Go to the end and stay there while it grows."""
        self.scrolling.to_end()
        self._schedule()

    def scroll_to_message(self, message_id: int) -> None:
        """Put the top of a message at the top of the screen. Raises KeyError when it is not here."""
        self.scroll_to_row(self._conversation.messages[self._conversation.position(message_id)].rows[0])

    def scroll_to_row(self, row: Row, offset: int = 0) -> None:
        """Put the top of a row `offset` pixels below the top of the screen."""
        self.scrolling.to_row(row, offset)
        self._schedule()

    def at_end(self) -> bool:
        """Whether the view follows the end."""
        return self.scrolling.at_end

    def row_at(self, y: int) -> Row | None:
        """The row at, or nearest to, a height of the viewport."""
        layout = self._conversation.layout
        index = layout.at(self.verticalScrollBar().value() + y)
        return layout.rows[index] if index >= 0 else None

    def act(self, name: str, message_id: int) -> None:
        """Copy a message, or ask for what else `name` means."""
        if not self._conversation.rows_of(message_id):
            return  # the message has gone and its widget goes within this frame
        if name == "copy":
            self.put_on_clipboard(self._conversation.item(message_id).text)
        else:
            self.action.emit(name, message_id)

    def fold(self, row: Row) -> None:
        """Open the thought whose head the row is, or fold it."""
        if not self._conversation.layout.holds(row):
            return
        message = self._conversation.message_of(row)
        message.fold(row.ordinal, row.open)
        if not row.item.running:
            self.scrolling.stop_following()
        self._conversation.sync(self._conversation.position(row.item.id))
        self._schedule()

    def _show_more(self, row: Row) -> None:
        if self._conversation.layout.holds(row):
            self.scrolling.stop_following()
            self._conversation.message_of(row).show_more()
            self._conversation.sync(self._conversation.position(row.item.id))
            self._schedule()

    def _wrap_code(self, row: Row) -> None:
        for part in self._conversation.code_rows(row):
            part.wrapped = row.wrapped
            self.remeasure(part)

    def _show_row(self, row: Row) -> None:
        self.scrolling.show_row(row)

    def _save_code(self, code: str, language: str) -> None:
        ask_and_save(self, code, language)

    def remeasure(self, row: Row) -> None:
        """The row shows something else, and may be higher or lower for it."""
        row.measured = False
        self._schedule()

    def set_hovered(self, message_id: int | None) -> None:
        """The pointer is over this message, or over none."""
        if message_id != self._hovered:
            self._hovered = message_id
            self._reveal()

    def _reveal(self) -> None:
        rows = self._conversation.layout.rows
        last = rows[-1].item.id if rows else None
        for row, widget in self.stage.footers():
            widget.reveal(row.item.id in (self._hovered, last))

    def begin_edit(self, message_id: int) -> None:
        """Turn a message into a text box. Raises KeyError when the message is not here."""
        self._editing.begin(message_id)

    def cancel_edit(self, message_id: int) -> None:
        """Show the message again as it was."""
        if self._editing.cancel(message_id):
            self._schedule()

    def _save_edit(self, message_id: int, text: str, answer: bool) -> None:
        self.cancel_edit(message_id)
        self.edited.emit(message_id, text, answer)

    def _make_look(self) -> Look:
        return make_look(
            self._base or self.font(),
            self._percent,
            self._given or TranscriptColours.from_palette(self.palette()),
        )

    def set_text_scale(self, percent: int, base: QFont | None = None) -> None:
        """Show text at `percent` of `base`, or else of the widget's font."""
        if (percent, base) != (self._percent, self._base):
            self._percent, self._base = percent, base
            self._relook()

    def set_colours(self, colours: TranscriptColours | None) -> None:
        """Use these colours; None takes them from the palette."""
        self._given = colours
        self._relook()

    def _relook(self) -> None:
        self._restyle = True
        self._schedule()
        self.viewport().update()

    def set_empty_widget(self, widget: QWidget) -> None:
        """Show `widget`, which now belongs to the view, while there are no messages."""
        self._overlays.set_empty(widget)
        self._place_overlays()

    def _place_overlays(self) -> None:
        self._overlays.place(
            self._look.colours, empty=not self._conversation.messages, at_end=self.scrolling.at_end
        )

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (
            QEvent.Type.PaletteChange,
            QEvent.Type.FontChange,
            QEvent.Type.StyleChange,
        ) and hasattr(self, "_flush"):
            self._relook()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.finding.place()
        self.arrange()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._early.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.inspection.close()
        self._pointer.stop()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        painter.fillRect(event.rect(), self._look.colours.background)
        painter.end()

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self.inspection.leave()
        self.set_hovered(None)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._pointer.press(event)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self._pointer.double_click(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._pointer.move(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._pointer.release(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if not press_key(self, event):
            super().keyPressEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        self.make_menu(event.pos()).popup(event.globalPos())

    def make_menu(self, point: QPoint) -> QMenu:
        """What can be done at a point of the viewport."""
        return make_menu(self, point)

    def hit(self, point: QPoint) -> tuple[Row, RowWidget, QPoint] | None:
        """The row at, or nearest to, a point of the viewport, its widget and the point in it."""
        return self._pointer.hit(point)

    def copy(self) -> None:
        """Put what is selected on the clipboard."""
        text = self.selection.text()
        if text:
            self.put_on_clipboard(text)

    def select_all(self) -> None:
        """Select the whole conversation."""
        self.selection.take_all()
        self.selection.show()

    def put_on_clipboard(self, text: str) -> None:
        """Copy `text`."""
        QGuiApplication.clipboard().setText(text)

    def rows_of(self, message_id: int) -> Sequence[Row]:
        """The rows of a message, none when it is not here."""
        return self._conversation.rows_of(message_id)
