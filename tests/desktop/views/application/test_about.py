"""The About dialog is true of what is installed."""

from importlib import metadata

from PySide6.QtWidgets import QWidget

from desktop.views.application.about_dialog import AboutDialog, components


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
