"""Manual pages of the two commands, made from their help.

Format: https://manpages.debian.org/bookworm/groff-base/man.7.en.html
"""

from __future__ import annotations

import argparse
import datetime
import functools

__all__ = ["manual_page"]

_COLUMNS = 78
_USAGE = "usage: "


def manual_page(parser: argparse.ArgumentParser, version: str, day: datetime.date) -> str:
    """The page of a command for section 1, the same on every terminal."""
    parser.formatter_class = functools.partial(argparse.HelpFormatter, width=_COLUMNS)
    usage = parser.format_usage()
    described = parser.format_help().removeprefix(usage).strip().split("\n")
    about = (parser.description or "").rstrip(".")
    lines = [
        f'.TH {parser.prog.upper()} 1 {day.isoformat()} "inglenook {version}" "User Commands"',
        ".SH NAME",
        f"{parser.prog} \\- {_plain(about[:1].lower() + about[1:])}",
        *_section("SYNOPSIS", [line[len(_USAGE) :] for line in usage.splitlines()]),
        *_section("DESCRIPTION", described),
    ]
    return "\n".join(lines) + "\n"


def _section(name: str, lines: list[str]) -> list[str]:
    return [f".SH {name}", ".nf", *map(_plain, lines), ".fi"]


def _plain(line: str) -> str:
    """A line that the formatter shows as it is."""
    text = line.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text
