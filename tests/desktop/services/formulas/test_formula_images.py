"""Formulas are drawn in another process; a formula at which it ends or hangs affects no other."""

from __future__ import annotations

import base64
import io
import json
import sys
import threading
import zlib
from collections.abc import Iterator

import numpy as np
import psutil
import pytest

from desktop.services.formulas import formula_images, formula_process
from desktop.services.formulas.formula_images import FormulaImage, formula_image, give_up, rest
from desktop.services.formulas.formula_process import draw
from desktop.services.system.helper_process import HelperEnded, HelperProcess
from tests.desktop.helper_pid import helper_pid

FORMULAS = "desktop.services.formulas.formula_process"


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    rest()


@pytest.mark.slow
def test_the_image_is_the_same_as_in_this_process_and_the_process_is_kept() -> None:
    for latex in (r"\frac{a}{b} + \text{ä}", r"\unknown{x}", "x\ny"):
        assert formula_image(latex, 18.0, "#203040", True, 1.0) == draw(latex, 18.0, "#203040", True, 1.0)
    child = helper_pid(FORMULAS)
    assert child is not None
    formula_image("y", 18.0, "#203040", False, 1.0)
    assert helper_pid(FORMULAS) == child
    rest()
    assert not psutil.pid_exists(child)
    assert formula_image("y", 18.0, "#203040", False, 1.0) == draw("y", 18.0, "#203040", False, 1.0)


@pytest.mark.slow
def test_a_process_that_ends_at_a_formula_returns_none_for_it() -> None:
    formula_image("x", 18.0, "#203040", False, 1.0)
    child = helper_pid(FORMULAS)
    assert child is not None
    process = psutil.Process(child)
    process.kill()
    process.wait()
    assert formula_image("x", 18.0, "#203040", False, 1.0) is None
    assert formula_image("x", 18.0, "#203040", False, 1.0) == draw("x", 18.0, "#203040", False, 1.0)


def test_a_formula_that_takes_too_long_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process reads its input but never answers, as for a formula that never ends."""
    begun = threading.Event()

    class Silent(HelperProcess):
        def ask(self, question: object) -> object:
            child = self._child
            assert child is not None
            assert child.stdout is not None
            begun.set()
            try:
                return json.loads(child.stdout.readline())  # nothing was asked, so nothing arrives
            except ValueError as error:
                raise HelperEnded(str(error)) from error

    monkeypatch.setattr(formula_images, "HELPER", Silent(FORMULAS))
    found: list[FormulaImage | None] = []
    asking = threading.Thread(target=lambda: found.append(formula_image("x", 18.0, "#203040", False, 1.0)))
    asking.start()
    assert begun.wait(60)
    give_up()
    asking.join(60)
    assert found == [None]


def test_without_another_process_this_one_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    helper = HelperProcess(FORMULAS)
    monkeypatch.setattr(formula_images, "HELPER", helper)
    assert formula_image("x^2", 18.0, "#203040", False, 1.0) == draw("x^2", 18.0, "#203040", False, 1.0)
    assert not helper.start()
    monkeypatch.undo()
    assert not helper.start()  # not tried again for each formula


def test_a_closed_helper_does_not_start_again() -> None:
    helper = HelperProcess(FORMULAS)
    helper.close()
    with pytest.raises(HelperEnded, match="closed"):
        helper.start()


class Unbuffered(io.StringIO):
    """What the window has seen of the answers each time one was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def flush(self) -> None:
        self.seen = self.getvalue().splitlines()


def test_the_process_answers_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formula_process.os, "nice", lambda by: 0, raising=False)
    out = Unbuffered()
    lines = [["x", 18.0, "#203040", True, 2.0], ["\\unknown", 18.0, "#203040", False, 1.0]]
    formula_process.main(io.StringIO("".join(json.dumps(line) + "\n" for line in lines)), out)
    (pixels, *sizes), nothing = map(json.loads, out.seen)
    expected = draw("x", 18.0, "#203040", True, 2.0)
    assert expected is not None
    assert len(expected.pixels) == 4 * expected.device_width * expected.device_height
    assert (zlib.decompress(base64.b64decode(pixels)), *sizes) == expected
    assert nothing is None


def test_after_closing_a_formula_is_none_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    helper = HelperProcess(FORMULAS)
    helper.close()
    monkeypatch.setattr(formula_images, "HELPER", helper)
    assert formula_image("x", 18.0, "#203040", False, 1.0) is None


@pytest.mark.parametrize("ratio", [1.0, 1.5, 2.0])
@pytest.mark.parametrize(("latex", "descends"), [("x", False), ("g", True), (r"\frac{a}{b}", True)])
def test_all_of_a_formula_is_in_its_image_and_stands_on_the_line(
    latex: str, descends: bool, ratio: float
) -> None:
    drawn = draw(latex, 40.0, "#000000", False, ratio)
    assert drawn is not None
    assert (drawn.device_width, drawn.device_height) == (
        round(drawn.width * ratio),
        round(drawn.height * ratio),
    )
    ink = np.frombuffer(drawn.pixels, np.uint8).reshape(drawn.device_height, drawn.device_width, 4)[:, :, 3]
    rows = np.flatnonzero(ink.max(axis=1) > 128) / ratio
    line = drawn.height - drawn.descent
    assert (rows[-1] > line + 3) == descends
    assert rows[0] < line - 10
    assert drawn.height - rows[-1] < 10, "it ends where its letters do"


@pytest.mark.parametrize("most", ["_WIDEST", "_HIGHEST"])
def test_a_formula_that_is_too_large_is_not_drawn(monkeypatch: pytest.MonkeyPatch, most: str) -> None:
    assert draw("x", 14.0, "#000000", False, 1.0) is not None
    monkeypatch.setattr(formula_process, most, 1.0)
    assert draw("x", 14.0, "#000000", False, 1.0) is None
