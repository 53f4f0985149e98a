"""Chemistry and units of LaTeX packages in plain LaTeX: examples of their manuals' syntax."""

from __future__ import annotations

import pytest

from desktop.blocks.chemistry import chemistry
from desktop.blocks.latex import math_ml
from desktop.blocks.units import angle, number, quantity, unit


@pytest.mark.parametrize(
    ("formula", "latex"),
    [
        ("H2O", r"\mathrm{H}_{2}\mathrm{O}"),
        ("Sb2O3", r"\mathrm{Sb}_{2}\mathrm{O}_{3}"),
        ("SO4^2-", r"\mathrm{SO}_{4}^{2-}"),
        ("NH4+", r"\mathrm{NH}_{4}^{+}"),
        ("Y^99+", r"\mathrm{Y}^{99+}"),
        ("[AgCl2]-", r"[\mathrm{AgCl}_{2}]^{-}"),
        ("2H2O", r"2\,\mathrm{H}_{2}\mathrm{O}"),
        ("1/2H2O", r"\frac{1}{2}\,\mathrm{H}_{2}\mathrm{O}"),
        ("^{227}_{90}Th+", r"{}^{227}_{90}\mathrm{Th}^{+}"),
        ("(NH4)2S", r"(\mathrm{NH}_{4})_{2}\mathrm{S}"),
        ("Na+ + Cl- -> NaCl", r"\mathrm{Na}^{+} + \mathrm{Cl}^{-} \longrightarrow \mathrm{NaCl}"),
        ("A <=> B", r"\mathrm{A} \rightleftharpoons \mathrm{B}"),
        ("A ->[x] B", r"\mathrm{A} \xrightarrow{\mathrm{x}} \mathrm{B}"),
        ("KCr(SO4)2*12H2O", r"\mathrm{KCr}(\mathrm{SO}_{4})_{2}\cdot 12\,\mathrm{H}_{2}\mathrm{O}"),
        ("CO2 ^", r"\mathrm{CO}_{2}\uparrow "),
        ("AgCl v", r"\mathrm{AgCl}\downarrow "),
        ("C6H5-CHO", r"\mathrm{C}_{6}\mathrm{H}_{5}-\mathrm{CHO}"),
        ("(NaPO3)_x", r"(\mathrm{NaPO}_{3})_{x}"),
        ("A+ B", r"\mathrm{A}+\mathrm{B}"),
        ("A B", r"\mathrm{A}\ \mathrm{B}"),
        ("2 H2 + O2", r"2\,\mathrm{H}_{2} + \mathrm{O}_{2}"),
        ("$n$ H2O", r" n \mathrm{H}_{2}\mathrm{O}"),
        (r"\alpha-D", r" \alpha -\mathrm{D}"),
        ("A <=>[x] B", r"\mathrm{A} \overset{\mathrm{x}}{\rightleftharpoons} \mathrm{B}"),
        ("A ->[x][y] B", r"\mathrm{A} \xrightarrow[\mathrm{y}]{\mathrm{x}} \mathrm{B}"),
        ("", ""),
    ],
)
def test_chemistry(formula: str, latex: str) -> None:
    assert chemistry(formula) == latex


@pytest.mark.parametrize(
    ("text", "latex"),
    [("3e8", r"3 \times 10^{8}"), ("e3", "10^{3}"), ("-e3", "-10^{3}"),
    ("1.5(2)e-3", r"1.5(2) \times 10^{-3}"), ("1+-2", r"1 \pm 2"),
     ("1+-2e3", r"(1 \pm 2) \times 10^{3}"), ("2e+3", r"2 \times 10^{3}"),
     ("1,5", "1.5"), ("1,000.5", "1000.5"), ("12 345", "12345"), ("x", "x")],
)  # fmt: skip
def test_numbers(text: str, latex: str) -> None:
    assert number(text) == latex


@pytest.mark.parametrize(
    ("text", "latex"),
    [("m/s", r"\mathrm{m/s}"), ("kg.m^2", r"\mathrm{kg}\,\mathrm{m}^{2}"),
    ("m s^{-1}", r"\mathrm{m}\,\mathrm{s}^{-1}"),
     (r"\kilo\gram\metre\per\square\second", r"\mathrm{kg}\,\mathrm{m}\,\mathrm{s}^{-2}"),
     (r"\metre\per\second\squared", r"\mathrm{m}\,\mathrm{s}^{-2}"), (r"\percent", r"\mathrm{\%}"),
     ("%", r"\mathrm{\%}"), (r"\square\metre\per\kilo\gram", r"\mathrm{m}^{2}\,\mathrm{kg}^{-1}"),
     (r"\per\cubic\metre\second", r"\mathrm{m}^{-3}\,\mathrm{s}"),
     (r"\micro\metre\tothe{4}", "\\mathrm{\u00b5m}^{4}")],
)  # fmt: skip
def test_units(text: str, latex: str) -> None:
    assert unit(text) == latex


def test_quantities_and_angles() -> None:
    assert quantity("5", r"\metre") == r"5\,\mathrm{m}"
    assert quantity("90", r"\degree") == "90\\mathrm{\u00b0}"
    assert angle("1;2;3") == r"1^{\circ}2'3''"
    assert (angle("45"), angle(";2"), angle("1;2")) == (r"45^{\circ}", "2'", r"1^{\circ}2'")


def test_web_pages_have_them_too() -> None:
    for latex in (
        r"\ce{H2O}",
        r"\SI{1}{\metre}",
        r"\text{50\%}",
        r"\begin{pmatrix}1\end{pmatrix}^2",
        r"\cancel{x}",
    ):
        assert math_ml(latex, True).startswith("<math")


def test_each_command_is_read_in_its_own_way() -> None:
    assert math_ml(r"\ang{1;2;3}", True) == math_ml(r"{1^{\circ}2'3''}", True)
    assert math_ml(r"\si{\kilo\metre}", True) == math_ml(r"{\mathrm{km}}", True)
    assert math_ml(r"\num{3e8}", True) == math_ml(r"{3 \times 10^{8}}", True)


def test_a_formula_of_its_own_is_a_block_and_an_unknown_one_is_none() -> None:
    assert 'display="block"' in math_ml("x", True)
    assert 'display="inline"' in math_ml("x", False)
    assert math_ml(r"\unknown{x}", False) == ""
