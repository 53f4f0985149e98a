"""LaTeX -> plain vector paths (SVG) for pictures and pages, and MathML for web pages.

Slow (3 to 30 ms): not for the GUI's thread.

ziamath and its fonts (STIX Two Math) are imported with the first formula. Formulas that they cannot show are
shown as source.
"""

from __future__ import annotations

import re
from functools import cache
from html import unescape
from threading import Lock
from typing import Any

from desktop.blocks.array_rules import bordered, marked, ruled
from desktop.blocks.chemistry import chemistry
from desktop.blocks.units import angle, number, quantity, unit

__all__ = ["LONGEST", "math_ml", "math_svg"]

LONGEST = 4000
"""Characters of the longest formula that is drawn."""
_lock = Lock()
_DEEPEST = 40
_DROPPED = re.compile(r"\\(?:label|nonumber|notag)(?:\s*\{[^{}]*\})?(?![A-Za-z])")
_GAP = re.compile(r"\\\\\s*\[\s*-?[\d.]+\s*[a-z]{2}\s*\]")
"""A line's end with a distance to the next line."""
_WORDS = re.compile(r"\\text\{([^{}$]*)\$([^{}$]*)\$([^{}$]*)\}")
_TAG = re.compile(r"\\tag\*?\s*\{([^{}]*)\}")
_UNKNOWN = re.compile(
    r"\\(?:newcommand|renewcommand|providecommand|def|let|require|usepackage|includegraphics|unicode"
    r"|href|url|ce|SI|SIrange|cite|ref"
    r"|input|rule|sideset|verb)(?![A-Za-z])"
)
_PACKAGES = re.compile(r"\\(ce|SI|qty|si|unit|num|ang)(?:\s*\[[^\]]*\])?\s*(?=\{)")
_MATRIX = re.compile(r"(\\begin\{[pbBvV]?(?:small)?matrix\*?\})")
_MATRIX_END = re.compile(r"(\\end\{[pbBvV]?(?:small)?matrix\*?\})")
"""A matrix is put in braces, so that an exponent applies to all of it."""
_TEXT = re.compile(r"\\(?:text|textrm|textbf|textit|mbox)\{((?:[^{}\\]|\\.)*)\}")
_ESCAPED = re.compile(r"\\([%$_&#{}])")
_PLAIN = re.compile(r"\\(begin|end)\{(?:equation|displaymath|math)\*?\}")
_ALIGNED = re.compile(r"\\(begin|end)\{(?:align|flalign|eqnarray|split|alignedat|alignat)\*?\}(\{\d+\})?")
_GATHERED = re.compile(r"\\(begin|end)\{(?:gather|multline|gathered)\*?\}")
_COLOUR = re.compile(r"\\(color|textcolor|colorbox)\s*(?:\[(\w+)\])?\s*\{([^{}]*)\}(\s*\{)?")
_ML_NAMES = (("aligned", "align*"), ("gathered", "matrix"))
_ML_DROPPED = {"style", "class", "id", "href", "src"}


def math_svg(latex: str, size: float, display: bool) -> str:
    """The formula as SVG paths whose y axis begins at the baseline; empty when it has unknown parts.

    What has no colour of its own is "black"; a background is "light " and the name of its colour.
    """
    text = _known(latex)
    if not text:
        return ""
    with _lock:
        return _svg(_library(), text, size, display)


def math_ml(latex: str, display: bool) -> str:
    """The formula as a MathML element, safe inside a page; empty when it has unknown parts."""
    text = _known(latex)
    if not text:
        return ""
    from xml.etree.ElementTree import tostring

    from latex2mathml.converter import convert_to_element

    for ours, theirs in _ML_NAMES:
        text = text.replace(f"{{{ours}}}", f"{{{theirs}}}")
    text, rules = marked(text)
    try:
        made = convert_to_element(text, display="block" if display else "inline")
    except _errors():
        return ""
    # its texts are written in entities; and a message has no say in the page's style
    for element in made.iter():
        element.text = unescape(element.text or "")
        for name in _ML_DROPPED & element.attrib.keys():
            del element.attrib[name]
    bordered(made, rules)
    return "" if "\\" in "".join(made.itertext()) else str(tostring(made, encoding="unicode"))


def _known(latex: str) -> str:
    """The formula in the commands that the library knows; empty when it has unknown parts."""
    text = _normal(latex)
    return "" if len(text) > LONGEST or _UNKNOWN.search(text) or _depth(text) > _DEEPEST else text


def _svg(ziamath: Any, text: str, size: float, display: bool) -> str:
    from xml.etree.ElementTree import fromstring

    plain, rules = marked(text)
    try:
        source = fromstring(ziamath.escapes.unescape(ziamath.tex.tex2mml(plain, inline=not display)))
        ruled(source, rules)
        for element in source.iter():
            if behind := element.get("mathbackground"):
                element.set("mathbackground", f"light {behind}")
        formula = ziamath.Math(source, size=size)
        if "\\" in "".join(source.itertext()) or not _has_glyphs(formula.font, text):
            return ""
        return str(formula.svg())
    except _errors():
        return ""


@cache
def _library() -> Any:
    import ziamath.escapes
    import ziamath.tex

    import desktop.blocks.ruled_table  # noqa: F401 - it draws the tables from now on

    ziamath.config.svg2 = False  # QtSvg draws no <use> of symbols
    ziamath.config.precision = 3
    return ziamath


@cache
def _errors() -> tuple[type[BaseException], ...]:
    """What ziamath and latex2mathml raise for LaTeX that they do not know."""
    import latex2mathml.exceptions

    own = [
        kind
        for kind in vars(latex2mathml.exceptions).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    ]
    usual = (
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
        SyntaxError,
        AssertionError,
        NameError,
    )
    return (*own, *usual)


def _has_glyphs(font: Any, text: str) -> bool:
    """Whether the font has a glyph for every literal character: a formula in boxes would say nothing."""
    return all(
        ord(letter) < 0x250 or font.glyphindex(letter) != 0 for letter in set(text) if not letter.isspace()
    )


def _depth(text: str) -> int:
    deepest = now = 0
    for letter in text:
        now += (letter == "{") - (letter == "}")
        deepest = max(deepest, now)
    return deepest + text.count("\\left")


def _argument(text: str, start: int) -> tuple[str, int]:
    """(the content of the braces that open at `start`, the place after them); ("", start) when no braces open
    there or they do not close.
    """
    depth = 0
    for place in range(start, len(text) if text[start : start + 1] == "{" else 0):
        escaped = text[place - 1] == "\\" and text[place - 2 : place] != "\\\\"
        depth += ((text[place] == "{") - (text[place] == "}")) if not escaped else 0
        if not depth:
            return text[start + 1 : place], place + 1
    return "", start


def _with_packages(text: str) -> str:
    """Chemistry and units in plain LaTeX."""
    made, done = [], 0
    for found in _PACKAGES.finditer(text):
        if found.start() < done:
            continue
        first, end = _argument(text, found.end())
        second = ""
        if found[1] in ("SI", "qty") and end > found.end():
            second, last = _argument(text, end)
            end = last if last > end else found.end()
        if end == found.end():
            continue
        name = found[1]
        plain = (
            chemistry(first) if name == "ce" else number(first) if name == "num" else angle(first)
            if name == "ang"
            else quantity(first, second) if second else unit(first)
        )  # fmt: skip
        made += [text[done : found.start()], "{", plain, "}"]
        done = end
    return "".join([*made, text[done:]])


def _plain_words(found: re.Match[str]) -> str:
    """Unescape the signs in `\\text{...}` that LaTeX needs a backslash for, which the library would show."""
    command = found[0][: found.start(1) - found.start()]
    shown = _ESCAPED.sub(lambda sign: sign[1] if sign[1] in "%_#" else f"}}\\{sign[1]}{command}", found[1])
    return f"{command}{shown}}}".replace(f"{command}}}", "")


def _colour(found: re.Match[str]) -> str:
    """A colour by its name or as #rrggbb; `\\textcolor` where `\\color` is followed by what it colours."""
    command, model, name, braces = found[1], found[2] or "", found[3].strip(), found[4] or ""
    parts = re.findall(r"[\d.]+", name)
    if model == "HTML":
        name = f"#{name}"
    elif model.lower() == "rgb" and len(parts) == 3:
        whole = 255 if model == "rgb" else 1
        name = "#" + "".join(f"{min(255, round(float(part) * whole)):02x}" for part in parts)
    command = "textcolor" if command == "color" and braces else command
    return f"\\{command}{{{name.partition('!')[0]}}}{braces}"


def _normal(latex: str) -> str:
    """LaTeX with environments and commands that the library names differently, or lacks, in its own."""
    text = _COLOUR.sub(_colour, _GAP.sub(r"\\\\", _with_packages(latex)))
    text = _TEXT.sub(_plain_words, _MATRIX_END.sub(r"\1}", _MATRIX.sub(r"{\1", text)))
    latex = text
    text = _TAG.sub(r"\\qquad(\1)", _DROPPED.sub("", latex.strip()))
    text = _WORDS.sub(r"\\text{\1}\2\\text{\3}", text).replace("\\text{}", "")
    text = text.replace("\\operatorname*", "\\operatorname")
    text = _PLAIN.sub("", text)
    text = _ALIGNED.sub(lambda found: f"\\{found[1]}{{aligned}}", text)
    text = _GATHERED.sub(lambda found: f"\\{found[1]}{{gathered}}", text).strip()
    text = text.removesuffix("\\\\").rstrip()
    if (
        "\\begin{" not in text
        and "\\substack" not in text
        and ("\\\\" in text or re.search(r"(?<!\\)&", text))
    ):
        name = "aligned" if re.search(r"(?<!\\)&", text) else "gathered"
        text = f"\\begin{{{name}}}{text}\\end{{{name}}}"
    return text
