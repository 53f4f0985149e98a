"""The look of the window in two schemes, each also with high contrast: colour tokens become a palette and
a style sheet.

Follows the system or the user's choice.
"""

from __future__ import annotations

import json
import re

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QPalette
from PySide6.QtWidgets import QApplication, QWidget

import resources
from desktop.views.widgets.focus_ring import show_ring
from desktop.views.widgets.motion import Motion

__all__ = ["LOOKS", "SCHEMES", "Theme", "palette", "style_sheet", "tokens"]

SCHEMES = ("light", "dark")
_HIGH = "-contrast"
LOOKS = (*SCHEMES, *(f"{scheme}{_HIGH}" for scheme in SCHEMES))
"""A file of colours for each."""
_STYLED = "inglenookStyled"
_GROUPS = (QPalette.ColorGroup.Active, QPalette.ColorGroup.Inactive, QPalette.ColorGroup.Disabled)
_ROLES = {
    "Window": "window", "WindowText": "text", "Base": "surface", "AlternateBase": "bubble", "Text": "text",
    "Button": "surface", "ButtonText": "text", "BrightText": "danger", "Highlight": "accent",
    "HighlightedText": "accent_text", "Link": "link", "LinkVisited": "link", "PlaceholderText": "muted",
    "ToolTipBase": "surface", "ToolTipText": "text", "Light": "surface", "Midlight": "hover", "Mid": "line",
    "Dark": "edge", "Shadow": "edge", "Accent": "accent",
}  # fmt: skip
_MIRRORED = """
QLabel[alignment="128"], QLabel[alignment="129"] {
  qproperty-alignment: "AlignRight | AlignAbsolute | AlignVCenter"; }
QLabel[alignment="32"], QLabel[alignment="33"] {
  qproperty-alignment: "AlignRight | AlignAbsolute | AlignTop"; }
QPushButton::menu-indicator { left: -4px; }
"""
"""Qt aligns a label by the direction of its own text: English text would be at the far end of a mirrored row.
A button's arrow would touch its border.
The numbers are those of AlignVCenter and AlignTop, alone and with AlignLeading.
"""
_DIMMED = ("WindowText", "Text", "ButtonText", "PlaceholderText")


def tokens(look: str) -> dict[str, str]:
    """The colours of one of `LOOKS` by name, as "#rrggbb" (and "icons": the folder of its images)."""
    data = json.loads(resources.text(f"themes/{look}.json"))
    return {str(name): str(value) for name, value in data.items()}


def palette(colours: dict[str, str]) -> QPalette:
    """The Qt palette for a scheme's colours."""
    result = QPalette()
    for role_name, token in _ROLES.items():
        role = QPalette.ColorRole[role_name]
        for group in _GROUPS:
            dim = group == QPalette.ColorGroup.Disabled and role_name in _DIMMED
            result.setColor(group, role, QColor(colours["disabled" if dim else token]))
    return result


def style_sheet(colours: dict[str, str], text_scale: int = 100, mirrored: bool = False) -> str:
    """resources/themes/inglenook.qss with each @token replaced. Raises KeyError for an unknown token.

    Lengths of boxes within a line of text follow `text_scale` (percent). Qt draws the filled part of a slider
    at its left end even if the interface is `mirrored`.
    """
    side = round(14 * text_scale / 100)
    dot = round(6 * text_scale / 100)
    # with its border of one pixel the empty button is as large as the selected one
    ring = (side + 2 - dot) // 2
    known = {
        **colours,
        "pictures": resources.path(f"themes/{colours['icons']}").as_posix(),
        "filled": "add-page" if mirrored else "sub-page",
        "round14": f"{(side + 2) // 2}px",
        "dot14": f"{side + 2 - 2 * ring}px",
        "ring14": f"{ring}px",
        **{f"px{length}": f"{round(length * text_scale / 100)}px" for length in (12, 14, 16, 18, 22)},
    }
    sheet = resources.text("themes/inglenook.qss") + (_MIRRORED if mirrored else "")
    return re.sub(r"@(\w+)", lambda found: known[found.group(1)], sheet)


class Theme(QObject):
    """The application's look; `motion` decides about animations.

    `changed` is emitted with the scheme ("light" or "dark") after it was applied.
    """

    changed = Signal(str)

    def __init__(self, app: QApplication, parent: QObject | None = None) -> None:
        super().__init__(parent or app)
        self._app = app
        self.motion = Motion(app, self)
        self._choice, self._scale, self._applied, self._coloured = "system", 100, "", ""
        self._contrast = "system"
        self._base = QFont(app.font())
        # styled widgets follow the application's font
        app.setAttribute(Qt.ApplicationAttribute.AA_UseStyleSheetPropagationInWidgetStyles)
        # widgets created under a style sheet are styled at every step of their creation: three times the work
        app.setStyleSheet("")
        # only once: what `style()` and `setStyle` return lives as long as the application
        if app.property(_STYLED) is None:
            app.setStyle("Fusion")
            app.setProperty(_STYLED, True)
        app.focusChanged.connect(show_ring)
        self._hints = app.styleHints()
        self._hints.colorSchemeChanged.connect(self._system_changed)
        self._hints.accessibility().contrastPreferenceChanged.connect(self._system_changed)

    @property
    def base_font(self) -> QFont:
        """The system's font at its own size, from which `apply` scales."""
        return QFont(self._base)

    @property
    def scheme(self) -> str:
        """The scheme that is shown: "light" or "dark"."""
        if self._choice in SCHEMES:
            return self._choice
        return "dark" if self._app.styleHints().colorScheme() == Qt.ColorScheme.Dark else "light"

    @property
    def look(self) -> str:
        """Which of `LOOKS` is shown."""
        return f"{self.scheme}{_HIGH}" if self.wants_contrast() else self.scheme

    def apply(self, choice: str, text_scale: int, contrast: str = "system") -> None:
        """Show "light", "dark" or the "system" scheme, with text at `text_scale` percent of the system's
        size, with "normal" or "high" `contrast` or that of the "system".
        """
        self.prepare(choice, text_scale, contrast)
        self._show()

    def prepare(self, choice: str, text_scale: int, contrast: str = "system") -> None:
        """The part of `apply` to do before a window is created.

        A window that was never shown keeps the font it was created with, and its icons would be drawn twice.
        """
        if choice != self._choice:
            self._choice = choice
            preferred = {"light": Qt.ColorScheme.Light, "dark": Qt.ColorScheme.Dark}.get(
                choice, Qt.ColorScheme.Unknown
            )
            self._app.styleHints().setColorScheme(preferred)
        self._contrast = contrast
        self._scale_text(text_scale)
        self._colour(self.look)

    def _scale_text(self, text_scale: int) -> None:
        if text_scale == self._scale:
            return
        self._scale = text_scale
        if self._applied:
            self._set_sheet()  # before the font, because widgets measure themselves on a font change
        font = QFont(self._base)
        if font.pointSizeF() > 0:
            font.setPointSizeF(self._base.pointSizeF() * self._scale / 100)
        else:
            font.setPixelSize(max(1, round(self._base.pixelSize() * self._scale / 100)))
        self._app.setFont(font)
        # now, not when the event loop gets to it
        self._app.sendPostedEvents(None, QEvent.Type.ApplicationFontChange.value)

    def _system_changed(self) -> None:
        self._show()

    @property
    def colours(self) -> dict[str, str]:
        """The colours that are shown."""
        return tokens(self.look)

    def wants_contrast(self) -> bool:
        """Whether the user, or else the system, asks for high contrast."""
        if self._contrast != "system":
            return self._contrast == "high"
        return self._hints.accessibility().contrastPreference() == Qt.ContrastPreference.HighContrast

    def _show(self) -> None:
        look = self.look
        if look == self._applied:
            return
        self._applied = look
        self._colour(look)
        styled = bool(self._app.styleSheet())
        self._set_sheet()
        if styled:
            for window in self._app.topLevelWidgets():
                if window.parent() is None:
                    self._polish(window)
        self.changed.emit(self.scheme)

    def _set_sheet(self) -> None:
        """Replace the style sheet.

        Widgets take lengths and images from a new sheet when they are next painted or measured, but palettes
        only when they are polished. Qt would polish each once for every ancestor, nine times on average. It
        does that for widgets it keeps rules for, so these are dropped first.
        """
        mirrored = self._app.layoutDirection() == Qt.LayoutDirection.RightToLeft
        self._app.style().unpolish(self._app)
        self._app.setStyleSheet(style_sheet(self.colours, self._scale, mirrored))

    def _polish(self, widget: QWidget) -> None:
        """Restyle a widget and its children; Qt itself does that for widgets that were never shown."""
        if widget.testAttribute(Qt.WidgetAttribute.WA_WState_Polished):
            widget.style().polish(widget)
            self._app.sendEvent(widget, QEvent(QEvent.Type.StyleChange))
        for child in widget.children():
            if isinstance(child, QWidget):
                self._polish(child)

    def _colour(self, look: str) -> None:
        if look != self._coloured:
            self._coloured = look
            self._app.setPalette(palette(tokens(look)))
