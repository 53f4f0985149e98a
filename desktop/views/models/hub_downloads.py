"""The downloads below the hub's lists, each with its progress and buttons."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QProgressBar, QPushButton, QVBoxLayout, QWidget

from desktop.services.models.hub import Fetching, HubService
from desktop.views.layout.fill import fill
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.text_label import text_label
from engine.units import size_text
from engine.words import N_, _, dotted, translate

__all__ = ["DownloadList"]

_WORDS = {
    "waiting": N_("Waiting"),
    "running": N_("Downloading"),
    "paused": N_("Paused"),
    "failed": N_("Failed"),
    "finished": N_("Ready"),
}


class _Download(QWidget):
    """One download."""

    load_requested = Signal(str)

    def __init__(self, service: HubService) -> None:
        super().__init__()
        self._service = service
        self._fetching: Fetching | None = None
        self.text = text_label(wraps=True, plain=True)
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.bar.setFixedHeight(8)
        self.pause, self.resume = QPushButton(_("Pause")), QPushButton(_("Resume"))
        self.cancel, self.load, self.done = (
            QPushButton(_("Cancel")),
            QPushButton(_("Load")),
            QPushButton(_("Dismiss")),
        )
        self.cancel.setToolTip(_("Cancel and delete the partial download."))
        self.pause.clicked.connect(lambda: self._service.pause(self._now().key))
        self.resume.clicked.connect(lambda: self._service.download(self._now().choice))
        self.cancel.clicked.connect(lambda: self._service.discard(self._now().key))
        self.done.clicked.connect(lambda: self._service.forget(self._now().key))
        self.load.clicked.connect(lambda: self.load_requested.emit(self._now().path))
        line = fill(FlowLayout(), (self.bar, 1), self.pause, self.resume, self.load, self.done, self.cancel)
        fill(QVBoxLayout(self), self.text, line, margins=(0, 4, 0, 4), spacing=4)

    def show_download(self, fetching: Fetching) -> None:
        """Show its progress."""
        new_state = self._fetching is None or self._fetching.state != fetching.state
        self._fetching = fetching
        name = f"{fetching.choice.model_id} ({fetching.choice.title})"
        amount = (
            _("{size} of {size_2}", size=size_text(fetching.done), size_2=size_text(fetching.total))
            if fetching.total
            else ""
        )
        status = fetching.sentence or translate(_WORDS[fetching.state])
        if fetching.state == "failed":
            status = _("Failed: {reason}", reason=status)
        self.text.setText(dotted(name, status, amount))
        self.bar.setRange(0, 1000)
        self.bar.setValue(min(1000, fetching.done * 1000 // fetching.total) if fetching.total else 0)
        self.bar.setAccessibleName(_("Download of {name}", name=name))
        if new_state:
            going = fetching.state in ("waiting", "running")
            self.pause.setVisible(going)
            self.resume.setVisible(fetching.state in ("paused", "failed"))
            self.resume.setText(_("Resume") if fetching.state == "paused" else _("Retry"))
            self.load.setVisible(fetching.state == "finished")
            self.done.setVisible(fetching.state == "finished")
            self.cancel.setVisible(fetching.state != "finished")
            self.text.setProperty("tone", "danger" if fetching.state == "failed" else "")
            self.text.style().polish(self.text)
            for button in (self.pause, self.resume, self.cancel, self.load, self.done):
                button.setAccessibleName(f"{button.text()} {name}")

    def _now(self) -> Fetching:
        assert self._fetching is not None
        return self._fetching


class DownloadList(QWidget):
    """A row for each download; `load_requested(path)`."""

    load_requested = Signal(str)

    def __init__(self, service: HubService, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._service = service
        self._rows: dict[tuple[str, str], _Download] = {}
        self.setObjectName("downloadsBody")
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 6, 0)
        self._layout.setSpacing(2)

    def show_downloads(self, downloads: Sequence[Fetching]) -> None:
        """Show exactly these."""
        for key in set(self._rows) - {fetching.key for fetching in downloads}:
            row = self._rows.pop(key)
            self._layout.removeWidget(row)
            row.hide()
            row.deleteLater()
        for fetching in downloads:
            if fetching.key not in self._rows:
                row = self._rows[fetching.key] = _Download(self._service)
                row.load_requested.connect(self.load_requested)
                self._layout.addWidget(row)
            self._rows[fetching.key].show_download(fetching)

    def row(self, key: tuple[str, str]) -> _Download:
        """The row of one download."""
        return self._rows[key]
