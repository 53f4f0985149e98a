"""The files of the next message as chips: name, number of tokens, preview, remove."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtGui import QIcon, QImage, QPainter, QPalette, QPixmap, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy, QToolButton, QWidget

from desktop.services.composer.attachments import Held
from desktop.services.system.debounce import debounce
from desktop.store.attachments.message_format import Attachment, kind_of, note_text
from desktop.store.attachments.picture_marks import ADDRESS
from desktop.views.layout.fill import fill
from desktop.views.transcript.rendering.image_loader import ImageKey, ImageLoader
from desktop.views.transcript.row_widgets.picture import picture_name
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.icons import IconButton, tinted
from desktop.views.widgets.scroll_area import DialogBody
from desktop.views.widgets.text_label import text_label
from engine.words import _, ngettext

__all__ = ["AttachmentChips", "count_words"]

_LONGEST_NAME = 26
_THUMBNAIL = 2.4
"""The side of a picture, in lines of text."""
_AROUND = 12
"""Pixels of a chip that are between its parts and around them."""
_MOST_LINES = 9
"""Lines of text that the chips are as high as, at most."""
_AT_ONCE = 6
"""Chips that are made in one turn of the event loop: each takes some milliseconds, and hundreds of files may
be dropped.
"""
_GAP = 8
"""Pixels beside a picture that is as wide as high, half of them before the name."""


def count_words(held: Held) -> str:
    """Its number of tokens, estimates with a ~."""
    return ("" if held.exact else "~") + ngettext("{n} token", "{n} tokens", held.tokens)


class AttachmentChips(DialogBody):
    """Emits `opened(key)`, `removed(key)`, and `stopped()` to stop reading files. Scrolls where there is room
    for fewer lines of chips, or for more than `_MOST_LINES` of text.
    """

    opened = Signal(int)
    removed = Signal(int)
    stopped = Signal()

    def __init__(self) -> None:
        body = QWidget()
        super().__init__(body)
        self._flow = FlowLayout(body, 6)
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        self._reading = QFrame(body)
        self._reading.setObjectName("chip")
        words = text_label(_("Reading…"), "muted")
        self.stop = IconButton("close", _("Stop reading files"))
        self.stop.clicked.connect(self.stopped)
        fill(QHBoxLayout(self._reading), words, self.stop, margins=(8, 1, 2, 1), spacing=4)
        self._reading.hide()
        self.chips: list[_Chip] = []
        self._further = debounce(self, self._show_further)
        self._shown: tuple[Sequence[Held], int] = ((), 0)
        self._pictures: ImageLoader | None = None
        self.hide()

    def heightForWidth(self, width: int) -> int:
        return min(super().heightForWidth(width), _MOST_LINES * self.fontMetrics().lineSpacing())

    def minimumSizeHint(self) -> QSize:
        """One line of chips."""
        return QSize(1, min(self.heightForWidth(self.width()), self._reading.sizeHint().height()))

    def show_pictures_of(self, pictures: ImageLoader) -> None:
        """Let `pictures` load the pictures to show."""
        self._pictures = pictures
        pictures.arrived.connect(lambda _keys: self._show_pictures())

    def _show_pictures(self) -> None:
        for chip in self.chips:
            if self._pictures is not None:
                chip.show_picture(self._pictures)

    def show_held(self, all_held: Sequence[Held], reading: int = 0) -> None:
        """Show these chips, and that `reading` more files are being read. Chips of files that are shown
        already stay; of more than a few new ones, the rest follow soon.
        """
        self._shown = (tuple(all_held), reading)
        present = {held.key: held for held in all_held}
        self._remove([chip for chip in self.chips if chip.key not in present])
        for chip in self.chips:
            chip.show_count(present[chip.key])
        if not self._further.isActive():
            self._show_further()
        self._reading.setVisible(reading > 0)
        self.setVisible(bool(all_held) or reading > 0)
        self.updateGeometry()

    def _show_further(self) -> None:
        """Make the next chips."""
        known = {chip.key for chip in self.chips}
        waiting = (held for held in self._shown[0] if held.key not in known)
        new = [_Chip(held) for held in itertools.islice(waiting, _AT_ONCE)]
        if not new:
            return
        self._flow.removeWidget(self._reading)
        for chip in new:
            self._flow.addWidget(chip)
            chip.opened.connect(self.opened)
            chip.removed.connect(self.removed)
            chip.show()
            if self._pictures is not None:
                chip.show_picture(self._pictures)
        self._flow.addWidget(self._reading)
        self.chips += new
        self._further.start()

    def _remove(self, chips: Sequence[_Chip]) -> None:
        for chip in chips:
            self.chips.remove(chip)
            self._flow.removeWidget(chip)
            chip.hide()
            chip.deleteLater()

    def changeEvent(self, event: QEvent) -> None:
        """Follow the theme and the text size."""
        super().changeEvent(event)
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange) and getattr(
            self, "chips", None
        ):
            self._remove(tuple(self.chips))
            self.show_held(*self._shown)


class _Chip(QFrame):
    opened = Signal(int)
    removed = Signal(int)

    def __init__(self, held: Held) -> None:
        super().__init__()
        self.setObjectName("chip")
        self.key = held.key
        self._mark = held.attachment.picture
        name = _shortened(held.attachment)
        self.face = QToolButton()
        self.face.setAutoRaise(True)
        self.face.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self._name = name
        self.face.setText(name.replace("&", "&&"))
        self.face.setToolTip(
            _("{attachment}\nClick to preview the text that the model reads", attachment=held.attachment.name)
            if self._mark is None
            else _("{name}\nClick to open it", name=held.attachment.name)
        )
        colour = self.palette().color(QPalette.ColorGroup.Active, QPalette.ColorRole.WindowText).name()
        side = round(self.face.fontMetrics().height() * 1.05)
        self.face.setIconSize(QSize(side, side))
        kind = kind_of(held.attachment.name) if self._mark is None else "picture"
        self.face.setIcon(tinted(kind, colour, colour))
        self.count = text_label("", "muted")
        self.close_button = IconButton("close", _("Remove {attachment}", attachment=held.attachment.name))
        fill(QHBoxLayout(self), self.face, self.count, self.close_button, margins=(2, 1, 2, 1), spacing=4)
        self.setMinimumWidth(1)
        self._held: Held | None = None
        self.show_count(held)
        self.face.clicked.connect(lambda: self.opened.emit(self.key))
        self.close_button.clicked.connect(lambda: self.removed.emit(self.key))

    def show_count(self, held: Held) -> None:
        """Show the number of tokens, as it is known now."""
        if held is self._held:
            return
        self._held = held
        self.count.setText(
            count_words(held) + (f", {note_text(held.attachment.note)}" if held.attachment.note else "")
        )
        self.face.setAccessibleName(
            _("Preview of {attachment}, {size}", attachment=held.attachment.name, size=count_words(held))
            if self._mark is None
            else picture_name(self._mark)
        )

    def sizeHint(self) -> QSize:
        """With the whole name."""
        hint, metrics = super().sizeHint(), self.face.fontMetrics()
        hidden = metrics.horizontalAdvance(self._name.replace("&", "&&")) - metrics.horizontalAdvance(
            self.face.text()
        )
        return QSize(hint.width() + max(0, hidden) + 1, hint.height())  # advances are rounded

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Shorten the name, which the tip has whole, where there is no room for it."""
        super().resizeEvent(event)
        beside = self.face.sizeHint().width() - self.face.fontMetrics().horizontalAdvance(self.face.text())
        least = self.count.sizeHint().width() + self.close_button.sizeHint().width() + _AROUND
        room = self.width() - least - beside
        shown = self.face.fontMetrics().elidedText(self._name, Qt.TextElideMode.ElideMiddle, room)
        if shown.replace("&", "&&") != self.face.text():
            self.face.setText(shown.replace("&", "&&"))

    def show_picture(self, pictures: ImageLoader) -> None:
        """Show the picture as soon as it is loaded."""
        if self._mark is None:
            return
        side = round(self.face.fontMetrics().height() * _THUMBNAIL)
        key = ImageKey(ADDRESS + self._mark.key, width=side, ratio=self.devicePixelRatioF())
        found = pictures.get(key)
        if found is not None:
            self.face.setIconSize(QSize(side + _GAP, side))
            gap, height = round(_GAP * key.ratio), round(side * key.ratio)
            self.face.setIcon(QIcon(_in_middle(found.image, QSize(height + gap, height))))
        elif not pictures.known(key):
            pictures.want(key)


def _in_middle(image: QImage, size: QSize) -> QPixmap:
    """A picture in the middle of `size` device pixels, so that all chips are equally high."""
    room = QPixmap(size)
    room.fill(Qt.GlobalColor.transparent)
    painter = QPainter(room)
    painter.drawImage((size.width() - image.width()) // 2, (size.height() - image.height()) // 2, image)
    painter.end()
    return room


def _shortened(attachment: Attachment) -> str:
    """The name; a long one loses its middle."""
    name = attachment.name
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME // 2]}…{name[-_LONGEST_NAME // 2 + 1 :]}"
