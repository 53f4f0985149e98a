"""Lines and colours of formulas: what the LaTeX asks for is what is drawn, and nothing is hidden."""

from __future__ import annotations

import re
from xml.etree.ElementTree import fromstring

import pytest
from PySide6.QtGui import QColor

from desktop.blocks.array_rules import marked
from desktop.blocks.latex import math_ml, math_svg
from desktop.services.formulas.formula_process import draw
from desktop.services.formulas.rich_text import formula_colour


@pytest.mark.parametrize(
    ("latex", "columns", "rows"),
    [
        (r"\begin{array}{|c|c|} \hline a & b \\ \hline c & d \\ \hline \end{array}", {0, 1, 2}, {0, 1, 2}),
        (r"\begin{array}{cc|c} 1 & 0 & 3 \\ 0 & 1 & 4 \end{array}", {2}, set()),
        (r"\begin{array}{l@{\quad}p{2cm}|} & b \\ \hline\hline c & d \\ \end{array}", {2}, {1}),
        (r"\begin{pmatrix} A & B \\ \hline C & D \end{pmatrix}", set(), {1}),
    ],
)
def test_the_lines_of_a_table_are_found_and_drawn(latex: str, columns: set[int], rows: set[int]) -> None:
    plain, rules = marked(latex)
    assert [(set(each.columns), set(each.rows)) for each in rules] == [(columns, rows)]
    assert "hline" not in plain
    assert "|" not in plain
    lines = re.findall("<rect ", math_svg(latex, 20.0, True))
    assert len(lines) == len(columns) + len(rows)
    assert math_ml(latex, True).count("border-") >= len(columns) + len(rows)


def test_a_table_inside_a_table_has_lines_of_its_own() -> None:
    inner = r"\begin{array}{c} x \\ \hline y \end{array}"
    latex = rf"\begin{{array}}{{c|c}} {inner} & 2 \\ 3 & 4 \end{{array}}"
    assert [(set(each.columns), set(each.rows)) for each in marked(latex)[1]] == [({1}, set()), (set(), {1})]
    assert math_svg(latex, 20.0, True).count("<rect ") == 2


def test_a_line_after_a_table_inside_belongs_to_the_table_around_it() -> None:
    latex = r"\begin{array}{c} \begin{array}{c} x \\ y \end{array} \\ \hline 3 \end{array}"
    assert [(set(each.columns), set(each.rows)) for each in marked(latex)[1]] == [(set(), {1})]


def test_each_cell_has_a_border_where_a_line_is_asked_for_and_nowhere_else() -> None:
    found = re.findall(
        r"<mtd([^>]*)><mi>(.)<", math_ml(r"\begin{array}{|r|c} \hline a & b \\ c & d \end{array}", True)
    )
    assert {letter: set(re.findall("border-([a-z]+)", given)) for given, letter in found} == {
        "a": {"left", "top"}, "b": {"left", "top"}, "c": {"left"}, "d": {"left"},
    }  # fmt: skip
    assert ['"right"' in given for given, _ in found] == [True, False, True, False]  # columnalign
    closed = math_ml(r"\begin{array}{c|} a \\ b \\ \hline \end{array}", True)
    assert re.findall("border-([a-z]+)", closed) == ["right", "right", "bottom"]


def test_lines_stand_around_and_between_the_cells_and_meet_at_the_corners() -> None:
    svg = fromstring(
        math_svg(r"\begin{array}{|r|c|} \hline a & b \\ \hline c & d \\ \hline \end{array}", 20.0, True)
    )
    boxes = []
    for path in svg.findall("{*}path"):
        numbers = [float(each) for each in re.findall(r"-?[\d.]+", path.attrib["d"])]
        boxes.append((min(numbers[::2]), max(numbers[::2]), min(numbers[1::2]), max(numbers[1::2])))
    a, b, c, d = boxes  # each as left, right, top, bottom
    rects = [
        [float(each.attrib[key]) for key in ("x", "y", "width", "height")] for each in svg.findall("{*}rect")
    ]
    down = sorted(each for each in rects if each[2] < each[3])
    across = sorted((each for each in rects if each[2] > each[3]), key=lambda each: each[1])
    first, middle, last = (x for x, *_ in down)
    assert first < min(a[0], c[0]) < max(a[1], c[1]) < middle < min(b[0], d[0]) < max(b[1], d[1]) < last
    first, middle, last = (y for _, y, *_ in across)
    assert first < min(a[2], b[2]) < max(a[3], b[3]) < middle < min(c[2], d[2]) < max(c[3], d[3]) < last
    assert all(each[1:2] == [first] and each[3] == pytest.approx(last - first, abs=0.01) for each in down)
    begin, wide = down[0][0] + down[0][2] / 2, down[2][0] - down[0][0]
    assert all(
        each[0] == pytest.approx(begin, abs=0.01) and each[2] == pytest.approx(wide, abs=0.01)
        for each in across
    )
    x, y, width, height = map(float, svg.attrib["viewBox"].split())
    assert x <= down[0][0] < down[2][0] + down[2][2] <= x + width
    assert y <= first < last + across[2][3] <= y + height


def test_a_table_without_lines_and_one_that_does_not_end_stay_as_they_are() -> None:
    for latex in (r"\begin{array}{c} a \end{array}", r"\begin{array}{c", r"\begin{array} a"):
        assert marked(latex) == (latex, [])
    assert math_svg(r"\begin{array}{|c} \hline a", 20.0, True) == ""


def test_distances_between_lines_are_not_text() -> None:
    for name in ("aligned", "cases", "pmatrix"):
        latex = rf"\begin{{{name}}} a &= b \\[4pt] c &= d \\ [0.5em] e &= f \end{{{name}}}"
        formula = math_ml(latex, True)
        assert formula
        assert "[" not in "".join(fromstring(formula).itertext())
    assert "[" in math_ml(r"\begin{gathered} a \\ [x] \end{gathered}", True)


def test_a_formula_at_the_end_of_words_in_a_formula() -> None:
    assert math_svg(r"\text{if $x>0$}", 20.0, True)


@pytest.mark.parametrize(
    ("latex", "colours"),
    [
        (r"\color{red}{E} = m", {"red", "black"}),
        (r"{\color{red} E} = m", {"red", "black"}),
        (r"\textcolor{blue!50}{E}", {"blue"}),
        (r"\color[HTML]{00AA00}{E}", {"#00AA00"}),
        (r"\textcolor[rgb]{1,0.5,0}{E}", {"#ff8000"}),
        (r"\colorbox{yellow}{x}", {"light yellow", "black"}),
    ],
)
def test_formulas_have_the_colours_that_they_ask_for(latex: str, colours: set[str]) -> None:
    assert set(re.findall('fill="([^"]*)"', math_svg(latex, 20.0, True))) == colours


def test_a_colour_is_readable_on_its_ground_and_a_background_hides_nothing(qapp: object) -> None:
    for text in ("#202020", "#f0f0f0"):
        assert formula_colour("black", text) == QColor(text)
        assert formula_colour("no such colour", text) == QColor(text)
        assert formula_colour("light yellow", text).alphaF() < 0.5
    assert formula_colour("blue", "#f0f0f0").lightnessF() > 0.6
    assert formula_colour("yellow", "#202020").lightnessF() < 0.5
    shown = draw(r"\colorbox{yellow}{x}", 20.0, "#202020", True, 3.0)
    assert shown is not None
    assert shown.pixels.count(b"\x20\x20\x20\xff") > 5, "the letter"
