"""The subcommands of the command line, one or two in each module."""

from __future__ import annotations

from importlib import import_module

from engine.cli.command import Command

__all__ = ["commands"]

_FILES = {
    "info": "info", "run": "run", "chat": "chat", "serve": "serve", "tokenize": "text", "render": "text",
    "logits": "logits", "perplexity": "perplexity", "bench": "bench", "selftest": "selftest",
    "settings": "settings",
}  # fmt: skip
"""The module of each command, in the order of the help text."""


def commands(name: str = "") -> tuple[Command, ...]:
    """The command of this name alone, whose module is imported then; all of them if there is no such one."""
    names = (name,) if name in _FILES else _FILES
    return tuple(getattr(import_module(f"{__name__}.{_FILES[each]}"), each.upper()) for each in names)
