"""The row of names above the message box: the participants, and the name that the user writes as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import QEvent, QSize, Signal
from PySide6.QtGui import QAction, QActionGroup, QIcon, QPixmap
from PySide6.QtWidgets import QMenu, QPushButton, QWidget

from desktop.services.session.scene import SceneParticipant
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.menu_button import MenuButton
from desktop.views.widgets.text_label import set_styled, text_label
from engine.words import _

__all__ = ["ParticipantsBar"]

_NAME_CHARACTERS = 24
Draw = Callable[[int, str, int], QPixmap]


class ParticipantsBar(QWidget):
    """`chosen(name)`: this participant is to answer; `writing_as(name)`: the user writes under another name;
    `edit_requested()`: the cast is to be changed. `draw(persona, name, side)` returns a picture. The row
    is hidden in a plain chat.
    """

    chosen = Signal(str)
    writing_as = Signal(str)
    edit_requested = Signal()

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self._draw = draw
        self.setAccessibleName(_("Participants"))
        self._flow = FlowLayout(self, 6)
        self._participants: tuple[SceneParticipant, ...] = ()
        self.buttons: list[QPushButton] = []
        self.title = text_label(tone="muted")
        self._flow.addWidget(self.title)
        self.user = MenuButton()
        self.user.setObjectName("roleUser")
        self._menu = QMenu(self.user)
        self._menu.setAccessibleName(_("Your names"))
        self._names = QActionGroup(self._menu)
        self.user.setMenu(self._menu)
        self._flow.addWidget(self.user)
        self.hide()

    def show_cast(
        self,
        participants: Sequence[SceneParticipant],
        own: Sequence[str],
        user: str,
        next_name: str,
        by_hand: bool,
    ) -> None:
        """Show the cast; `next_name` answers the next message, `user` is the name that the user writes as."""
        self._participants = tuple(participants)
        while len(self.buttons) < len(participants):
            button = QPushButton()
            button.setObjectName("roleButton")
            button.clicked.connect(partial(self._clicked, len(self.buttons)))
            self.buttons.append(button)
            self._flow.removeWidget(self.user)
            self._flow.addWidget(button)
            self._flow.addWidget(self.user)
        self.title.setText(_("Who replies?") if by_hand else _("Next to reply:"))
        for button, participant in zip(self.buttons, participants, strict=False):
            button.setText(f" {_short(participant.name)}")  # The space separates the text from the picture.
            name = participant.name
            if name == next_name:
                button.setToolTip(_("Let {name} reply now. {name} replies next.", name=name))
                button.setAccessibleName(_("Let {name} reply, next to reply", name=name))
            else:
                button.setToolTip(_("Let {name} reply now", name=name))
                button.setAccessibleName(_("Let {name} reply", name=name))
            set_styled(button, "next", participant.name == next_name)
        for place, button in enumerate(self.buttons):
            button.setVisible(place < len(participants))
        if self.buttons:
            self.title.setMinimumHeight(self.buttons[0].sizeHint().height())
        self._show_user(own, user)
        self._paint()
        self.setVisible(bool(participants))

    def _show_user(self, own: Sequence[str], user: str) -> None:
        self._menu.clear()
        for name in own:
            action = QAction(name.replace("&", "&&"), self._names)
            action.setCheckable(True)
            action.setChecked(name == user)
            action.triggered.connect(partial(self.writing_as.emit, name))
            self._menu.addAction(action)
        if own:
            self._menu.addSeparator()
        self._menu.addAction(_("Participants…"), self.edit_requested.emit)
        shown = _short(user) if user else _("You")
        self.user.setText(_("You: {shown} ▾", shown=shown) if user else f"{shown} ▾")
        self.user.setToolTip(_("Choose the name you write as, or edit the participants"))
        self.user.setAccessibleName(
            _("You write as {user}", user=user) if user else _("You and the other participants")
        )

    def set_busy(self, busy: bool) -> None:
        """Disable the buttons while a reply is written."""
        for button in self.buttons:
            button.setEnabled(not busy)

    def _clicked(self, place: int) -> None:
        if place < len(self._participants):
            self.chosen.emit(self._participants[place].name)

    def _paint(self) -> None:
        side = round(self.fontMetrics().height() * 1.2)
        for button, participant in zip(self.buttons, self._participants, strict=False):
            button.setIcon(QIcon(self._draw(participant.persona, participant.name, side)))
            button.setIconSize(QSize(side, side))

    def changeEvent(self, event: QEvent) -> None:
        """Follow the theme and the text size."""
        super().changeEvent(event)
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange) and hasattr(self, "user"):
            self._paint()


def _short(name: str) -> str:
    return (name if len(name) <= _NAME_CHARACTERS else name[: _NAME_CHARACTERS - 1] + "…").replace("&", "&&")
