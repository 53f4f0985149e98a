"""Words for numbers: one function that chooses between singular and plural."""

from __future__ import annotations


def ngettext(one: str, many: str, number: int, **values: object) -> str:
    """The sentence `one` for a number of 1, else `many`; `{n}` in it becomes the number, with commas.

    Other names in braces become `values`. Both are whole sentences or labels, as gettext's extraction wants
    them: never parts to be glued.
    """
    return (one if number == 1 else many).format(n=f"{number:,}", **values)
