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
from desktop.views.sidebar import item_painting
from desktop.views.transcript.style import TranscriptColours
from desktop.views.transcript.tokens.colours import ENTROPY, PROBABILITY, ramp
from desktop.views.widgets.theme import LOOKS, SCHEMES, Theme, palette, style_sheet, tokens
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


def least(look: str) -> float:
    """The least contrast of text: WCAG 2.2, 1.4.3, and 1.4.6 with high contrast."""
    return 7.0 if look.endswith("-contrast") else TEXT


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


@pytest.mark.parametrize("look", LOOKS)
def test_text_of_the_style_sheet_on_its_backgrounds(look: str) -> None:
    colours, seen = tokens(look), 0
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
                assert contrast(colours[text], colours[ground]) >= least(look), (
                    f"{selector}: {text} on {ground}"
                )
                seen += 1
    assert seen > 40


@pytest.mark.parametrize("look", LOOKS)
def test_borders_of_focus_and_boxes(look: str) -> None:
    colours, seen = tokens(look), 0
    # the ring that is painted in filled buttons
    assert contrast(colours["accent_text"], colours["accent"]) >= PART
    for selector, given in rules():
        named = re.findall(r"@(\w+)", given.get("border", "") + given.get("border-color", ""))
        filled = 'tone="primary"' in selector or "#send" in selector  # these have a `FocusRing`
        if ":focus" in selector and named and not filled:
            assert contrast(colours[named[-1]], colours["window"]) >= PART, selector
            seen += 1
        if selector.startswith("QScrollBar::handle"):
            for place in ("window", "side", "surface"):
                assert contrast(colours[token(given.get("background")) or "edge"], colours[place]) >= PART, (
                    f"{selector} on {place}"
                )
    assert seen > 10


@pytest.mark.parametrize("look", LOOKS)
def test_rows_of_lists_in_every_state_and_highlighted_matches(look: str) -> None:
    colours = tokens(look)
    for ground in ("side", "surface", "window"):
        for alpha in (item_painting.OVER, item_painting.MARKED, item_painting.CHOSEN):
            row = over(colours[ground], colours["accent"], alpha / 255)
            for text in ("text", "muted"):
                assert contrast(colours[text], row) >= least(look), f"{text} on a row of {ground} at {alpha}"
            found = over(row, colours["accent"], item_painting.FOUND / 255)
            assert contrast(colours["text"], found) >= least(look), f"words found on {ground} at {alpha}"


@pytest.mark.parametrize("look", LOOKS)
def test_the_conversation(look: str) -> None:
    shown = TranscriptColours.from_palette(palette(tokens(look)))
    name = {field: colour.name() for field, colour in shown._asdict().items()}
    for text in ("text", "muted", "keyword", "string", "number", "name", "comment"):
        assert contrast(name[text], name["code"]) >= least(look), f"{text} on code"
    for ground in ("background", "bubble", "notice"):
        for text in ("text", "muted", "link"):
            assert contrast(name[text], name[ground]) >= least(look), f"{text} on {ground}"
    assert len({name[ground] for ground in ("background", "bubble", "code", "notice")}) == 4
    for ground in ("background", "bubble", "code", "notice") if look.endswith("-contrast") else ():
        assert contrast(name["outline"], name[ground]) >= PART, f"the outline on {ground}"
    assert (shown.outline.alpha() > 0) == look.endswith("-contrast")
    for ground in ("background", "bubble", "code"):
        selected = over(name[ground], shown.selection, shown.selection.alphaF())
        assert contrast(name["text"], selected) >= least(look), f"selected text on {ground}"
    assert contrast(name["on_found"], name["found"]) >= least(look)


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("mode", [PROBABILITY, ENTROPY])
def test_every_tint_of_a_token(look: str, mode: str) -> None:
    colours = tokens(look)
    for ground in ("window", "surface"):
        for tint in ramp(mode, look.startswith("dark"), colours[ground]):
            assert contrast(colours["text"], tint.name()) >= least(look), f"{mode} {tint.name()}"


@pytest.mark.parametrize("look", LOOKS)
def test_parts_of_bars_and_plots(look: str) -> None:
    colours = tokens(look)
    for ground in ("window", "surface", "side"):
        for part in ("accent", "edge", "danger"):
            assert contrast(colours[part], colours[ground]) >= PART, f"{part} on {ground}"
    for part in ("accent", "danger"):
        assert contrast(over(colours["surface"], colours[part], PALE), colours["surface"]) >= PART, (
            f"pale {part}"
        )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_high_contrast_is_higher(scheme: str) -> None:
    plain, high = tokens(scheme), tokens(f"{scheme}-contrast")
    for name in ("text", "line", "edge", "muted", "disabled", "accent", "danger", "warning", "info", "link"):
        assert contrast(high[name], high["window"]) > contrast(plain[name], plain["window"]) + 0.5, name


@pytest.mark.parametrize("look", [look for look in LOOKS if look.endswith("-contrast")])
def test_high_contrast_shows_lines_and_what_is_disabled(look: str) -> None:
    colours = tokens(look)
    for ground in ("window", "side", "surface"):
        assert contrast(colours["line"], colours[ground]) >= PART
        assert contrast(colours["disabled"], colours[ground]) >= TEXT


def test_the_systems_contrast_preference_is_followed_at_once(qapp, monkeypatch) -> None:
    theme, role = Theme(qapp), QPalette.ColorRole.PlaceholderText
    theme.apply("light", 100)
    assert qapp.palette().color(role).name() == tokens("light")["muted"]
    monkeypatch.setattr(Theme, "wants_contrast", lambda self: True)
    changed = qapp.styleHints().accessibility().contrastPreferenceChanged
    changed.emit(Qt.ContrastPreference.HighContrast)
    assert qapp.palette().color(role).name() == tokens("light-contrast")["muted"]
    assert qapp.styleSheet() == style_sheet(tokens("light-contrast"))
    monkeypatch.undo()
    changed.emit(Qt.ContrastPreference.NoPreference)
    assert qapp.palette().color(role).name() == tokens("light")["muted"]


def test_the_user_decides_about_contrast_before_the_system(qapp) -> None:
    theme = Theme(qapp)
    theme.apply("dark", 100, "high")
    assert (theme.look, theme.scheme) == ("dark-contrast", "dark")
    assert qapp.palette().color(QPalette.ColorRole.Window).name() == "#000000"
    theme.apply("dark", 100, "normal")
    assert qapp.palette().color(QPalette.ColorRole.Window).name() == tokens("dark")["window"]
    theme.apply("light", 100)


def test_check_boxes_grow_with_the_text_and_sliders_fill_from_their_start(qapp: QApplication) -> None:
    colours = tokens("light")
    assert "QCheckBox::indicator { width: 16px" in style_sheet(colours)
    assert "QCheckBox::indicator { width: 32px" in style_sheet(colours, 200)
    assert "QSlider::sub-page:horizontal" in style_sheet(colours)
    assert "QSlider::add-page:horizontal" in style_sheet(colours, mirrored=True)
