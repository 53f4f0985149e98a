"""Opens what the arguments name: a model with progress on the terminal, a prompt's ids, or messages."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.chat import open_chat
from engine.cli.command import Console
from engine.cli.flags import read_file, read_settings, shown_path
from engine.core import Message, ModelInfo
from engine.drain import drain
from engine.errors import BadSetting, UnsupportedModel
from engine.settings import CacheSettings, LoadSettings
from engine.words import _

if TYPE_CHECKING:
    from engine.chat import LocalChat
    from engine.text.tokenizer.tokenizer import Tokenizer


@contextmanager
def opened(
    options: argparse.Namespace, console: Console, cache: CacheSettings | None = None
) -> Iterator[LocalChat]:
    """The loaded model that the arguments name; closed on exit."""
    chat = load(
        options.model,
        read_settings(LoadSettings, options),
        cache or read_settings(CacheSettings, options),
        console,
    )
    try:
        yield chat
    finally:
        chat.close()


def load(path: str, settings: LoadSettings, cache: CacheSettings, console: Console) -> LocalChat:
    """Run `open_chat` to completion with progress on the console."""
    chat = drain(open_chat(path, settings, cache), console.loading)
    console.clear()
    try:
        chat.check_writes()
    except UnsupportedModel:
        chat.close()
        raise
    return chat


def prompt_ids(options: argparse.Namespace, tokenizer: Tokenizer) -> list[int]:
    """The ids of --ids, or those of --prompt or --file with a BOS token if the tokenizer adds one."""
    if options.ids is not None:
        return list(options.ids)
    return tokenizer.encode(prompt_text(options), add_bos=tokenizer.add_bos)


def prompt_text(options: argparse.Namespace) -> str:
    """The text of --prompt or --file. The line break at the end of a file, which editors add, is left out.

    Raises `BadSetting` if there is none, or the file cannot be read.
    """
    if options.ids is not None:
        raise BadSetting(_("--image needs a text. Give it with --prompt, --file or --messages."))
    text: str | None = options.prompt
    return _file_text(options.file) if text is None else text


def piped_message() -> Message:
    """A message of the user from the standard input. Raises `BadSetting` if nothing is piped into it."""
    text = "" if sys.stdin is None or sys.stdin.isatty() else _file_text(Path("-"))
    if not text.strip():
        raise BadSetting(
            _(
                "There is no prompt. Give one with --prompt, --file, --ids or --messages, or pipe a message "
                "into the command."
            )
        )
    return Message("user", text)


def _file_text(path: Path) -> str:
    return read_file(path).removesuffix("\n").removesuffix("\r")


def described(path: str) -> ModelInfo:
    """The facts of a model by its headers."""
    from engine.vision.describe import describe  # imports Numba

    return describe(path)


def read_messages(path: Path) -> tuple[Message, ...]:
    """Messages from a JSON file: a list of {"role": ..., "content": ...}, or an object with it as "messages".
    The content is a text, or a list of parts of the type "text".

    Raises `BadSetting` for anything else.
    """
    text = read_file(path)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadSetting(
            _(
                "{path} must hold a JSON list of objects with the texts “role” and “content”, but it is not "
                "JSON ({error}).",
                path=shown_path(path),
                error=error,
            )
        ) from error
    if isinstance(data, dict):
        data = data.get("messages")
    if not isinstance(data, list) or not data:
        raise BadSetting(
            _(
                "{path} must hold a JSON list of objects with the texts “role” and “content”, with at least "
                "one message.",
                path=shown_path(path),
            )
        )
    messages = []
    for item in data:
        role = item.get("role") if isinstance(item, dict) else None
        content = _joined(item.get("content")) if isinstance(item, dict) else None
        if isinstance(role, str) and content is not None:
            messages.append(Message(role, content))
        else:
            raise BadSetting(
                _(
                    "{path} must hold a JSON list of objects with the texts “role” and “content”; this one "
                    "is not: {item}.",
                    path=shown_path(path),
                    item=json.dumps(item, ensure_ascii=False)[:80],
                )
            )
    return tuple(messages)


def _joined(content: Any) -> str | None:
    """The text of a message's content; None if it is not made of texts."""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts: list[str] = [
        part["text"]
        for part in parts
        if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
    ]
    return "".join(texts) if texts and len(texts) == len(parts) else None
