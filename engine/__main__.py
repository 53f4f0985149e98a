"""The program `inglenook-engine`: runs a command and prints its answer.

Exit codes: 0 success, 1 an expected error (one sentence on stderr) or a failed check, 2 wrong arguments, 130
interrupted by Ctrl+C.
"""

from __future__ import annotations

import argparse
import atexit
import errno
import gc
import io
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.errors import EngineError
from engine.platform.frames import in_one_piece
from engine.platform.language import argparse_speaks, speak
from engine.platform.terminal import ArgumentParser, sentence
from engine.printable import json_text, printable
from engine.words import _, set_language, translate

if TYPE_CHECKING:
    from engine.cli.command import Command


def parser(command_name: str = "") -> argparse.ArgumentParser:
    """The argument parser of `inglenook-engine`, with the help in the language in use: of the command of this
    name alone, or of all if there is no such one.
    """
    # These take a second, in which Ctrl+C must end the program without a traceback.
    from engine.cli import commands

    result = ArgumentParser(
        prog="inglenook-engine", description=_("Language models on your own machine, without a window.")
    )
    result.add_argument("--version", action=_ShowVersion, nargs=0, help=_("show the version"))
    subparsers = result.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in commands(command_name):
        about = translate(command.help)
        sub = subparsers.add_parser(command.name, help=about, description=sentence(about))
        command.arguments(sub)
        if command.has_json:
            sub.add_argument("--json", action="store_true", help=_("print one JSON object and nothing else"))
        sub.set_defaults(use=command)
    return result


class _ShowVersion(argparse.Action):
    """Print the version, which takes milliseconds to find, and end."""

    def __call__(self, parser: argparse.ArgumentParser, *_unused: object) -> None:
        from engine.platform.version import version

        print(f"{parser.prog} {version()}")
        parser.exit()


@in_one_piece
def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Raises SystemExit(2) for wrong arguments, as argparse does."""
    atexit.register(gc.freeze)  # a search for garbage at the end takes a fifth of the time of a short run
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Windows' code pages lack most characters, and an argument may hold a lone surrogate.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # a line that is no text must not end a chat
    try:
        speak()
        with argparse_speaks():
            given = sys.argv[1:] if arguments is None else arguments
            options = parser(*given[:1]).parse_args(given)
        if getattr(options, "json", False):
            set_language("en")  # what programs read is the same everywhere
        return _use(options.use, options)
    except BrokenPipeError:
        _drop_output()  # the reader of the pipe is gone, as in `... | head`
        return 0
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _drop_output()
        print(_("There is not enough disk space."), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _open_closed_streams() -> None:
    """Give a program that was started without some of its streams (`>&-`) empty ones, so that no file that is
    opened later takes their place.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - until the end


def _drop_output() -> None:
    """Leave what was not written yet, so that flushing the buffer at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _use(command: Command, options: argparse.Namespace) -> int:
    from engine.cli.command import Console

    console = Console(json=getattr(options, "json", False))
    try:
        answer = command.answer(options, console)
    except EngineError as error:
        console.clear()
        sys.stdout.flush()
        print(error, file=sys.stderr)
        return 1
    if console.json:
        try:
            text = json_text(json.dumps(answer, ensure_ascii=False, allow_nan=False))
        except ValueError:
            print(
                "The result has numbers that JSON cannot represent (NaN or infinite); run the "
                "command without --json.",
                file=sys.stderr,
            )
            return 1
    else:
        text = printable(command.show(answer))
    if text:
        print(text)
    sys.stdout.flush()
    return int(command.failed(answer))


if __name__ == "__main__":
    sys.exit(main())
