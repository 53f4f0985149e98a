"""What a command is and where it writes: answers to stdout, everything else to stderr."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from engine.core import Loading
from engine.lazy_dataclass import dataclass
from engine.platform.terminal import padded, width_of
from engine.printable import one_line, printable

Answer = dict[str, Any]
"""The result of a command: with --json printed as one JSON object, otherwise formatted by `Command.show`."""


class Console:
    """Where a command writes. With `json`, only the answer goes to stdout and no progress is shown."""

    def __init__(self, json: bool) -> None:
        self.json = json
        self._progress = 0

    def write(self, text: str) -> None:
        """Write part of an answer as it arrives; silent with --json."""
        if not self.json:
            sys.stdout.write(printable(text))
            sys.stdout.flush()

    def progress(self, text: str) -> None:
        """Show one line that the next one overwrites; only on a terminal."""
        if not self.json and sys.stderr.isatty():
            text = one_line(text)
            sys.stderr.write(f"\r{padded(text, self._progress)}")
            sys.stderr.flush()
            self._progress = width_of(text)

    def note(self, text: str) -> None:
        """Write a line to stderr that is not overwritten; silent with --json."""
        self.clear()
        if not self.json:
            print(one_line(text), file=sys.stderr)

    def loading(self, event: Loading) -> None:
        """Show the progress of loading a model."""
        share = f" {100 * event.done // event.total} %" if event.total > 1 else ""
        self.progress(f"{event.stage}{share}")

    def clear(self) -> None:
        """Clear the progress line."""
        if self._progress:
            self.progress("")
            sys.stderr.write("\r")
            self._progress = 0


@dataclass(frozen=True)
class Command:
    """A subcommand: its arguments, the function that answers, the formatter of its answer, and whether an
    answer counts as a failure, which gives exit code 1.
    """

    name: str
    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    answer: Callable[[argparse.Namespace, Console], Answer]
    show: Callable[[Answer], str]
    has_json: bool = True
    failed: Callable[[Answer], bool] = lambda _: False
