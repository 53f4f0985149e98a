"""A picture of a message in a window of its own; copying and saving it."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QGuiApplication, QImage, QPixmap, QResizeEvent
from PySide6.QtWidgets import QDialog, QLabel, QPushButton, QVBoxLayout, QWidget

from desktop.store.attachments.picture_marks import ADDRESS, PictureMark
from desktop.store.attachments.pictures import StoredPicture
from desktop.views.dialogs.file_dialogs import ask_save
from desktop.views.dialogs.message_box import warn
from desktop.views.layout.fill import fill
from desktop.views.layout.spacing import dialog_margins
from desktop.views.transcript.rendering.image_loader import ImageKey, ImageLoader
from desktop.views.transcript.row_widgets.picture import picture_name
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.text_label import text_label
from engine.words import _

__all__ = ["PictureViewer", "ask_and_save_picture", "copy_picture", "size_words"]


def size_words(mark: PictureMark, picture: StoredPicture) -> str:
    """The size of a picture: "640 × 480, 120 kB"."""
    return _(
        "{width} × {height}, {kilobytes:,.0f} kB",
        width=mark.width,
        height=mark.height,
        kilobytes=max(1.0, len(picture.data) / 1000),
    )


def copy_picture(picture: StoredPicture) -> None:
    """Put a picture on the clipboard."""
    image = QImage.fromData(picture.data)
    if not image.isNull():
        QGuiApplication.clipboard().setImage(image)


def ask_and_save_picture(parent: QWidget, mark: PictureMark, picture: StoredPicture) -> None:
    """Ask where to save a picture, without blocking, and save it there."""
    ending = ".png" if picture.media_type == "image/png" else ".jpg"
    stem = Path(mark.name or "picture").stem or "picture"
    ask_save(
        parent, _("Save picture"), stem + ending, lambda chosen: _save(parent, chosen[0], picture.data)
    ).setObjectName("savePicture")


def _save(parent: QWidget, path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        words = _(
            "The picture could not be saved as “{path}” ({reason}). Choose another place.",
            path=path,
            reason=error.strerror or error,
        )
        warn(words, parent).setObjectName("saveFailed")


class PictureViewer(QDialog):
    """Shows a picture as large as the window allows; `pictures` loads it."""

    def __init__(
        self, mark: PictureMark, picture: StoredPicture, pictures: ImageLoader, parent: QWidget
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle(mark.name or _("Picture"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._pictures, self._pixmap = pictures, QPixmap()
        self._key = ImageKey(ADDRESS + mark.key, width=max(mark.width, mark.height))
        self.label = QLabel()
        self.label.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.label.setMinimumSize(1, 1)
        self.label.setAccessibleName(picture_name(mark))
        details = text_label(size_words(mark, picture), "muted", wraps=True)
        copy, save, shut = QPushButton(_("Copy")), QPushButton(_("Save as…")), QPushButton(_("Close"))
        copy.clicked.connect(lambda: copy_picture(picture))
        save.clicked.connect(lambda: ask_and_save_picture(self, mark, picture))
        shut.clicked.connect(self.reject)
        shut.setDefault(True)
        buttons = fill(FlowLayout(), copy, save, 1, shut)
        dialog_margins(fill(QVBoxLayout(self), (self.label, 1), details, buttons))
        room = parent.window().size() - QSize(40, 60)
        natural = QSize(mark.width + 40, mark.height + 120)
        self.resize(natural.boundedTo(room).expandedTo(QSize(280, 240)))
        pictures.arrived.connect(self._arrived)
        pictures.want(self._key)
        self._arrived({self._key})

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._draw()

    def _arrived(self, keys: set[ImageKey]) -> None:
        found = self._pictures.get(self._key) if self._key in keys else None
        if found is not None:
            self._pixmap = QPixmap.fromImage(found.image)
            self._draw()

    def _draw(self) -> None:
        """Shrink the picture to the label; a small one stays as it is."""
        if self._pixmap.isNull():
            return
        ratio = self.devicePixelRatioF()
        room = self.label.size() * ratio
        shown = self._pixmap
        if shown.width() > room.width() or shown.height() > room.height():
            shown = shown.scaled(
                room, Qt.AspectRatioMode.KeepAspectRatio, Qt.TransformationMode.SmoothTransformation
            )
        shown.setDevicePixelRatio(ratio if shown is not self._pixmap else 1.0)
        self.label.setPixmap(shown)
