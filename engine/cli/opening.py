"""Opens what the arguments name: a model with progress on the terminal, a prompt's ids, or messages."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.chat import LocalChat, open_chat
from engine.cli.command import Console
from engine.cli.flags import read_file, read_settings
from engine.core import Message
from engine.drain import drain
from engine.errors import BadSetting, UnsupportedModel
from engine.settings import CacheSettings, LoadSettings
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.words import _


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
    """The ids of --ids, or those of --prompt with a BOS token if the tokenizer adds one."""
    if options.ids is not None:
        return list(options.ids)
    return tokenizer.encode(options.prompt, add_bos=tokenizer.add_bos)


def read_messages(path: Path) -> tuple[Message, ...]:
    """Messages from a JSON file: a list of {"role": ..., "content": ...}, or an object with it as "messages".

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
                path=path,
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
                path=path,
            )
        )
    for item in data:
        if not isinstance(item, dict) or not all(
            isinstance(item.get(key), str) for key in ("role", "content")
        ):
            raise BadSetting(
                _(
                    "{path} must hold a JSON list of objects with the texts “role” and “content”; this one "
                    "is not: {item}.",
                    path=path,
                    item=json.dumps(item, ensure_ascii=False)[:80],
                )
            )
    return tuple(Message(item["role"], item["content"]) for item in data)
