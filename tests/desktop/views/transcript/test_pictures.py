"""The thread that makes pictures survives a failing one and never blocks the window."""

from __future__ import annotations

import threading

import pytest
from pytestqt.qtbot import QtBot

from desktop.views.transcript.rendering import image_loader
from desktop.views.transcript.rendering.image_loader import ImageKey, ImageLoader


def test_a_picture_that_fails_costs_only_itself(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    made = image_loader.render_math

    def render(source: str, *rest: object) -> object:
        if source == "bad":
            raise RecursionError("nested too deep")
        return made(source, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(image_loader, "render_math", render)
    shop = ImageLoader()
    bad, good = ImageKey("bad", 16.0, "#000000"), ImageKey("x^2", 16.0, "#000000")
    for key in (bad, good):
        shop.want(key)
        qtbot.waitUntil(lambda key=key: shop.known(key))  # type: ignore[misc]
    assert shop.get(bad) is None
    assert shop.get(good) is not None


def test_the_window_does_not_wait_for_a_process_that_is_sent_to_rest(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it must wait itself while another view's formula is worked out."""
    begun, expected, in_time = threading.Event(), threading.Event(), []

    def rest() -> None:
        begun.set()
        in_time.append(expected.wait(10))

    monkeypatch.setattr(image_loader, "_REST_S", 0.001)
    monkeypatch.setattr(image_loader.formula_images, "rest", rest)
    shop = ImageLoader()
    first, second = ImageKey("x", 16.0, "#000000"), ImageKey("y", 16.0, "#000000")
    shop.want(first)
    assert begun.wait(30)
    shop.want(second)
    expected.set()
    qtbot.waitUntil(lambda: shop.known(first) and shop.known(second))
    assert in_time[0]
