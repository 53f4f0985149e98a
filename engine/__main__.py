"""The program `inglenook-engine`: finds the door, prints its answer, and turns trouble into one sentence and an exit code.

Exit codes: 0 it worked, 1 known trouble (one sentence on stderr) or a check that failed, 2 wrong arguments, 130 interrupted by Ctrl+C.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence

from engine.cli import DOORS
from engine.cli.command import Console, Door
from engine.cli.info import version
from engine.errors import EngineError
from engine.printable import json_text, printable


def parser() -> argparse.ArgumentParser:
    """The arguments of `inglenook-engine`."""
    result = argparse.ArgumentParser(prog="inglenook-engine", description="Language models on your own machine, without a window.")
    result.add_argument("--version", action="version", version=f"inglenook-engine {version()}")
    doors = result.add_subparsers(dest="door", metavar="DOOR", required=True)
    for door in DOORS:
        sub = doors.add_parser(door.name, help=door.help, description=door.help[0].upper() + door.help[1:] + ".")
        door.arguments(sub)
        if door.has_json:
            sub.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        sub.set_defaults(use=door)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one door; returns the exit code. Wrong arguments leave through SystemExit(2), as argparse does."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Windows' code pages lack most characters; half a surrogate pair in an argument must not end the program.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    options = parser().parse_args(arguments)
    try:
        return _use(options.use, options)
    except BrokenPipeError:
        # The reader of a pipe has gone, as in `... | head`. What is still buffered must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _use(door: Door, options: argparse.Namespace) -> int:
    console = Console(json=getattr(options, "json", False))
    try:
        answer = door.answer(options, console)
    except EngineError as error:
        console.clear()
        sys.stdout.flush()
        print(error, file=sys.stderr)
        return 1
    if console.json:
        try:
            text = json_text(json.dumps(answer, ensure_ascii=False, allow_nan=False))
        except ValueError:
            print("The answer has numbers that JSON cannot hold (NaN or infinite); without --json it is shown as it is.", file=sys.stderr)
            return 1
    else:
        text = printable(door.show(answer))
    if text:
        print(text)
    sys.stdout.flush()
    return int(door.failed(answer))


if __name__ == "__main__":
    sys.exit(main())
