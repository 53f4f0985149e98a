"""The lines of LaTeX's arrays and matrices (`|`, `\\hline`), which the converter to MathML mixes up: they are
taken out of the LaTeX, whose tables get a mark each, and are put on the tables of the MathML.
"""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

from engine.lazy_dataclass import dataclass

__all__ = ["COLUMNS", "ROWS", "Rules", "bordered", "marked", "ruled"]

COLUMNS, ROWS = "ruledcolumns", "ruledrows"
"""Attributes of a table: the numbers of the columns and rows that have a line before them."""
_FIRST_MARK, _MARKS = 0xE000, 400
_TABLE = re.compile(r"\\begin\{(array|[pbBvV]?(?:small)?matrix\*?)\}")
_PART = re.compile(
    r"\\begin\{(\w+\*?)\}|\\end\{(\w+\*?)\}|(\\\\(?:\s*\[[^\]]*\])?)|"
    r"(\\(?:hline|hdashline|toprule|midrule|bottomrule)(?![A-Za-z]))|\\cline\s*\{[^{}]*\}|\\.|[{}]",
    re.DOTALL,
)
_ALIGNMENT = re.compile(r"\s*(?:\[[tbc]\])?\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_UNUSUAL = re.compile(r"[@!><]\s*\{[^{}]*\}|\s")
_WIDE = re.compile(r"[pmb]\s*\{[^{}]*\}")
_LINE = "1px solid"


@dataclass(frozen=True)
class Rules:
    """The numbers of the columns and of the rows that have a line before them; behind the last of n is n."""

    columns: frozenset[int]
    rows: frozenset[int]


def marked(latex: str) -> tuple[str, list[Rules]]:
    """LaTeX without lines of tables, and the lines of each table that has any, whose first cell begins with
    the mark of its place in the list.
    """
    rules: list[Rules] = []
    if any(_FIRST_MARK <= ord(letter) < 0xF900 for letter in latex):
        return latex, rules
    start = 0
    while len(rules) < _MARKS and (found := _TABLE.search(latex, start)):
        start = found.end()
        given = _ALIGNMENT.match(latex, start) if found[1] == "array" else None
        if found[1] == "array" and given is None:
            continue
        letters, columns = _columns(given[1]) if given is not None else ("", frozenset())
        begin = given.end() if given is not None else start
        cells, rows, end = _rows(latex, begin)
        if not columns and not rows:
            continue
        mark = f"\\text{{{chr(_FIRST_MARK + len(rules))}}}"
        head = f"{found[0]}{{{letters}}}" if given is not None else found[0]
        rules.append(Rules(columns, rows))
        start = found.start() + len(head) + len(mark)
        latex = f"{latex[: found.start()]}{head}{mark}{cells}{latex[end:]}"
    return latex, rules


def _columns(alignment: str) -> tuple[str, frozenset[int]]:
    """The letters of an alignment such as `|c|r|`, and the columns with a line before them."""
    plain = _WIDE.sub("l", _UNUSUAL.sub("", alignment))
    letters = plain.replace("|", "")
    before = (plain[:place].replace("|", "") for place, letter in enumerate(plain) if letter == "|")
    return letters, frozenset(map(len, before))


def _rows(latex: str, begin: int) -> tuple[str, frozenset[int], int]:
    """The cells of a table from `begin` on without lines, the rows with a line before them, and where the
    cells end.
    """
    rows: set[int] = set()
    kept, done, row, depth = "", begin, 0, 0
    for part in _PART.finditer(latex, begin):
        if depth == 0 and (part[2] or part[0] == "}"):
            kept += latex[done : part.start()]
            return (
                (kept.rstrip().removesuffix("\\\\") if row in rows else kept),
                frozenset(rows),
                part.start(),
            )
        depth += (part[1] is not None or part[0] == "{") - (part[2] is not None or part[0] == "}")
        if depth:
            continue
        if part[3]:
            row += 1
        elif part[4] or part[0].startswith("\\cline"):
            kept += latex[done : part.start()] + " "
            done = part.end()
            rows |= {row} if part[4] else set()
    return kept + latex[done:], frozenset(rows), len(latex)


def _tables(formula: Element, rules: list[Rules]) -> list[tuple[Element, Rules]]:
    """The tables of MathML that have lines, with these; the marks are taken out."""
    if not rules:
        return []
    around = {inner: outer for outer in formula.iter() for inner in outer}
    found = []
    for element in list(formula.iter()):
        place = ord(element.text) - _FIRST_MARK if element.text and len(element.text) == 1 else -1
        if not (element.tag.endswith("mtext") and 0 <= place < len(rules)):
            continue
        table = around[element]
        table.remove(element)
        while not table.tag.endswith("mtable") and table in around:
            table = around[table]
        found.append((table, rules[place]))
    return found


def ruled(formula: Element, rules: list[Rules]) -> None:
    """Give the tables of `formula` the attributes by which `ruled_table` draws their lines."""
    for table, each in _tables(formula, rules):
        table.set(COLUMNS, " ".join(map(str, sorted(each.columns))))
        table.set(ROWS, " ".join(map(str, sorted(each.rows))))
        table.set("columnspacing", "0.8em")
        table.set("rowspacing", "0.45em")


def bordered(formula: Element, rules: list[Rules]) -> None:
    """Give the cells of `formula`'s tables borders, as browsers draw them."""
    for table, each in _tables(formula, rules):
        rows = list(table)
        for row, cells in enumerate(rows):
            for column, cell in enumerate(cells):
                sides = {
                    "left": column in each.columns,
                    "top": row in each.rows,
                    "right": column == len(cells) - 1 and column + 1 in each.columns,
                    "bottom": row == len(rows) - 1 and row + 1 in each.rows,
                }
                if any(sides.values()):
                    cell.set("style", ";".join(f"border-{side}:{_LINE}" for side, on in sides.items() if on))
