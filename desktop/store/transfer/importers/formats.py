"""The table of formats, in the order in which they are tried."""

from __future__ import annotations

from typing import Any

from desktop.store.transfer.importers.chatgpt import ChatGpt
from desktop.store.transfer.importers.claude import Claude
from desktop.store.transfer.importers.gpt4all import LABEL
from desktop.store.transfer.importers.jan import Jan
from desktop.store.transfer.importers.llama_cpp import LlamaCpp
from desktop.store.transfer.importers.lm_studio import LmStudio
from desktop.store.transfer.importers.open_webui.export import OpenWebUi
from desktop.store.transfer.importers.own import Own
from desktop.store.transfer.importers.protocol import Format, LineFormat
from desktop.store.transfer.importers.sharegpt import BareMessages, ShareGpt
from desktop.store.transfer.importers.silly_tavern import SillyTavern
from desktop.store.transfer.importers.textgen import TextGen

__all__ = ["FORMATS", "LINE_FORMATS", "format_of", "labels", "line_format_of"]

FORMATS: tuple[Format, ...] = (
    Own(), ChatGpt(), Claude(), OpenWebUi(), LlamaCpp(), LmStudio(), TextGen(), ShareGpt(),
)  # fmt: skip
"""ShareGPT comes last because it accepts the most."""
LINE_FORMATS: tuple[LineFormat, ...] = (Jan(), LlamaCpp(), SillyTavern(), BareMessages())


def format_of(value: Any) -> Format | None:
    """The format of which this JSON value is a conversation."""
    return next((found for found in FORMATS if found.recognises(value)), None)


def line_format_of(value: Any) -> LineFormat | None:
    """The format of which a conversation begins with this JSON value."""
    return next((found for found in LINE_FORMATS if found.begins(value)), None)


def labels() -> tuple[str, ...]:
    """The names of the programs whose files can be read, in the order of the table."""
    names = [found.label for found in FORMATS] + [LABEL] + [found.label for found in LINE_FORMATS]
    return tuple(dict.fromkeys(name for name in names if name != "messages"))
