"""The command line's commands, one module a command or a pair of them; `COMMANDS` is the table that
`engine.__main__` reads.
"""

from __future__ import annotations

from engine.cli import bench, chat, info, logits, perplexity, run, selftest, settings, text
from engine.cli.command import Command

COMMANDS: tuple[Command, ...] = (
    info.INFO, run.RUN, chat.CHAT, text.TOKENIZE, text.RENDER, logits.LOGITS, perplexity.PERPLEXITY,
    bench.BENCH, selftest.SELFTEST, settings.SETTINGS,
)  # fmt: skip
"""In the order of the help text."""
