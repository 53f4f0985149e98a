"""What a command is, and where it writes: answers to stdout, everything else to stderr."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.core import Loading
from engine.printable import one_line, printable

Answer = dict[str, Any]
"""What a command gives: with --json it is printed as one JSON object, otherwise `Command.show` makes text
of it.
"""


class Console:
    """Where a command writes. With `json` nothing but the answer goes to stdout, and no progress is shown."""

    def __init__(self, json: bool) -> None:
        self.json = json
        self._progress = 0

    def write(self, text: str) -> None:
        """Part of an answer that is shown while it grows; silent with --json."""
        if not self.json:
            sys.stdout.write(printable(text))
            sys.stdout.flush()

    def progress(self, text: str) -> None:
        """One line that is written over by the next; only on a terminal."""
        if not self.json and sys.stderr.isatty():
            text = one_line(text)
            sys.stderr.write(f"\r{text.ljust(self._progress)}")
            sys.stderr.flush()
            self._progress = len(text)

    def note(self, text: str) -> None:
        """A line that stays, beside the answer."""
        self.clear()
        if not self.json:
            print(one_line(text), file=sys.stderr)

    def loading(self, event: Loading) -> None:
        """Progress of loading a model."""
        share = f" {100 * event.done // event.total} %" if event.total > 1 else ""
        self.progress(f"{event.stage}{share}")

    def clear(self) -> None:
        """Take the progress line away."""
        if self._progress:
            self.progress("")
            sys.stderr.write("\r")
            self._progress = 0


@dataclass(frozen=True)
class Command:
    """One sub-command: its arguments, the function that answers, how the answer reads for people, and whether
    it is a bad one, which the exit code 1 tells.
    """

    name: str
    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    answer: Callable[[argparse.Namespace, Console], Answer]
    show: Callable[[Answer], str]
    has_json: bool = True
    failed: Callable[[Answer], bool] = lambda _: False
