"""Command `settings`: every engine setting with its default, range and purpose, from the dataclass fields."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from engine.cli.command import Answer, Command, Console
from engine.cli.flags import FLAG_NAMES, REPLY_SETTINGS
from engine.settings import CacheSettings, LoadSettings, SettingInfo, Settings, setting_info

_GROUPS: tuple[type[Settings], ...] = (*REPLY_SETTINGS, CacheSettings, LoadSettings)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")


def _answer(options: argparse.Namespace, console: Console) -> Answer:
    return {
        "markdown": options.markdown,
        "groups": [
            {
                "title": (cls.__doc__ or "").split(".")[0],
                "settings": [_row(cls, field) for field in dataclasses.fields(cls)],  # type: ignore[arg-type]
            }
            for cls in _GROUPS
        ],
    }


def _row(cls: type[Settings], field: dataclasses.Field[Any]) -> dict[str, Any]:
    info = setting_info(field)
    return {
        "name": field.name,
        "flag": "--" + FLAG_NAMES.get((cls, field.name), field.name.replace("_", "-")),
        "label": info.label,
        "default": field.default,
        "range": _range(info),
        "help": info.help,
    }


def _range(info: SettingInfo) -> str:
    """The allowed values, in words."""
    if info.choices:
        return ", ".join(value for value, _ in info.choices)
    unit = f" {info.unit}" if info.unit else ""
    if info.low is not None and info.high is not None:
        return f"{info.low:g} to {_bound(info.high)}{unit}"
    return f"from {info.low:g}{unit}" if info.low is not None else "any"


def _bound(number: float) -> str:
    """A number; large ones as a power of two."""
    integer = int(number)
    return f"2^{(integer + 1).bit_length() - 1}" if integer > 100_000 else f"{number:g}"


def _default(value: Any) -> str:
    return "none" if value in (None, ()) else f"{value}"


def _show(answer: Answer) -> str:
    return "\n\n".join(_table(group) if answer["markdown"] else _list(group) for group in answer["groups"])


def _list(group: dict[str, Any]) -> str:
    rows = [
        f"{row['flag']}  [{_default(row['default'])}; {row['range']}]\n    {row['label']}: {row['help']}"
        for row in group["settings"]
    ]
    return "\n".join([group["title"], *rows])


def _table(group: dict[str, Any]) -> str:
    rows = [f"**{group['title']}**\n", "| setting | default | range | what it does |", "|---|---|---|---|"]
    for row in group["settings"]:
        rows.append(
            f"| {row['label']} (`{row['name']}`) | {_default(row['default'])} | {row['range']} | "
            f"{row['help']} |"
        )
    return "\n".join(rows)


SETTINGS = Command(
    "settings", "list every setting: its default, its range, what it does", _arguments, _answer, _show
)
