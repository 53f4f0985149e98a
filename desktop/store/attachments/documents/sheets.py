"""Spreadsheets (.xlsx, .xlsm, .xlsb, .xls, .ods) as CSV."""

from __future__ import annotations

import csv
import datetime
import io
from typing import Any

from desktop.store.attachments.documents.packages import Locked

__all__ = ["read"]


def read(path: str, most_characters: int) -> str:
    """The visible sheets, each under its name if there are several: what their cells show, formulas as their
    results. Ends soon after `most_characters`.
    """
    from python_calamine import CalamineError, CalamineWorkbook, PasswordError, SheetVisibleEnum

    try:
        with CalamineWorkbook.from_path(path) as book:
            shown = [
                sheet.name for sheet in book.sheets_metadata if sheet.visible == SheetVisibleEnum.Visible
            ]
            texts: list[str] = []
            for name in shown:
                # From A1 on, so that a cell is where its letters say; empty rows at the end are not there.
                rows = book.get_sheet_by_name(name).to_python(skip_empty_area=False)
                if text := _csv(rows, most_characters):
                    texts.append(f"## {name}\n\n{text}" if len(shown) > 1 else text)
                if sum(map(len, texts)) > most_characters:
                    break
    except PasswordError as error:
        raise Locked from error
    except CalamineError as error:
        raise ValueError(str(error)) from error
    return "\n\n".join(texts)


def _csv(rows: list[list[Any]], most_characters: int) -> str:
    """Rows as CSV, without empty cells at their ends, and with one line for several empty rows."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    empty = True
    for row in rows:
        cells = [_cell(value) for value in row]
        while cells and not cells[-1]:
            cells.pop()
        if cells or not empty:
            writer.writerow(cells)
        empty = not cells
        if out.tell() > most_characters:
            break
    return out.getvalue().rstrip("\n")


def _cell(value: Any) -> str:
    """What a cell shows, about."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ").removesuffix(" 00:00:00")
    return str(value)
