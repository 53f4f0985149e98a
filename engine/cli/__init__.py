"""The subcommands of the command line, one or two in each module; `engine.__main__` reads `COMMANDS`."""

from __future__ import annotations

from engine.cli import bench, chat, info, logits, perplexity, run, selftest, serve, settings, text
from engine.cli.command import Command

COMMANDS: tuple[Command, ...] = (
    info.INFO, run.RUN, chat.CHAT, serve.SERVE, text.TOKENIZE, text.RENDER, logits.LOGITS,
    perplexity.PERPLEXITY, bench.BENCH, selftest.SELFTEST, settings.SETTINGS,
)  # fmt: skip
"""In the order of the help text."""
