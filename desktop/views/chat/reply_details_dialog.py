"""What produced a reply: the model and its hash, the exact prompt, every setting, times and seed; and its
replay.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont, QPalette, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import (
    QAbstractItemView,
    QDialog,
    QFrame,
    QHeaderView,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QTabWidget,
    QTreeWidget,
    QTreeWidgetItem,
    QVBoxLayout,
    QWidget,
)

from desktop.services.engine.reply_record import spoken
from desktop.services.provenance.provenance import ReplyProvenance
from desktop.services.provenance.provenance_text import (
    facts_rows,
    prompt_pieces,
    prompt_words,
    setting_rows,
    vision_words,
)
from desktop.views.layout.breakable import breakable
from desktop.views.layout.fill import fill
from desktop.views.layout.spacing import dialog_margins
from desktop.views.widgets.facts_grid import FactsGrid
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.progress_bar import progress_bar
from desktop.views.widgets.scroll_area import VerticalScrollArea
from desktop.views.widgets.text_label import set_styled, text_label
from desktop.views.widgets.wrapping_text import WrappingCheckBox
from engine.words import _

__all__ = ["ReplyDetailsDialog"]

_SELECTABLE = Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard


def _label(text: str = "", tone: str = "") -> QLabel:
    return text_label(text, tone, wraps=True, plain=True)


def _breakable_words(text: str) -> str:
    return " ".join(map(breakable, text.split(" ")))


class _Prompt(QPlainTextEdit):
    """The prompt as text, with control tokens in another colour and weight."""

    def __init__(self, reply: ReplyProvenance) -> None:
        super().__init__()
        self._reply = reply
        self.setReadOnly(True)
        self.setProperty("tone", "field")
        self.setAccessibleName(_("Exact prompt"))
        self.setPlaceholderText(_("The prompt of this reply was not saved."))
        self.setTabChangesFocus(True)
        self.write()

    def write(self) -> None:
        """Use the colours of the current palette."""
        prompt = self._reply.provenance.prompt if self._reply.provenance is not None else None
        plain, control = QTextCharFormat(), QTextCharFormat()
        control.setForeground(self.palette().color(QPalette.ColorRole.Link))
        control.setBackground(self.palette().color(QPalette.ColorRole.AlternateBase))
        control.setFontWeight(QFont.Weight.DemiBold)
        self.clear()
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        for text, special in prompt_pieces(prompt) if prompt is not None else ():
            cursor.insertText(text, control if special else plain)
        if prompt is not None and prompt.negative_ids:
            cursor.insertText(f"\n\n{_('— The negative prompt —')}\n\n", plain)
            for text, special in prompt_pieces(prompt, prompt.negative_ids):
                cursor.insertText(text, control if special else plain)
        cursor.endEditBlock()
        self.moveCursor(QTextCursor.MoveOperation.Start)


class _Settings(QWidget):
    """Every setting in a table; those that differ from the default are bold and name the default."""

    def __init__(self, reply: ReplyProvenance) -> None:
        super().__init__()
        self.tree = QTreeWidget()
        self.tree.setObjectName("originSettings")
        self.tree.setAccessibleName(_("Settings used"))
        self.tree.setHeaderLabels([_("Setting"), _("Value"), _("Default")])
        self.tree.setRootIsDecorated(False)
        self.tree.setIndentation(0)
        self.tree.setUniformRowHeights(True)
        self.tree.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.tree.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.tree.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.only = WrappingCheckBox(_("Show only changed settings"))
        self.only.toggled.connect(self._filter)
        rows, pane = setting_rows(reply), ""
        bold = QFont(self.font())
        bold.setWeight(QFont.Weight.DemiBold)
        for row in rows:
            if row.pane != pane:
                pane = row.pane
                head = QTreeWidgetItem(self.tree, [pane])
                head.setFlags(Qt.ItemFlag.ItemIsEnabled)
                head.setForeground(0, self.palette().color(QPalette.ColorRole.PlaceholderText))
                head.setFont(0, bold)
                head.setFirstColumnSpanned(True)
            item = QTreeWidgetItem(
                self.tree, [f"    {row.label}", row.value.replace("\n", " "), row.default.replace("\n", " ")]
            )
            item.setToolTip(1, row.value)
            if row.default:
                item.setFont(0, bold)
                item.setFont(1, bold)
                item.setData(0, Qt.ItemDataRole.AccessibleTextRole, _("{label}, changed", label=row.label))
        header = self.tree.header()
        header.setStretchLastSection(True)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        for column in (0, 1):
            self.tree.resizeColumnToContents(column)
            header.resizeSection(
                column, min(header.sectionSize(column) + 12, self.fontMetrics().averageCharWidth() * 34)
            )
        self.changed = sum(bool(row.default) for row in rows)
        words = _(
            "{changed} of {rows} settings were changed from their defaults.",
            changed=self.changed,
            rows=len(rows),
        )
        words = words if rows else _("The settings of this reply were not saved.")
        fill(QVBoxLayout(self), _label(words, "muted"), (self.tree, 1), self.only, margins=(0, 10, 0, 0))
        self.only.setEnabled(bool(rows))

    def _filter(self, only: bool) -> None:
        matches = False
        for place in reversed(range(self.tree.topLevelItemCount())):
            item = self.tree.topLevelItem(place)
            if item is None:
                continue
            if item.flags() & Qt.ItemFlag.ItemIsSelectable:
                item.setHidden(only and not item.text(2))
                matches = matches or not item.isHidden()
            else:  # a heading is hidden with its last row
                item.setHidden(not matches)
                matches = False


class ReplyDetailsDialog(QDialog):
    """`replay_requested()`, `stop_requested()` and `copy_requested()` are for the controller, which
    answers with `show_*`.
    """

    replay_requested = Signal()
    stop_requested = Signal()
    copy_requested = Signal()

    def __init__(self, reply: ReplyProvenance, parent: QWidget) -> None:
        super().__init__(parent)
        self.reply = reply
        self._running = False
        self.setObjectName("originDialog")
        self.setWindowTitle(_("Reply details"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._values: dict[str, QLabel] = {}
        prompt = reply.provenance.prompt if reply.provenance is not None else None
        self.prompt, self.settings = _Prompt(reply), _Settings(reply)
        self.tabs = QTabWidget()
        self.tabs.setDocumentMode(True)
        self.tabs.addTab(self._facts(), _("Overview"))
        page = QWidget()
        fill(
            QVBoxLayout(page), _label(prompt_words(prompt), "muted"), (self.prompt, 1), margins=(0, 10, 0, 0)
        )
        self.tabs.addTab(page, _("Prompt"))
        self.tabs.addTab(self.settings, _("Settings"))
        layout = fill(QVBoxLayout(self), (self.tabs, 1), self._replay_part(), self._buttons())
        dialog_margins(layout)
        self.resize(
            min(max(self.fontMetrics().averageCharWidth() * 96, 560), parent.width() - 24),
            min(680, parent.height() - 24),
        )

    def _facts(self) -> QWidget:
        body = QWidget()
        body.setObjectName("originFacts")
        grid = FactsGrid((2, 5), (22, 7))
        column = fill(QVBoxLayout(body), grid, margins=(0, 12, 0, 8), spacing=7)
        for title, words in facts_rows(self.reply, self.reply.hash or "…"):
            files = title in ("File", "SHA-256", _("Vision encoder"))
            value = _label(_breakable_words(words) if files else words)
            value.setTextInteractionFlags(_SELECTABLE)
            value.setAccessibleName(f"{title}: {spoken(words)}")
            self._values[title] = value
            grid.add(_label(title, "muted"), value)
        if self.reply.provenance is None:
            words = _(
                "No further details were saved: the reply was imported or written by an earlier version "
                "of Inglenook."
            )
            column.addWidget(_label(words, "muted"))
        column.addStretch(1)
        scroll = VerticalScrollArea(body)
        scroll.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        scroll.setAccessibleName(_("Overview"))
        return scroll

    def _replay_part(self) -> QWidget:
        part = QFrame()
        part.setObjectName("originReplay")
        self.words = _label("", "muted")
        self.bar = progress_bar(_("Progress of the replay"), 6)
        self.bar.hide()
        self.replay = QPushButton(_("Replay"))
        self.replay.setToolTip(
            _("Generate the reply again from its exact prompt, settings and seed, and compare every token.")
        )
        self.replay.clicked.connect(
            lambda: (self.stop_requested if self._running else self.replay_requested).emit()
        )
        column = fill(QVBoxLayout(), self.words, self.bar)
        fill(FlowLayout(part), (column, 1), self.replay, margins=(0, 2, 0, 2), spacing=14)
        return part

    def _buttons(self) -> FlowLayout:
        self.copy = QPushButton(_("Copy as JSON"))
        self.copy.setToolTip(_("Copy all details, including every token id, for a file or a report."))
        self.copy.clicked.connect(self.copy_requested)
        close = QPushButton(_("Close"))
        close.setDefault(True)
        close.clicked.connect(self.accept)
        return fill(FlowLayout(), self.copy, 1, close)

    # -- what the controller says

    def show_hash(self, words: str) -> None:
        """Show the hash of the model's files, or the progress of computing it."""
        if "SHA-256" in self._values:
            self._values["SHA-256"].setText(breakable(words))
            self._values["SHA-256"].setAccessibleName(_("SHA-256: {words}", words=words))

    def show_vision(self) -> None:
        """Show what is now known of the vision encoder's file."""
        title, words = _("Vision encoder"), vision_words(self.reply)
        if title in self._values:
            self._values[title].setText(_breakable_words(words))
            self._values[title].setAccessibleName(f"{title}: {spoken(words)}")

    def show_replay(self, words: str, possible: bool, tone: str = "muted") -> None:
        """Show whether a replay is possible, why it may differ, or its result."""
        self._running = False
        self.bar.hide()
        self._write(words, tone)
        self.replay.setText(_("Replay"))
        self.replay.setEnabled(possible)

    def show_running(self, words: str, done: int, total: int) -> None:
        """Show the progress of a replay."""
        self._running = True
        self._write(words, "muted")
        self.bar.setRange(0, total if total > 0 else 0)
        self.bar.setValue(done)
        self.bar.show()
        self.replay.setText(_("Stop"))
        self.replay.setEnabled(True)

    def _write(self, words: str, tone: str) -> None:
        set_styled(self.words, "tone", tone)
        self.words.setText(words)
        self.words.setAccessibleName(words)
