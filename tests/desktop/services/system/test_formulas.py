"""Formulas are worked out in another process, and one at which that ends or hangs costs only itself."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator

import pytest

from desktop.blocks import latex_process
from desktop.blocks.latex import math_svg
from desktop.services.system import formulas
from desktop.services.system.formulas import formula_svg, give_up, rest
from desktop.services.system.helper_process import HelperEnded, HelperProcess


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    rest()


def test_the_same_picture_as_in_this_process_and_the_process_is_kept() -> None:
    for latex in (r"\frac{a}{b} + \text{ä}", r"\unknown{x}", "x\ny"):
        assert formula_svg(latex, 18.0, True) == math_svg(latex, 18.0, True)
    child = formulas._HELPER._child
    assert child is not None
    formula_svg("y", 18.0, False)
    assert formulas._HELPER._child is child
    rest()
    assert child.poll() is not None
    assert formula_svg("y", 18.0, False) == math_svg("y", 18.0, False)


def test_a_process_that_ends_at_a_formula_leaves_that_one_empty() -> None:
    formula_svg("x", 18.0, False)
    child = formulas._HELPER._child
    assert child is not None
    child.kill()
    child.wait()
    assert formula_svg("x", 18.0, False) == ""
    assert formula_svg("x", 18.0, False) == math_svg("x", 18.0, False)


def test_one_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process reads its input but never answers, as at a formula without end."""
    begun = threading.Event()

    class Silent(HelperProcess):
        def ask(self, question: object) -> object:
            child = self._child
            assert child is not None
            assert child.stdout is not None
            begun.set()
            try:
                return json.loads(child.stdout.readline())  # nothing was asked, so nothing comes
            except ValueError as error:
                raise HelperEnded(str(error)) from error

    monkeypatch.setattr(formulas, "_HELPER", Silent("desktop.blocks.latex_process"))
    found: list[str] = []
    asking = threading.Thread(target=lambda: found.append(formula_svg("x", 18.0, False)))
    asking.start()
    assert begun.wait(60)
    give_up()
    asking.join(60)
    assert found == [""]


def test_without_another_process_it_is_done_in_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    helper = HelperProcess("desktop.blocks.latex_process")
    helper._alone = True
    monkeypatch.setattr(formulas, "_HELPER", helper)
    assert formula_svg("x^2", 18.0, False) == math_svg("x^2", 18.0, False)
    assert not helper.running


def test_what_was_closed_does_not_start_again() -> None:
    helper = HelperProcess("desktop.blocks.latex_process")
    helper.close()
    with pytest.raises(HelperEnded, match="closed"):
        helper.start()


def test_the_process_answers_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latex_process.os, "nice", lambda by: 0, raising=False)
    out = io.StringIO()
    latex_process.main(io.StringIO('["x", 18.0, true]\n["\\\\unknown", 18.0, false]\n'), out)
    assert [json.loads(line) for line in out.getvalue().splitlines()] == [math_svg("x", 18.0, True), ""]


def test_at_the_programs_end_a_formula_is_empty_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    helper = HelperProcess("desktop.blocks.latex_process")
    helper.close()
    monkeypatch.setattr(formulas, "_HELPER", helper)
    assert formula_svg("x", 18.0, False) == ""
