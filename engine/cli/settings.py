"""Command `settings`: every engine setting with its default, range and purpose, from the dataclass fields."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from engine.cli.command import Answer, Command, Console
from engine.cli.flags import FLAG_NAMES, REPLY_SETTINGS, heading, shown_default
from engine.settings import CacheSettings, LoadSettings, SettingInfo, Settings, setting_info
from engine.units import number_text
from engine.words import N_, _

COMMAND_SETTINGS: tuple[type[Settings], ...] = (*REPLY_SETTINGS, CacheSettings, LoadSettings)
"""The classes whose fields are flags of commands, under the first sentence of their description."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--markdown", action="store_true", help=_("print tables in Markdown"))


def _answer(options: argparse.Namespace, console: Console) -> Answer:
    return {
        "markdown": options.markdown,
        "groups": [
            {
                "title": heading(cls),
                "settings": [_row(cls, field) for field in dataclasses.fields(cls)],  # type: ignore[arg-type]
            }
            for cls in COMMAND_SETTINGS
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
        return ", ".join(value for value, _label in info.choices)
    unit = f" {info.unit}" if info.unit else ""
    if info.low is not None and info.high is not None:
        return _("{low:g} to {high}{unit}", low=info.low, high=_bound(info.high), unit=unit)
    return _("from {low:g}{unit}", low=info.low, unit=unit) if info.low is not None else _("any")


def _bound(number: float) -> str:
    """A number; large ones as a power of two."""
    integer = int(number)
    return f"2^{(integer + 1).bit_length() - 1}" if integer > 100_000 else number_text(number, "g")


def _show(answer: Answer) -> str:
    return "\n\n".join(_table(group) if answer["markdown"] else _list(group) for group in answer["groups"])


def _list(group: dict[str, Any]) -> str:
    rows = [
        f"{row['flag']}  [{shown_default(row['default'])}; {row['range']}]\n    {row['label']}: {row['help']}"
        for row in group["settings"]
    ]
    return "\n".join([group["title"], *rows])


def _table(group: dict[str, Any]) -> str:
    titles = " | ".join((_("setting"), _("default"), _("range"), _("what it does")))
    rows = [f"**{group['title']}**\n", f"| {titles} |", "|---|---|---|---|"]
    for row in group["settings"]:
        rows.append(
            f"| {row['label']} (`{row['name']}`) | {shown_default(row['default'])} | {row['range']} | "
            f"{row['help']} |"
        )
    return "\n".join(rows)


SETTINGS = Command(
    "settings", N_("list every setting: its default, its range, what it does"), _arguments, _answer, _show
)
