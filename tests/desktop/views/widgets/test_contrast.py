"""Every pair of text and background, in the style sheet and in code, is readable in both schemes and at high
contrast.
"""

from __future__ import annotations

import re

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QPalette
from PySide6.QtWidgets import QApplication

import resources
from desktop.views.chat.context_meter import PALE
from desktop.views.transcript.style import TranscriptColours
from desktop.views.transcript.tokens.colours import ENTROPY, PROBABILITY, ramp
from desktop.views.widgets import item_painting
from desktop.views.widgets.theme import SCHEMES, Theme, palette, strengthened, style_sheet, tokens
from tests.desktop.views.contrast import contrast

TEXT, PART = 4.5, 3.0
_DRAWN = (
    "::handle",
    "::groove",
    "::@filled",
    "::separator",
    "::chunk",
    "::indicator",
    "QProgressBar",
    "QSplitter",
    ":disabled",
)
"""Not grounds of text, or exempt (WCAG 2.2, 1.4.3, "inactive")."""
LOOKS = [(scheme, strong) for scheme in SCHEMES for strong in (False, True)]


def colours_of(scheme: str, strong: bool) -> dict[str, str]:
    return strengthened(tokens(scheme)) if strong else tokens(scheme)


def over(ground: str, colour: QColor | str, alpha: float) -> str:
    """The colour of a translucent one on a background."""
    back, front = QColor(ground).getRgb()[:3], QColor(colour).getRgb()[:3]
    return QColor(*(round(b + (f - b) * alpha) for b, f in zip(back, front, strict=True))).name()


def rules() -> list[tuple[str, dict[str, str]]]:
    """Each selector of the style sheet with its declarations."""
    sheet = re.sub(r"/\*.*?\*/", "", resources.text("themes/inglenook.qss"), flags=re.S)
    found = []
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", sheet):
        given = dict(re.findall(r"([\w-]+):\s*([^;]+)", body))
        found += [(selector.strip(), given) for selector in selectors.split(",")]
    return found


def token(value: str | None) -> str:
    named = re.fullmatch(r"@(\w+)", (value or "").strip())
    return named.group(1) if named else ""


@pytest.mark.parametrize(("scheme", "strong"), LOOKS)
def test_text_of_the_style_sheet_on_its_backgrounds(scheme: str, strong: bool) -> None:
    colours, seen = colours_of(scheme, strong), 0
    own = {selector: token(given.get("color")) for selector, given in rules()}
    for selector, given in rules():
        if any(part in selector for part in _DRAWN):
            continue
        plain = re.sub(r":[a-z]+$", "", selector)
        accented = 'tone="primary"' in selector or "#send" in selector
        pairs = [
            (
                token(given.get("color")) or own.get(plain) or ("accent_text" if accented else "text"),
                token(given.get("background")),
            )
        ]
        pairs.append((token(given.get("selection-color")), token(given.get("selection-background-color"))))
        pairs.append((token(given.get("placeholder-text-color")), token(given.get("background"))))
        for text, ground in pairs:
            if text and ground not in ("", "line") and text != "disabled":  # nothing is written on lines
                assert contrast(colours[text], colours[ground]) >= TEXT, f"{selector}: {text} on {ground}"
                seen += 1
    assert seen > 40


@pytest.mark.parametrize(("scheme", "strong"), LOOKS)
def test_borders_of_focus_and_boxes(scheme: str, strong: bool) -> None:
    colours, seen = colours_of(scheme, strong), 0
    for selector, given in rules():
        named = re.findall(r"@(\w+)", given.get("border", "") + given.get("border-color", ""))
        if ":focus" in selector and named:
            ground = "accent" if 'tone="primary"' in selector or "#send" in selector else "window"
            assert contrast(colours[named[-1]], colours[ground]) >= PART, selector
            seen += 1
        if selector.startswith("QScrollBar::handle"):
            for place in ("window", "side", "surface"):
                assert contrast(colours[token(given.get("background")) or "edge"], colours[place]) >= PART, (
                    f"{selector} on {place}"
                )
    assert seen > 10


@pytest.mark.parametrize(("scheme", "strong"), LOOKS)
def test_rows_of_lists_in_every_state_and_highlighted_matches(scheme: str, strong: bool) -> None:
    colours = colours_of(scheme, strong)
    for ground in ("side", "surface", "window"):
        for alpha in (item_painting.OVER, item_painting.MARKED, item_painting.CHOSEN):
            row = over(colours[ground], colours["accent"], alpha / 255)
            for text in ("text", "muted"):
                assert contrast(colours[text], row) >= TEXT, f"{text} on a row of {ground} at {alpha}"
            found = over(row, colours["accent"], item_painting.FOUND / 255)
            assert contrast(colours["text"], found) >= TEXT, f"words found on {ground} at {alpha}"


@pytest.mark.parametrize(("scheme", "strong"), LOOKS)
def test_the_conversation(scheme: str, strong: bool) -> None:
    shown = TranscriptColours.from_palette(palette(colours_of(scheme, strong)))
    name = {field: colour.name() for field, colour in shown._asdict().items()}
    for text in ("text", "muted", "keyword", "string", "number", "name", "comment"):
        assert contrast(name[text], name["code"]) >= TEXT, f"{text} on code"
    for ground in ("background", "bubble", "notice"):
        for text in ("text", "muted", "link"):
            assert contrast(name[text], name[ground]) >= TEXT, f"{text} on {ground}"
    for ground in ("background", "bubble", "code"):
        selected = over(name[ground], shown.selection, shown.selection.alphaF())
        assert contrast(name["text"], selected) >= TEXT, f"selected text on {ground}"
    assert contrast(name["on_found"], name["found"]) >= TEXT


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("mode", [PROBABILITY, ENTROPY])
def test_every_tint_of_a_token(scheme: str, mode: str) -> None:
    colours = tokens(scheme)
    for ground in ("window", "surface"):
        for tint in ramp(mode, scheme == "dark", colours[ground]):
            assert contrast(colours["text"], tint.name()) >= TEXT, f"{mode} {tint.name()}"


@pytest.mark.parametrize(("scheme", "strong"), LOOKS)
def test_parts_of_bars_and_plots(scheme: str, strong: bool) -> None:
    colours = colours_of(scheme, strong)
    for ground in ("window", "surface", "side"):
        for part in ("accent", "edge", "danger"):
            assert contrast(colours[part], colours[ground]) >= PART, f"{part} on {ground}"
    for part in ("accent", "danger"):
        assert contrast(over(colours["surface"], colours[part], PALE), colours["surface"]) >= PART, (
            f"pale {part}"
        )


def test_stronger_schemes_are_stronger() -> None:
    for scheme in SCHEMES:
        plain, strong = tokens(scheme), strengthened(tokens(scheme))
        for name in ("line", "edge", "muted", "disabled"):
            assert contrast(strong[name], strong["window"]) > contrast(plain[name], plain["window"]) + 0.5, (
                f"{scheme} {name}"
            )


def test_the_systems_contrast_preference_is_followed_at_once(qapp, monkeypatch) -> None:
    theme = Theme(qapp)
    theme.apply("light", 100)
    plain = qapp.palette().color(QPalette.ColorRole.PlaceholderText).name()
    monkeypatch.setattr(Theme, "wants_contrast", lambda self: True)
    qapp.styleHints().accessibility().contrastPreferenceChanged.emit(Qt.ContrastPreference.HighContrast)
    strong = qapp.palette().color(QPalette.ColorRole.PlaceholderText).name()
    assert plain == tokens("light")["muted"]
    assert strong == strengthened(tokens("light"))["muted"]
    assert qapp.styleSheet() == style_sheet(strengthened(tokens("light")))
    monkeypatch.undo()
    qapp.styleHints().accessibility().contrastPreferenceChanged.emit(Qt.ContrastPreference.NoPreference)
    assert qapp.palette().color(QPalette.ColorRole.PlaceholderText).name() == plain


def test_check_boxes_grow_with_the_text_and_sliders_fill_from_their_start(qapp: QApplication) -> None:
    colours = tokens("light")
    assert "QCheckBox::indicator { width: 16px" in style_sheet(colours)
    assert "QCheckBox::indicator { width: 32px" in style_sheet(colours, 200)
    assert "QSlider::sub-page:horizontal" in style_sheet(colours)
    assert "QSlider::add-page:horizontal" in style_sheet(colours, mirrored=True)
