"""The About dialog is true of what is installed."""

import sys
from importlib import metadata

from PySide6.QtWidgets import QWidget

from desktop.views.application.about_dialog import AboutDialog, about_text, components


def test_packages_are_listed_with_version_and_licence() -> None:
    found = {name.lower().replace("_", "-"): (version, licence) for name, version, licence in components()}
    for name in ("pyside6-essentials", "numba", "torch", "llvmlite"):
        assert found[name][0] == metadata.version(name)
    assert "LGPL-3.0" in found["pyside6-essentials"][1]
    assert "BSD" in found["numba"][1]
    assert "pytest" not in found  # Packages that only the tests need are not part of the program.


def test_the_dialog_lists_them(qtbot) -> None:
    parent = QWidget()
    qtbot.addWidget(parent)
    parent.resize(500, 500)
    dialog = AboutDialog(parent)
    assert dialog.parts.toPlainText().count("\n") == len(components()) - 1
    assert "LGPL" in dialog.parts.toPlainText()
    dialog.close()


def test_a_package_says_where_its_licences_are(monkeypatch) -> None:
    assert "this Python environment" in about_text()
    monkeypatch.setattr(sys, "_MEIPASS", "/opt/inglenook/_internal", raising=False)
    assert "/opt/inglenook/_internal/PySide6" in about_text()
    assert "/opt/inglenook/_internal/licences" in about_text()
