"""The thread that makes pictures outlives one that cannot be made."""

from __future__ import annotations

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
