"""The dialog of a chat's cast: the participants, their descriptions, the user's names, who answers next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from PySide6.QtCore import QSignalBlocker, QSize, Qt, Signal
from PySide6.QtGui import QIcon, QPixmap, QResizeEvent
from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QFormLayout,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QMenu,
    QPushButton,
    QSpinBox,
    QStyle,
    QVBoxLayout,
    QWidget,
)

from desktop.store.conversations.participants import (
    LONGEST_NAME,
    MOST_AUTOMATIC,
    MOST_PARTICIPANTS,
    Cast,
    Participant,
    name_of,
)
from desktop.store.conversations.personas import Persona
from desktop.views.layout.fill import fill
from desktop.views.layout.spacing import SCALE, dialog_margins
from desktop.views.widgets.combo_box import ComboBox
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.growing_text_edit import GrowingTextEdit
from desktop.views.widgets.icons import IconButton
from desktop.views.widgets.scroll_area import DialogBody
from desktop.views.widgets.text_label import text_label
from desktop.views.widgets.wheel_guard import guard_wheel
from desktop.views.widgets.wrapping_text import wrapped_lines
from engine.words import N_, _, translate

__all__ = ["ParticipantsDialog"]

Draw = Callable[[int, str, int], QPixmap]
_TURNS = (("turn", N_("In turn")), ("named", N_("The one mentioned last")), ("hand", N_("The one I choose")))
_HINT = N_("The number of further replies before it is your turn. Press Esc to stop them.")
_NOTHING = N_(
    "There are no participants yet, so the model replies as itself. Add personas, or other "
    "participants with a name and a short description."
)

_NARROW = 1.5
"""In less than this times the longest label, labels are above their fields."""


class _List(QListWidget):
    """Not higher than it must be, unless there is room."""

    def sizeHint(self) -> QSize:
        return QSize(super().sizeHint().width(), self.minimumHeight())


class ParticipantsDialog(QDialog):
    """Edits a copy of `cast`; `accepted_cast(cast)` when OK was pressed.

    `draw(persona, name, side)` gives a picture.
    """

    accepted_cast = Signal(object)

    def __init__(self, cast: Cast, personas: Sequence[Persona], draw: Draw, parent: QWidget) -> None:
        super().__init__(parent)
        self._draw, self._personas = draw, {persona.id: persona for persona in personas}
        self._kept, self._participants = cast, list(cast.participants)
        self.setWindowTitle(_("Participants"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._make_list()
        self._make_fields(cast)
        self.trouble = text_label(tone="danger", wraps=True)
        self.buttons = QDialogButtonBox(
            QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel
        )
        self.buttons.button(QDialogButtonBox.StandardButton.Ok).setProperty("tone", "primary")
        self.buttons.accepted.connect(self._accept)
        self.buttons.rejected.connect(self.reject)
        self._arrange(parent)
        self._fill(0)
        self._show_turn()

    def _make_list(self) -> None:
        self.list = _List()
        self.list.setProperty("tone", "order")
        self.list.setAccessibleName(_("Participants, in the order of their turns"))
        self.list.setMinimumHeight(5 * self.fontMetrics().height())
        self.list.currentRowChanged.connect(self._show_current)
        self.add = QPushButton(_("Add"))
        self.add.setAccessibleName(_("Add participant"))
        self.add.setAutoDefault(False)
        self.menu = QMenu(self.add)
        self.menu.aboutToShow.connect(self._fill_menu)
        self.add.setMenu(self.menu)
        self.up, self.down = (
            IconButton("chevron-up", _("Move up")),
            IconButton("chevron-down", _("Move down")),
        )
        self.remove = IconButton("trash", _("Remove participant"))
        self.up.clicked.connect(partial(self._move, -1))
        self.down.clicked.connect(partial(self._move, 1))
        self.remove.clicked.connect(self._remove)

    def _make_fields(self, cast: Cast) -> None:
        self.name = QLineEdit()
        self.name.setAccessibleName(_("Name"))
        self.name.setMaxLength(LONGEST_NAME)
        self.name.textEdited.connect(self._edited)
        self.about = GrowingTextEdit(_("Description for the model"), least=3, most=6)
        self.about.textChanged.connect(self._edited)
        self.own = QLineEdit(", ".join(cast.own))
        self.own.setAccessibleName(_("Your names"))
        self.own.setPlaceholderText(_("User"))
        self.own.setToolTip(_("The names you write as, separated by commas"))
        self.turn = ComboBox()
        self.turn.setAccessibleName(_("Who replies"))
        for value, words in ((value, translate(words)) for value, words in _TURNS):
            self.turn.addItem(words, value)
        self.turn.setCurrentIndex(self.turn.findData(cast.turn))
        self.turn.currentIndexChanged.connect(self._show_turn)
        self.automatic = QSpinBox()
        self.automatic.setAccessibleName(_("Replies before your turn"))
        guard_wheel(self, self.automatic)
        self.automatic.setRange(0, MOST_AUTOMATIC)
        self.automatic.setValue(cast.automatic)
        self.automatic.lineEdit().setTextMargins(6, 0, 6, 0)

    def _arrange(self, parent: QWidget) -> None:
        tools = fill(FlowLayout(), self.add, 1, self.up, self.down, self.remove)
        form = self._form = QFormLayout()
        form.setVerticalSpacing(8)
        form.setHorizontalSpacing(12)
        form.setRowWrapPolicy(QFormLayout.RowWrapPolicy.WrapLongRows)
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.ExpandingFieldsGrow)
        form.addRow(_("Name"), self.name)
        form.addRow(_("About"), self.about)
        form.addRow(_("Your names"), self.own)
        form.addRow(_("Who replies"), self.turn)
        self._label = text_label(_("Replies before your turn"))
        self._label.setBuddy(self.automatic)
        form.addRow(self._label, self.automatic)
        hint = text_label(translate(_HINT), "muted", wraps=True)
        self.nothing = text_label(translate(_NOTHING), "muted", wraps=True)
        content = QWidget()
        # only the placeholder may have any size
        fill(QVBoxLayout(content), self.nothing, (self.list, 100), tools, form, hint, self.trouble, 1,
             margins=(0, 0, 0, 0))  # fmt: skip
        dialog_margins(fill(QVBoxLayout(self), (DialogBody(content), 1), self.buttons))
        line = self.fontMetrics().height()
        self._place_labels(parent.width())
        self.resize(min(30 * line, max(320, parent.width() - 24)), min(34 * line, parent.height() - 24))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_labels(self.width())

    def _place_labels(self, width: int) -> None:
        """In a narrow dialog labels are above their fields."""
        words = _("Replies before your turn")
        narrow = width < _NARROW * self._label.fontMetrics().horizontalAdvance(words)
        policy = QFormLayout.RowWrapPolicy
        self._form.setRowWrapPolicy(policy.WrapAllRows if narrow else policy.WrapLongRows)
        # a form gives labels that wrap by themselves the width that they like
        room = width - 2 * SCALE[3] - self.style().pixelMetric(QStyle.PixelMetric.PM_ScrollBarExtent)
        self._label.setText(wrapped_lines(words, self._label.font(), room))

    # -- what the user does

    def cast(self) -> Cast:
        """The cast that the fields describe."""
        own = [name_of(name) for name in self.own.text().split(",")]
        made = replace(self._kept, participants=tuple(self._participants),
            own=tuple(dict.fromkeys(filter(None, own))),
                       turn=str(self.turn.currentData()), automatic=self.automatic.value())  # fmt: skip
        return replace(made, writing_as=made.writing_as if made.writing_as in made.own else "")

    def add_persona(self, persona: Persona) -> None:
        """Add a persona to the cast."""
        self._append(Participant(self._free(name_of(persona.name) or _("Persona")), "", persona.id))

    def add_other(self) -> None:
        """Add a participant who is not a persona."""
        self._append(Participant(self._free(_("Participant"))))
        self.name.setFocus()
        self.name.selectAll()

    def _append(self, participant: Participant) -> None:
        self._participants.append(participant)
        self._fill(len(self._participants) - 1)

    def _free(self, name: str) -> str:
        taken = {participant.name.casefold() for participant in self._participants}
        names = (name, *(f"{name} {number}" for number in range(2, MOST_PARTICIPANTS + 2)))
        return next(each for each in names if each.casefold() not in taken)

    def _fill_menu(self) -> None:
        self.menu.clear()
        here = {participant.persona for participant in self._participants}
        side = round(self.fontMetrics().height() * 1.2)
        for persona in self._personas.values():
            if persona.id not in here:
                icon = QIcon(self._draw(persona.id, persona.name, side))
                self.menu.addAction(
                    icon, persona.name.replace("&", "&&"), partial(self.add_persona, persona)
                ).setIconVisibleInMenu(True)
        if self.menu.actions():
            self.menu.addSeparator()
        self.menu.addAction(_("Another participant…"), self.add_other)

    def _move(self, step: int) -> None:
        row = self.list.currentRow()
        to = row + step
        if 0 <= row < len(self._participants) and 0 <= to < len(self._participants):
            self._participants[row], self._participants[to] = self._participants[to], self._participants[row]
            self._fill(to)

    def _remove(self) -> None:
        row = self.list.currentRow()
        if 0 <= row < len(self._participants):
            del self._participants[row]
            self._fill(min(row, len(self._participants) - 1))

    def _edited(self) -> None:
        row = self.list.currentRow()
        if not 0 <= row < len(self._participants):
            return
        persona = self._participants[row].persona
        name = self._participants[row].name if persona else name_of(self.name.text())
        self._participants[row] = Participant(name, self.about.text().strip(), persona)
        self.list.item(row).setText(self._shown(self._participants[row]))
        self.trouble.setText(self._problem())

    def _accept(self) -> None:
        problem = self._problem()
        self.trouble.setText(problem)
        if not problem:
            self.accepted_cast.emit(self.cast())
            self.accept()

    def _problem(self) -> str:
        """Why this cast is invalid; "" if it is valid."""
        names = [participant.name.casefold() for participant in self._participants]
        own = {name.casefold() for name in self.cast().own}
        if "" in names:
            return _("A participant has no name. Enter one, or remove the participant.")
        twice = next(
            (
                self._participants[place].name
                for place, name in enumerate(names)
                if name in names[:place] or name in own
            ),
            "",
        )
        return (
            _(
                "Two participants are named {twice}, so the model cannot tell them apart. Rename "
                "one of them.",
                twice=twice,
            )
            if twice
            else ""
        )

    # -- what is shown

    def _shown(self, participant: Participant) -> str:
        persona = self._personas.get(participant.persona)
        return persona.name if persona is not None else participant.name or _("(no name)")

    def _fill(self, current: int) -> None:
        with QSignalBlocker(self.list):
            self.list.clear()
            side = round(self.fontMetrics().height() * 1.4)
            for participant in self._participants:
                item = QListWidgetItem(self._shown(participant))
                item.setIcon(QIcon(self._draw(participant.persona, self._shown(participant), side)))
                self.list.addItem(item)
            self.list.setIconSize(QSize(side, side))
        self.list.setCurrentRow(current)
        self._show_current(self.list.currentRow())

    def _show_current(self, row: int) -> None:
        there = 0 <= row < len(self._participants)
        found = self._participants[row] if there else Participant("")
        persona = self._personas.get(found.persona)
        self.name.setText(self._shown(found) if there else "")
        self.name.setReadOnly(persona is not None)
        self.name.setToolTip(_("To rename a persona, choose Manage personas") if persona is not None else "")
        with QSignalBlocker(self.about):
            self.about.show_text(found.description)
        placeholder = (
            _("Added to the persona's system prompt")
            if persona is not None
            else _("Who this is, how they speak, what they want")
        )
        self.about.setPlaceholderText(placeholder)
        self._form.setRowVisible(self.name, there)
        self._form.setRowVisible(self.about, there)
        self.list.setVisible(bool(self._participants))
        self.nothing.setVisible(not self._participants)
        self.add.setEnabled(len(self._participants) < MOST_PARTICIPANTS)
        self.remove.setEnabled(there)
        self.up.setEnabled(row > 0)
        self.down.setEnabled(there and row + 1 < len(self._participants))

    def _show_turn(self) -> None:
        by_hand = self.turn.currentData() == "hand"
        self.automatic.setEnabled(not by_hand)
