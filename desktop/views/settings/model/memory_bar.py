"""Memory as stacked bars with a legend: weights, cache, draft model, work space, other programs, free."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import (
    QBrush,
    QColor,
    QGuiApplication,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QPalette,
    QShowEvent,
)
from PySide6.QtWidgets import QGridLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from desktop.services.models.memory_forecast import MEMORY, PARTS, MemoryForecast, Place
from desktop.views.layout.fill import fill
from desktop.views.widgets.text_label import text_label
from engine.errors import BadSetting
from engine.units import size_text
from engine.words import _, paragraph, translate

__all__ = ["MemoryBar", "fit_words"]


def fit_words(places: Sequence[Place]) -> str:
    """The warning if something does not fit; empty if everything does."""
    short = [place for place in places if place.free < 0]
    if not short:
        return ""
    return paragraph(
        *(
            _("This will not fit: {size} more memory is needed.", size=size_text(-place.free))
            if place.name == MEMORY
            else _(
                "This will not fit: {size} more memory is needed on {place}.",
                size=size_text(-place.free),
                place=place.name,
            )
            for place in short
        ),
        _("Choose a shorter context, a smaller cache type, no draft model, or a smaller model."),
    )


def _shade(palette: QPalette, part: int) -> tuple[QColor, Qt.BrushStyle]:
    """Parts differ in lightness and pattern, not in hue alone."""
    accent, text = palette.color(QPalette.ColorRole.Highlight), palette.color(QPalette.ColorRole.WindowText)
    pale = QColor(accent)
    pale.setAlphaF(0.5)
    grey = QColor(text)
    grey.setAlphaF(0.38)
    solid, striped = Qt.BrushStyle.SolidPattern, Qt.BrushStyle.BDiagPattern
    return (
        (grey, solid),
        (accent, solid),
        (pale, solid),
        (accent, striped),
        (text, Qt.BrushStyle.Dense5Pattern),
    )[part]


class _Swatch(QWidget):
    """The colour of a part, beside its name."""

    def __init__(self, part: int) -> None:
        super().__init__()
        self._part = part
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        side = round(self.fontMetrics().height() * 0.7)
        return QSize(side, side)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        box = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        painter.setPen(self.palette().color(QPalette.ColorRole.Dark))
        if self._part < len(PARTS):
            painter.setBrush(QBrush(*_shade(self.palette(), self._part)))
        painter.drawRoundedRect(box, 3, 3)
        painter.end()


class _Bar(QWidget):
    """One memory. What exceeds it is drawn beyond a mark, in the warning colour."""

    def __init__(self) -> None:
        super().__init__()
        self._place = Place("", 0, ())

    def show_place(self, place: Place) -> None:
        self._place = place
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(120, round(self.fontMetrics().height() * 0.9))

    def paintEvent(self, event: QPaintEvent) -> None:
        place, palette = self._place, self.palette()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        frame = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        shape = QPainterPath()
        shape.addRoundedRect(frame, 5, 5)
        # Its own colour is that of its background.
        painter.fillPath(shape, QGuiApplication.palette().color(QPalette.ColorRole.Base))
        painter.setClipPath(shape)
        whole = max(place.total, sum(place.parts), 1)
        x, mirrored = 0.0, self.layoutDirection() == Qt.LayoutDirection.RightToLeft
        for part, size in enumerate(place.parts):
            width = frame.width() * size / whole
            left = frame.right() - x - width if mirrored else frame.left() + x
            painter.fillRect(QRectF(left, frame.top(), width, frame.height()), QBrush(*_shade(palette, part)))
            x += width
        if place.free < 0:
            over = frame.width() * -place.free / whole
            left = frame.left() if mirrored else frame.right() - over
            painter.fillRect(
                QRectF(left, frame.top(), over, frame.height()), palette.color(QPalette.ColorRole.BrightText)
            )
        painter.setClipping(False)
        painter.setPen(
            palette.color(QPalette.ColorRole.BrightText if place.free < 0 else QPalette.ColorRole.Dark)
        )
        painter.drawPath(shape)
        painter.end()


class MemoryBar(QWidget):
    """Asks `source` while it is visible, and shows a bar for each memory, the legend, and a warning if it
    will not fit.
    """

    def __init__(self, source: MemoryForecast) -> None:
        super().__init__()
        self._source = source
        self._titles: list[QLabel] = []
        self._bars: list[_Bar] = []
        self._of_draft: list[QWidget] = []
        self._sizes = [QLabel() for _unused in (*map(translate, PARTS), _("Free"))]
        self._lines = QVBoxLayout()
        self._lines.setSpacing(4)
        self.warning = text_label(tone="danger", wraps=True)
        self.words = text_label(_("Load a model to see how its memory is used."), "muted", wraps=True)
        self._legend = QWidget()
        grid = QGridLayout(self._legend)
        grid.setContentsMargins(0, 2, 0, 0)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(3)
        grid.setColumnStretch(1, 1)
        for part, name in enumerate((*map(translate, PARTS), _("Free"))):
            label, size = text_label(name, wraps=True), self._sizes[part]
            label.setProperty("tone", "muted")
            size.setAlignment(Qt.AlignmentFlag.AlignTrailing | Qt.AlignmentFlag.AlignVCenter)
            for column, widget in enumerate((_Swatch(part), label, size)):
                grid.addWidget(widget, part, column)
                if PARTS[part : part + 1] == ("Draft model",):
                    self._of_draft.append(widget)
        fill(
            QVBoxLayout(self),
            self._lines,
            self._legend,
            self.warning,
            self.words,
            margins=(0, 4, 0, 4),
            spacing=6,
        )
        source.changed.connect(self._refresh)
        self._show(())

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._refresh()

    def _refresh(self) -> None:
        if self.isVisible():
            try:
                self._show(self._source.places())
            except BadSetting as error:
                self._show(())
                self.words.setText(str(error))

    def _show(self, places: Sequence[Place]) -> None:
        while len(self._bars) < len(places):
            title, bar = QLabel(), _Bar()
            title.setWordWrap(True)
            self._titles.append(title)
            self._bars.append(bar)
            self._lines.addWidget(title)
            self._lines.addWidget(bar)
        for at, (title, bar) in enumerate(zip(self._titles, self._bars, strict=True)):
            title.setVisible(at < len(places))
            bar.setVisible(at < len(places))
            if at < len(places):
                title.setText(f"{translate(places[at].name)}, {size_text(places[at].total)}")
                bar.show_place(places[at])
        sums = [sum(place.parts[part] for place in places) for part in range(len(PARTS))]
        texts = [*map(size_text, sums), size_text(sum(max(0, place.free) for place in places))]
        for label, text in zip(self._sizes, texts, strict=True):
            label.setText(text)
        for widget in self._of_draft:
            widget.setVisible(bool(sums[PARTS.index("Draft model")]))
        warning = fit_words(places)
        self.warning.setText(warning)
        self.warning.setVisible(bool(warning))
        self._legend.setVisible(bool(places))
        self.words.setText(_("Load a model to see how its memory is used."))
        self.words.setVisible(not places)
        said = "; ".join(
            f"{name}: {text}" for name, text in zip((*map(translate, PARTS), _("Free")), texts, strict=True)
        )
        self.setAccessibleName(
            _("Memory. {said}. {warning}", said=said, warning=warning) if places else self.words.text()
        )
