r"""Chemical formulas, `\ce{...}` of the LaTeX package mhchem (its manual, version 4), in the LaTeX of
plain mathematics.
"""

from __future__ import annotations

import re

__all__ = ["chemistry"]

_ARROWS = {
    "<=>>": r"\rightleftharpoons", "<<=>": r"\rightleftharpoons", "<=>": r"\rightleftharpoons",
    "<-->": r"\leftrightarrow", "<->": r"\leftrightarrow", "->": r"\longrightarrow", "<-": r"\longleftarrow",
}  # fmt: skip
_TOKEN = re.compile(
    r"""
    (?P<arrow> <=>> | <<=> | <=> | <--> | <-> | -> | <- )
        (?: \[ (?P<above> [^\]]* ) \] )? (?: \[ (?P<below> [^\]]* ) \] )?
    | \$ (?P<math> [^$]* ) \$
    | (?P<script> [\^_] ) (?: \{ (?P<group> [^{}]* ) \} | (?P<bare> [A-Za-z] | [0-9]*[+-]? ) )
    | (?P<state> \( (?: aq | s | l | g | cr | conc | dil ) \) )
    | (?P<letters> [A-Za-z]+ )
    | (?P<number> [0-9]+ (?: [./,][0-9]+ )? )
    | (?P<command> \\[A-Za-z]+ \s* (?: \{ [^{}]* \} )? | \\. )
    | (?P<space> \s+ )
    | (?P<sign> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_BONDS = {"#": r"\equiv ", "=": "=", "*": r"\cdot ", ".": r"\cdot "}


def chemistry(formula: str) -> str:
    r"""LaTeX for the content of `\ce{...}`: numbers after an element are subscripts, charges superscripts."""
    made: list[str] = []
    before = " "  # what came last: " " for nothing, "x" for something that can have a subscript
    for found in _TOKEN.finditer(formula):
        kind, text = str(found.lastgroup), found[0]
        after = formula[found.end() : found.end() + 1]
        if found["arrow"]:
            made.append(_arrow(found))
            before = " "
            continue
        if found["script"]:
            made.append(_script(found, alone=before == " ", after=after))
            before = before if before == "x" else "("
            continue
        if kind == "letters" and before == " " and text in ("v", "V") and after in ("", " "):
            made.append(r"\downarrow ")
        elif kind in ("letters", "state"):
            made.append(f"\\mathrm{{{text}}}")
        elif kind == "number":
            made.append(f"_{{{text}}}" if before == "x" else _fraction(text) + r"\,")
        elif kind == "space":
            made.append(
                r"\ " if before == "x" and re.match(r"[A-Za-z(\[]", after) and after not in "vV" else ""
            )
        elif kind in ("math", "command"):
            made.append(f" {found['math'] or text} ")
        elif text in "+-" and before == "x" and (after in ("", ")", "]", "}") or after + text == " -"):
            made.append(f"^{{{text}}}")
        elif text == "+" and before == "x":
            made.append(
                "^{+}" if after == " " and formula[found.end() :].lstrip()[:1] in ("+", "-", "<") else "+"
            )
        else:
            made.append(_BONDS.get(text, text) if before != " " or text not in "+-" else f" {text} ")
        is_base = kind in ("letters", "state") or text in ")]" or (kind == "number" and before == "x")
        before = " " if kind == "space" else "x" if is_base else "("
        if kind == "sign" and text in "+-" and made[-1].strip() == text:
            before = " "
    return "".join(made)


def _arrow(found: re.Match[str]) -> str:
    arrow, above, below = found["arrow"], found["above"], found["below"]
    if above is None:
        return f" {_ARROWS[arrow]} "
    name = {"->": r"\xrightarrow", "<-": r"\xleftarrow"}.get(arrow)
    words = chemistry(above)
    if name is None:
        return f" \\overset{{{words}}}{{{_ARROWS[arrow]}}} "
    return f" {name}[{chemistry(below)}]{{{words}}} " if below else f" {name}{{{words}}} "


def _script(found: re.Match[str], alone: bool, after: str) -> str:
    """A superscript or subscript, on an empty base where there is none; an upward arrow for a gas that
    escapes.
    """
    text = found["group"] if found["group"] is not None else found["bare"] or ""
    if found["script"] == "^" and not text:
        return r"\uparrow "
    return f"{'{}' if alone else ''}{found['script']}{{{text}}}"


def _fraction(text: str) -> str:
    above, _, below = text.partition("/")
    return f"\\frac{{{above}}}{{{below}}}" if below else text
