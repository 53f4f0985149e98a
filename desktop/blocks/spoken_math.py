"""LaTeX -> words, for screen readers: "x squared plus the square root of 2". Walks the MathML of `math_ml`.

The words follow those of MathSpeak (https://docs.mathjax.org/en/latest/options/accessibility.html): an end is
said where more than one sign stands in a fraction, a root, an exponent or an index.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from xml.etree.ElementTree import Element, fromstring

from desktop.blocks.latex import math_ml

__all__ = ["spoken_math"]

_SIGNS = {
    "=": "equals", "+": "plus", "-": "minus", "−": "minus", "±": "plus or minus", "∓": "minus or plus",
    "×": "times", "·": "times", "⋅": "times", "∗": "times", "*": "times", "÷": "divided by", "/": "slash",
    "<": "is less than", ">": "is greater than", "≤": "is at most", "≥": "is at least",
    "⩽": "is at most", "⩾": "is at least", "≪": "is much less than", "≫": "is much greater than",
    "≠": "is not equal to", "≈": "is approximately", "≃": "is asymptotically equal to",
    "≅": "is congruent to", "≡": "is equivalent to", "∼": "is similar to", "∝": "is proportional to",
    "≔": "is defined as",
    "∈": "is in", "∉": "is not in", "∋": "contains", "⊂": "is a subset of", "⊆": "is a subset of or equal to",
    "⊃": "is a superset of", "⊇": "is a superset of or equal to", "∪": "union", "∩": "intersection",
    "∖": "without", "∅": "the empty set", "∀": "for all", "∃": "there is", "∄": "there is no",
    "¬": "not", "∧": "and", "∨": "or", "⊕": "circled plus", "⊗": "circled times", "∘": "composed with",
    "→": "to", "⟶": "to", "←": "from", "↦": "maps to", "⟼": "maps to", "⇒": "implies", "⟹": "implies",
    "⇐": "is implied by", "⟸": "is implied by", "⇔": "if and only if", "⟺": "if and only if",
    "↔": "if and only if", "⇌": "in equilibrium with",
    "∞": "infinity", "∂": "partial", "∇": "nabla", "ℓ": "l", "ħ": "h bar", "ℏ": "h bar", "ℵ": "aleph",
    "…": "and so on", "⋯": "and so on", "⋮": "and so on", "⋱": "and so on", "′": "prime", "″": "double prime",
    "°": "degrees", "%": "percent", "!": "factorial", "|": "vertical bar", "∣": "vertical bar",
    "∥": "double bar", "‖": "double bar", "(": "open parenthesis", ")": "close parenthesis",
    "[": "open bracket", "]": "close bracket", "{": "open brace", "}": "close brace",
    "⟨": "open angle bracket", "⟩": "close angle bracket", "⌊": "floor of", "⌋": "end floor",
    "⌈": "ceiling of", "⌉": "end ceiling", "⊥": "is perpendicular to", "∠": "angle", "∴": "therefore",
    "∵": "because", "†": "dagger", "ℝ": "the real numbers", "ℕ": "the natural numbers",
    "ℤ": "the integers", "ℚ": "the rational numbers", "ℂ": "the complex numbers",
    "sin": "sine", "cos": "cosine", "tan": "tangent", "ln": "natural log", "exp": "exponential",
    "lim": "the limit", "max": "the maximum", "min": "the minimum", "sup": "the supremum",
    "inf": "the infimum", "det": "the determinant", "\u2061": "", "\u2062": "", "\u2063": "", "\u2064": "",
}  # fmt: skip
_LARGE = {
    "∑": "the sum", "∏": "the product", "∐": "the coproduct", "∫": "the integral", "∬": "the double integral",
    "∭": "the triple integral", "∮": "the contour integral", "⋃": "the union", "⋂": "the intersection",
    "⨁": "the direct sum", "⨂": "the tensor product", "⋀": "the conjunction", "⋁": "the disjunction",
}  # fmt: skip
_LIMITS = {"lim", "max", "min", "sup", "inf", "argmax", "argmin", "limsup", "liminf"}
_ACCENTS = {
    "^": "hat", "ˆ": "hat", "→": "vector", "⃗": "vector", "¯": "bar", "―": "bar", "‾": "bar", "_": "bar",
    "~": "tilde", "˜": "tilde", "˙": "dot", ".": "dot", "¨": "double dot", "ˇ": "check", "˘": "breve",
    "´": "acute", "`": "grave", "˚": "ring", "⏞": "with a brace above", "⏟": "with a brace below",
}  # fmt: skip
_POWERS = {"2": "squared", "3": "cubed", "′": "prime", "″": "double prime", "∘": "degrees", "°": "degrees"}
_ROOTS = {"2": "square", "3": "cube", "4": "fourth"}
_OPEN, _CLOSE = "([{|‖∥", ")]}|‖∥"
_ALPHABETS = (
    "BOLD", "ITALIC", "SCRIPT", "FRAKTUR", "BLACK-LETTER", "DOUBLE-STRUCK", "SANS-SERIF", "MONOSPACE",
)  # fmt: skip


@lru_cache(maxsize=512)
def spoken_math(latex: str) -> str:
    """The formula in words; the LaTeX itself where it has unknown parts or lacks some."""
    made = math_ml(latex, False)
    try:
        return _said(fromstring(made)) if made else latex
    except ValueError:  # a fraction without a denominator, and the like
        return latex


def _said(element: Element) -> str:
    name = element.tag.rpartition("}")[2]
    special = _KINDS.get(name)
    if special is not None and len(element):
        return special(element)
    if len(element):
        return _row(list(element))
    text = (element.text or "").strip()
    return text if name in ("mtext", "mn") else _sign(text)


def _sign(text: str) -> str:
    if text in _SIGNS:
        return _SIGNS[text]
    return _LARGE.get(text) or (_letter(text) if len(text) == 1 else text)


def _letter(letter: str) -> str:
    """A letter of another alphabet by its name, one of a style by the style: "capital gamma", "bold v"."""
    name = unicodedata.name(letter, "")
    plain = unicodedata.normalize("NFKC", letter)
    if name.startswith(("MATHEMATICAL", "SCRIPT", "BLACK-LETTER", "DOUBLE-STRUCK")) and len(plain) == 1:
        style = next((style.lower() for style in _ALPHABETS if style in name), "")
        return " ".join(filter(None, (style if style != "italic" else "", _letter(plain))))
    if name.startswith("GREEK"):
        size, _letter_word, rest = name.removeprefix("GREEK ").partition(" LETTER ")
        called = (rest or name.removeprefix("GREEK ").removesuffix(" SYMBOL")).lower()
        return f"capital {called}" if size == "CAPITAL" else called
    return letter


def _row(parts: Sequence[Element]) -> str:
    """The parts one after the other; a table takes the fences around it into its name."""
    words: list[str] = []
    place = 0
    while place < len(parts):
        fenced = _fenced(parts[place : place + 3])
        if fenced:
            words.append(fenced)
            place += 3
            continue
        if _text(parts[place]) == "{" and len(parts) == place + 2 and _kind(parts[place + 1]) == "mtable":
            words.append(_table(parts[place + 1], "case", "cases"))
            break
        words.append(_said(parts[place]))
        place += 1
    return " ".join(filter(None, words)).replace(" ,", ",").replace(" ;", ";")


def _fenced(three: Sequence[Element]) -> str:
    """A matrix, a determinant or a binomial coefficient with its fences; "" for anything else."""
    if len(three) < 3 or _text(three[0]) not in _OPEN or _text(three[2]) not in _CLOSE:
        return ""
    inner = three[1]
    if _kind(inner) == "mfrac" and inner.get("linethickness") == "0":
        return f"{_said(inner[0])} choose {_said(inner[1])}"
    if _kind(inner) == "mtable":
        return _matrix(inner, "determinant" if _text(three[0]) == "|" else "matrix")
    return ""


def _matrix(table: Element, name: str) -> str:
    rows = [[_said(cell) for cell in row] for row in table]
    size = f"{len(rows)} by {max(map(len, rows), default=0)} {name}"
    values = "; ".join(f"row {place}: {', '.join(row)}" for place, row in enumerate(rows, 1))
    return f"the {size}, {values}, end {name}"


def _table(table: Element, one: str = "line", many: str = "lines") -> str:
    rows = [" ".join(filter(None, (_said(cell) for cell in row))) for row in table]
    if len(rows) == 1:
        return rows[0]
    return f"{len(rows)} {many}, " + "; ".join(f"{one} {place}: {row}" for place, row in enumerate(rows, 1))


def _fraction(element: Element) -> str:
    above, below = element
    if _simple(above) and _simple(below):
        return f"{_said(above)} over {_said(below)}"
    return f"the fraction {_said(above)} over {_said(below)}, end fraction"


def _root(element: Element) -> str:
    inner = _row(list(element))
    return f"the square root of {inner}" + ("" if _simple(element) else ", end root")


def _higher_root(element: Element) -> str:
    inner, order = element
    number = _said(order)
    name = _ROOTS.get(number, f"{number}-th")
    return f"the {name} root of {_said(inner)}" + ("" if _simple(inner) else ", end root")


def _power(base: str, exponent: Element) -> str:
    text = _text(exponent)
    if text and set(text) == {"′"}:
        return f"{base} {'double prime' if len(text) == 2 else ' '.join('prime' for _ in text)}"
    if text in _POWERS:
        return f"{base} {_POWERS[text]}"
    words = f"{base} to the power of {_said(exponent)}"
    return words if _simple(exponent) or text in ("-1", "−1") else f"{words}, end power"


def _index(base: str, index: Element) -> str:
    return f"{base} sub {_said(index)}" + ("" if _simple(index) else ", end sub")


def _below(base: Element, index: Element) -> str:
    name = _text(base)
    if name == "lim":
        return f"the limit as {_said(index).replace(' to ', ' approaches ')} of"
    if name in _LARGE:
        return f"{_LARGE[name]} over {_said(index)} of"
    if name in _LIMITS:
        return f"{_said(base)} over {_said(index)} of"
    return ""


def _sub(element: Element) -> str:
    base, index = element
    return _below(base, index) or _index(_said(base), index)


def _sup(element: Element) -> str:
    base, exponent = element
    return _power(_said(base), exponent)


def _sub_sup(element: Element) -> str:
    base, low, high = element
    if _text(base) in _LARGE:
        return f"{_LARGE[_text(base)]} from {_said(low)} to {_said(high)} of"
    return _power(_index(_said(base), low), high)


def _under(element: Element) -> str:
    base, low = element
    if words := _below(base, low):
        return words
    accent = _ACCENTS.get(_text(low))
    return f"{_said(base)} {accent}" if accent else f"{_said(base)} with {_said(low)} below"


def _over(element: Element) -> str:
    base, high = element
    accent = _ACCENTS.get(_text(high))
    return f"{_said(base)} {accent}" if accent else f"{_said(base)} with {_said(high)} above"


def _under_over(element: Element) -> str:
    base, low, high = element
    if _text(base) in _LARGE:
        return _sub_sup(element)
    return f"{_said(base)} with {_said(low)} below and {_said(high)} above"


def _nothing(_element: Element) -> str:
    return ""


def _kind(element: Element) -> str:
    """The name of the element inside rows of one."""
    while element.tag.rpartition("}")[2] in ("mrow", "mstyle") and len(element) == 1:
        element = element[0]
    return element.tag.rpartition("}")[2]


def _text(element: Element) -> str:
    return "".join(element.itertext()).strip()


def _simple(element: Element) -> bool:
    """Whether it is one number, one letter or one word."""
    leaves = [each for each in element.iter() if not len(each) and (each.text or "").strip()]
    return len(leaves) <= 1


_KINDS: dict[str, Callable[[Element], str]] = {
    "mfrac": _fraction, "msqrt": _root, "mroot": _higher_root, "msup": _sup, "msub": _sub,
    "msubsup": _sub_sup, "munder": _under, "mover": _over, "munderover": _under_over, "mtable": _table,
    "mspace": _nothing, "mphantom": _nothing,
}  # fmt: skip
