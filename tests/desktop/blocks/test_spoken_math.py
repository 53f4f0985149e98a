"""Formulas in words."""

from __future__ import annotations

import pytest

from desktop.blocks.spoken_math import spoken_math


@pytest.mark.parametrize(
    ("latex", "words"),
    [
        ("x^2", "x squared"),
        ("x^3", "x cubed"),
        (r"90^\circ", "90 degrees"),
        ("f''(x)", "f double prime open parenthesis x close parenthesis"),
        ("A^{-1}", "A to the power of minus 1"),
        (r"e^{i\pi}", "e to the power of i pi, end power"),
        ("a_{ij}", "a sub i j, end sub"),
        ("x_1^2", "x sub 1 squared"),
        (r"\frac{a}{b}", "a over b"),
        (
            r"x = \frac{-b \pm \sqrt{b^2-4ac}}{2a}",
            "x equals the fraction minus b plus or minus the square root of b squared minus 4 a c, end root "
            "over 2 a, end fraction",
        ),
        (r"\sqrt[3]{\alpha}", "the cube root of alpha"),
        (r"\sqrt[n]{a+b}", "the n-th root of a plus b, end root"),
        (r"\sum_{i=1}^{n} x_i", "the sum from i equals 1 to n of x sub i"),
        (r"\sum\limits_{k=0}^\infty a_k", "the sum from k equals 0 to infinity of a sub k"),
        (r"\sum_{p} p", "the sum over p of p"),
        (r"\int_0^1 x\,dx", "the integral from 0 to 1 of x d x"),
        (r"\lim_{x\to 0} x", "the limit as x approaches 0 of x"),
        (r"\max_{x\in X} x", "the maximum over x is in X of x"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "the 2 by 2 matrix, row 1: 1, 2; row 2: 3, 4, end matrix"),
        (r"\begin{vmatrix}a\end{vmatrix}", "the 1 by 1 determinant, row 1: a, end determinant"),
        (r"\binom{n}{k}", "n choose k"),
        (r"\begin{cases}1&x>0\\0&\text{else}\end{cases}",
            "2 cases, case 1: 1 x is greater than 0; case 2: 0 else"),
        (r"\begin{aligned}a&=b\\c&=d\end{aligned}", "2 lines, line 1: a equals b; line 2: c equals d"),
        (r"\hat{x}\vec{v}\overline{AB}", "x hat v vector A B bar"),
        (r"\underset{a}{b}, \overset{a}{b}", "b with a below, b with a above"),
        (r"\Gamma(\varepsilon)", "capital gamma open parenthesis epsilon close parenthesis"),
        (r"\mathbf{v} \in \mathbb{R}^n", "bold v is in the real numbers to the power of n"),
        (r"\mathcal{L}", "script L"),
        (r"p \land \neg q \implies r", "p and not q implies r"),
        (r"\ce{H2O}", "H sub 2 O"),
        (r"(\frac{a}{b})", "open parenthesis a over b close parenthesis"),
        (r"\begin{aligned}a&=b\end{aligned}", "a equals b"),
        (r"\operatorname*{argmax}_x f", "argmax over x of f"),
        (r"f \colon A \to B", "f : A to B"),
        ("\u03d1 + \u03d5", "theta plus phi"),  # which Unicode calls symbols
    ],
)  # fmt: skip
def test_formulas_are_said_in_words(latex: str, words: str) -> None:
    assert spoken_math(latex) == words


@pytest.mark.parametrize("latex", [r"\unknown{x}", r"\frac{a", "x" * 5000])
def test_what_is_not_known_stays_latex(latex: str) -> None:
    assert spoken_math(latex) == latex
