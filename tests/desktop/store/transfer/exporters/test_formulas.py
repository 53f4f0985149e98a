"""Formulas in exported web pages: MathML by the transcript's rules, safe, and LaTeX as a fallback."""

from __future__ import annotations

import re
import time

import pytest

from desktop.store.transfer.exporters.html import renderer


def shown(text: str) -> str:
    """The words of the page, with `[…]` around a formula and `{…}` around one on a line of its own."""
    html = re.sub(r'<math [^>]*display="inline">(.*?)</math>', r"[\1]", renderer().render(text))
    html = re.sub(r'<math [^>]*display="block">(.*?)</math>', r"{\1}", html)
    return " ".join(re.sub(r"<[^>]*>", "", html).split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a $x_1$ and \\(y\\), **$z$**", "a [x1] and [y], [z]"),
        ("costs $5 or $10 and `$x$`", "costs $5 or $10 and $x$"),
        ("\\$x\\$ stays, `$y$`", "$x$ stays, $y$"),
        ("before\n$$\nx\n\n= y\n$$\nafter", "before {x=y} after"),
        ("\\[ x \\].", "{x.}"),
        ("$$x$$ is *it*", "{x} is it"),
        ("$$\nx\n= y$$ then *on*", "{x=y} then on"),
        ("- a\n  $$\n  x\n  $$\n- b", "a{x} b"),
        ("- a\n  $$\n  x\n\n  = y\n  $$\n- b", "a{x=y} b"),
        ("> $$x$$\n> b", "{x} b"),
        ("\\begin{align*}\na &= b\n\\end{align*}", "{a=b}"),
        ("|a|\n|-|\n|$x$|", "a [x]"),
        ("   $$\n   x\n   $$", "{x}"),
        ("    $$x$$", "$$x$$"),
        ("$$\n\\nothing\n$$ then *on*", "$$ \\nothing $$ then on"),
        ("$$\n\\nothing\n$$.", "$$ \\nothing $$."),
        ("$$\nnot closed\n\n# Head", "$$ not closed Head"),
        ("> $$\n> not closed\n\nhere $$", "$$ not closed here $$"),
        ("1. $$\n   not closed\n\nhere $$", "$$ not closed here $$"),
        ("```\n$$\nx\n$$\n```", "$$ x $$"),
        ("\\(\\foo{x}\\) and $$\\nothing$$", "\\(\\foo{x}\\) and $$\\nothing$$"),
    ],
)
def test_formulas(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_a_formula_that_words_follow_stays_in_their_paragraph() -> None:
    found = renderer().render("$$x$$ is *it*")
    assert re.fullmatch(r"<p>\S*<math.*</math>\S* is <em>it</em></p>\n", found)
    assert "<p>then <em>on</em></p>" in renderer().render("$$\nx\n= y$$ then *on*")


@pytest.mark.parametrize("text", ["$$ $$", "$$\n\n$$"])
def test_a_formula_of_nothing_stays_text(text: str) -> None:
    assert "".join(shown(text).split()) == "".join(text.split())


def test_a_formula_cannot_inject_markup() -> None:
    html = renderer().render(
        "$\\text{<script>alert(1)</script> &amp; <b>}$ $\\style{background:url(http://x)}{y}$ $\\foo{<i>}$"
    )
    assert html.count("<math") == 2
    assert not re.search(r"<(script|b|i)\b|\bstyle=|url", html)
    assert "&lt;script&gt;alert" in html.replace("\u00a0", " ")


def test_hostile_text_does_not_take_long() -> None:
    begin = time.process_time()
    for piece in ("$a", "$$a", "\\(", "\\[a\n", "$$\n", "\\begin{align}\n"):
        renderer().render(piece * 3000)
    assert time.process_time() - begin < 4
