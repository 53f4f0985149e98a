"""The two schemes: complete, readable, and followed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QListWidget, QTableWidget

import resources
from desktop.views.widgets.theme import LOOKS, SCHEMES, Theme, palette, style_sheet, tokens
from tests.desktop.views.contrast import contrast

TEXT_ON = [
    (
        "text",
        (
            "window",
            "side",
            "surface",
            "bubble",
            "code",
            "hover",
            "pressed",
            "selected",
            "info_soft",
            "warning_soft",
            "danger_soft",
        ),
    ),
    ("muted", ("window", "side", "surface", "bubble", "code")),
    ("accent_text", ("accent", "accent_hover")),
    ("link", ("window", "surface", "bubble")),
    ("danger", ("window", "side", "surface", "danger_soft")),
    ("warning", ("window", "surface", "warning_soft")),
    ("info", ("window", "surface", "info_soft")),
]


def test_contrast_of_black_and_white_is_21() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    # the well-known grey that just fails
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("text", "backgrounds"), TEXT_ON)
def test_text_has_a_contrast_of_4_5(scheme: str, text: str, backgrounds: tuple[str, ...]) -> None:
    colours = tokens(scheme)
    for background in backgrounds:
        assert contrast(colours[text], colours[background]) >= 4.5, f"{text} on {background}"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_outlines_and_focus_rings_have_a_contrast_of_3(scheme: str) -> None:
    colours = tokens(scheme)
    for line in ("edge", "accent"):
        for background in ("window", "side", "surface"):
            assert contrast(colours[line], colours[background]) >= 3.0, f"{line} on {background}"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_palette_pairs_are_readable(scheme: str) -> None:
    made = palette(tokens(scheme))
    pairs = [
        ("WindowText", "Window"), ("Text", "Base"), ("Text", "AlternateBase"), ("ButtonText", "Button"),
        ("HighlightedText", "Highlight"), ("PlaceholderText", "Base"), ("ToolTipText", "ToolTipBase"),
        ("Link", "Base"), ("Link", "Window"),
    ]  # fmt: skip
    for text, background in pairs:
        ratio = contrast(
            made.color(QPalette.ColorRole[text]).name(), made.color(QPalette.ColorRole[background]).name()
        )
        assert ratio >= 4.5, f"{text} on {background}"


def test_the_schemes_name_the_same_colours() -> None:
    assert len({tuple(tokens(look)) for look in LOOKS}) == 1


@pytest.mark.parametrize("scheme", SCHEMES)
def test_style_sheet_has_no_token_left_and_names_only_existing_files(scheme: str) -> None:
    sheet = style_sheet(tokens(scheme))
    assert "@" not in sheet
    pictures = re.findall(r"url\(([^)]+)\)", sheet)
    assert pictures
    assert all(Path(picture).is_file() for picture in pictures)


def test_choice_and_text_size_reach_the_application(qapp) -> None:
    theme, before = Theme(qapp), qapp.font().pointSizeF()
    seen: list[str] = []
    theme.changed.connect(seen.append)
    theme.apply("dark", 150)
    assert qapp.palette().color(QPalette.ColorRole.Window).name() == tokens("dark")["window"]
    assert qapp.font().pointSizeF() == pytest.approx(before * 1.5)
    theme.apply("light", 100)
    assert seen == ["dark", "light"]
    assert qapp.font().pointSizeF() == pytest.approx(before)


def test_system_choice_follows_the_system(qapp) -> None:
    theme = Theme(qapp)
    theme.apply("system", 100)
    qapp.styleHints().setColorScheme(Qt.ColorScheme.Dark)
    expected = "dark" if qapp.styleHints().colorScheme() == Qt.ColorScheme.Dark else "light"
    assert theme.scheme == expected
    assert qapp.palette().color(QPalette.ColorRole.Window).name() == tokens(expected)["window"]
    qapp.styleHints().setColorScheme(Qt.ColorScheme.Unknown)


def test_every_icon_is_a_drawing_in_black() -> None:
    for file in sorted(resources.path("icons").glob("*.svg")):
        assert "<svg" in file.read_text(encoding="utf-8"), file
        if file.stem != "inglenook":
            assert 'stroke="#000"' in file.read_text(encoding="utf-8"), file


def test_a_missing_resource_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"icons/none\.svg"):
        resources.path("icons/none.svg")


FIRST_POPUP = """
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QComboBox
from desktop.views.widgets.theme import Theme

app = QApplication([])
Theme(app).apply("light", {scale})
box = QComboBox()
box.addItems([str(number) for number in range({count})])
box.setCurrentIndex({count} - 1)
box.show()
QTest.qWaitForWindowExposed(box)
box.showPopup()
app.processEvents()
view = box.view()
last = view.visualRect(box.model().index({count} - 1, 0))
assert view.verticalScrollBar().maximum() == 0, view.verticalScrollBar().maximum()
assert last.bottom() < view.viewport().height(), (last, view.viewport().height())
"""


@pytest.mark.parametrize(("count", "scale"), [(3, 100), (8, 150)])
def test_the_first_list_that_is_opened_shows_its_last_entry(count: int, scale: int) -> None:
    """In a separate process, because only the first list was cut off."""
    script = FIRST_POPUP.format(count=count, scale=scale)
    root = Path(__file__).resolve().parents[4]
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", [QListWidget, QTableWidget])
def test_rows_of_lists_stay_clear_of_the_frame(qtbot, kind: type[QListWidget | QTableWidget]) -> None:
    view = kind()
    qtbot.addWidget(view)
    view.setStyleSheet(style_sheet(tokens("light")))
    view.resize(120, 90)
    view.show()
    qtbot.waitExposed(view)
    inside = view.viewport().geometry()
    assert view.frameWidth() == 4, "2 pixels of the focus, 2 of its corners"
    view.setFocus()
    qtbot.waitUntil(view.hasFocus)
    shown = view.grab().toImage()
    accent = tokens("light")["accent"]
    assert {shown.pixelColor(across, 45).name() for across in (0, 1, 118, 119)} == {accent}
    assert view.viewport().geometry() == inside, "nothing moves"
