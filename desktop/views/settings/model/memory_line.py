"""The memory that the chosen context will need, and the request to load the model again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from desktop.views.layout.fill import fill
from desktop.views.widgets.text_label import set_styled, text_label
from engine.core import ModelInfo
from engine.errors import BadSetting
from engine.settings import CacheSettings, LoadSettings
from engine.units import size_text
from engine.words import N_, _, translate

if TYPE_CHECKING:
    from engine.backends.choice import Usable

__all__ = ["MemoryLine", "ReloadStrip"]


class ReloadStrip(QWidget):
    """Says that changed settings take effect when the model is loaded again, with a button for that."""

    requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        words = text_label(_("These changes take effect when the model is reloaded."), "muted", wraps=True)
        self.button = QPushButton(_("Reload now"))
        self.button.setToolTip(_("Reload the model with these settings."))
        self.button.clicked.connect(self.requested)
        fill(QHBoxLayout(self), (words, 1), self.button, margins=(0, 0, 0, 0))
        self._inside = (words, self.button)
        self.show_needed(False)

    def show_needed(self, needed: bool) -> None:
        """Show it if the model must be loaded again."""
        for part in self._inside:
            part.setVisible(needed)


class MemoryLine(QWidget):
    """The estimate for a model and its cache settings; a warning if the memory is not available."""

    def __init__(self) -> None:
        super().__init__()
        self._info: ModelInfo | None = None
        self._settings, self._load = CacheSettings(), LoadSettings()
        self._usable: Usable | None = None
        self.label = text_label(tone="muted", wraps=True)
        fill(QVBoxLayout(self), self.label, margins=(0, 0, 0, 0))
        self._write("", True)

    def show_estimate(
        self,
        info: ModelInfo | None,
        settings: CacheSettings,
        load: LoadSettings = LoadSettings(),
        usable: Usable | None = None,
    ) -> None:
        """Show the estimate for the loaded model (None: there is none) on its device; `usable` are the GPUs,
        if known.
        """
        self._info, self._settings, self._load, self._usable = info, settings, load, usable
        if self.isVisible():
            self._estimate()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._estimate()

    def _estimate(self) -> None:
        if self._info is None:
            self._write(_("Load a model to see how much memory its context needs."), True)
            return
        # A source without a cache of its own.
        if not self._info.kv_shapes and not self._info.state_bytes:
            self._write(_("This model has no cache on this computer."), True)
            return
        # With a model loaded, all that these import has been imported.
        from engine.backends.choice import Usable
        from engine.models.memory.estimate import cache_bytes
        from engine.models.memory.fit import likely_target

        info = self._info
        target = likely_target(info, self._settings, self._load, self._usable or Usable(), info)
        stays = target.where == info.where
        # Its weights have been placed, or need a place.
        busy = -info.cache_bytes if stays else info.resident_bytes or info.weights_bytes

        try:
            found = cache_bytes(
                info, self._settings, target.backend, busy=busy, free=target.free, where=target.where
            )
        except BadSetting as error:
            self._write(str(error), False)
            return
        if target.where:
            words = N_("{tokens:,} tokens: {size} ({each} per token); {free} free on {where}")
        else:
            words = N_("{tokens:,} tokens: {size} ({each} per token); {free} free")
        text = translate(
            words,
            tokens=found.context_length,
            size=size_text(found.context_bytes),
            each=size_text(found.bytes_per_token),
            free=size_text(found.free_bytes),
            where=target.where,
        )
        if found.total_bytes > found.context_bytes:
            total = size_text(found.total_bytes)
            text = _("{text}. With the caches of other chats, up to {size}.", text=text, size=total)
        if not found.fits:
            text = _(
                "{text}. This does not fit in memory. Choose a shorter context or a smaller cache type.",
                text=text.rstrip("."),
            )
        self._write(text, found.fits)

    def _write(self, text: str, good: bool) -> None:
        set_styled(self.label, "tone", "muted" if good else "danger")
        self.label.setText(text)
        self.label.setAccessibleName(_("Memory for the context: {text}", text=text))
