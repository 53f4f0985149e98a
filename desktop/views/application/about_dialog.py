"""The About dialog: version, and the licences of the packages in use."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QFont
from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QVBoxLayout,
    QWidget,
)

from desktop.views.layout.fill import fill
from desktop.views.layout.spacing import dialog_margins
from desktop.views.widgets.icons import application_icon
from desktop.views.widgets.scroll_area import DialogBody
from desktop.views.widgets.text_label import text_label
from engine.platform.version import version
from engine.words import N_, _, translate

__all__ = ["AboutDialog", "about_text", "components", "licence"]

_TEXT = N_(
    "Chat with language models that run on your own computer. Nothing you write leaves it unless you "
    "choose a model on a server."
)
_GENERAL = ("OSI Approved", "Other/Proprietary License")
_LONGEST = 60
_MAIN = (
    "PySide6-Essentials",
    "qasync",
    "torch",
    "numba",
    "safetensors",
    "tokenizers",
    "llguidance",
    "huggingface_hub",
)
"""The root package in a checkout that was not installed."""


def about_text() -> str:
    """What the program is, its licences, how to replace Qt, and where a package has the licences' texts."""
    inside = getattr(sys, "_MEIPASS", None)  # Of a program that PyInstaller made.
    if inside is None:
        qt = _("they are separate packages in this Python environment, and you may replace them.")
    else:
        qt = _(
            "they are separate libraries in {path}, and you may replace them. The texts of all "
            "licences are in {path_2}.",
            path=Path(inside) / "PySide6",
            path_2=Path(inside) / "licences",
        )
    return _(
        "{text}\n\nLicence: Apache-2.0. Qt and PySide6 are used under the LGPL-3.0: {qt}",
        text=translate(_TEXT),
        qt=qt,
    )


def components() -> list[tuple[str, str, str]]:
    """Name, version and licence of each installed package that this one needs, by name; "not stated" if it
    names no licence.
    """
    found: dict[str, tuple[str, str, str]] = {}
    waiting = _needs("inglenook") or list(_MAIN)
    while waiting:
        name = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            about = metadata.metadata(name)
        except metadata.PackageNotFoundError:
            continue  # For another system, or for an extra that was not installed.
        found[key] = (about["Name"], about["Version"], licence(about))
        waiting += _needs(name)
    return sorted(found.values(), key=lambda entry: entry[0].lower())


def _needs(name: str) -> list[str]:
    try:
        lines = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []
    return [re.split(r"[\s;<>=!~\[(]", line, maxsplit=1)[0] for line in lines if "extra ==" not in line]


def licence(about: metadata.PackageMetadata) -> str:
    """The licence expression, or the classifiers, or the first line of a short licence field."""
    fields = {key: about.get_all(key) or [] for key in ("License-Expression", "Classifier", "License")}
    if fields["License-Expression"]:
        return str(fields["License-Expression"][0])
    named = [
        str(line).rsplit(" :: ", 1)[-1] for line in fields["Classifier"] if str(line).startswith("License ::")
    ]
    named = [name for name in named if name not in _GENERAL]
    if named:
        return ", ".join(named)
    first = str(fields["License"][0]).strip().partition("\n")[0] if fields["License"] else ""
    return first if 0 < len(first) <= _LONGEST else _("not stated")


class AboutDialog(QDialog):
    """The dialog of the Help menu."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(_("About Inglenook"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        mark = QLabel()
        mark.setPixmap(application_icon().pixmap(QSize(56, 56), self.devicePixelRatioF()))
        title = text_label(_("Inglenook {version}", version=version()), wraps=True)
        font = QFont(title.font())
        font.setPointSizeF(font.pointSizeF() * 1.4)
        font.setWeight(QFont.Weight.DemiBold)
        title.setFont(font)
        text = text_label(about_text(), wraps=True)
        text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        heading = text_label(_("Made with"), "heading")
        self.parts = QPlainTextEdit(
            "\n".join(f"{name} {version}: {licence}" for name, version, licence in components())
        )
        self.parts.setProperty("tone", "field")
        self.parts.setReadOnly(True)
        self.parts.setAccessibleName(_("Packages and their licences"))
        self.parts.setTabChangesFocus(True)
        heading.setBuddy(self.parts)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
        buttons.rejected.connect(self.reject)
        top = fill(QHBoxLayout(), mark, (title, 1), spacing=14)
        body = QWidget()
        fill(QVBoxLayout(body), top, text, heading, (self.parts, 1), margins=(0, 0, 0, 0))
        dialog_margins(fill(QVBoxLayout(self), (DialogBody(body), 1), buttons))
        em = self.fontMetrics().height()
        self.resize(min(em * 34, parent.width()), min(em * 30, parent.height()))
        buttons.button(QDialogButtonBox.StandardButton.Close).setFocus()
