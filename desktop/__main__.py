"""The command `inglenook`: reads the arguments, checks that a window can open, and starts the desktop."""

from __future__ import annotations

import argparse
import builtins
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

from desktop import preflight
from engine.platform.language import argparse_speaks, speak
from engine.platform.terminal import ArgumentParser
from engine.platform.version import version
from engine.words import _, set_language

__all__ = ["main"]


class _Version(argparse.Action):
    """Determines the version only when asked for it."""

    def __call__(self, parser: argparse.ArgumentParser, *_rest: object) -> None:
        print(f"inglenook {version()}")
        parser.exit()


def parser() -> argparse.ArgumentParser:
    """The arguments of `inglenook`, with the help in the language in use."""
    result = ArgumentParser(
        prog="inglenook",
        description=_("Chat with language models that run on your own machine."),
        allow_abbrev=False,
    )
    result.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help=_("models, exported chats and other files to open"),
    )
    result.add_argument(
        "--starter",
        action="store_true",
        help=_("download the starter model (98.4 MB, once) and chat with it"),
    )
    result.add_argument(
        "--model", type=Path, metavar="PATH", help=_("a GGUF file or a model folder to chat with")
    )
    result.add_argument(
        "--data", type=Path, metavar="DIR", help=_("where chats, settings and models are stored")
    )
    result.add_argument("--debug", action="store_true", help=_("log everything, also to the terminal"))
    entry = result.add_mutually_exclusive_group()
    entry.add_argument(
        "--install-desktop-entry",
        action="store_true",
        help=_("add Inglenook to the applications menu and open models with it on a double click"),
    )
    entry.add_argument(
        "--uninstall-desktop-entry", action="store_true", help=_("undo --install-desktop-entry")
    )
    result.add_argument("--version", action=_Version, nargs=0, help=_("show the version"))
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the desktop until its window is closed; returns 1 if no window can be opened."""
    speak()
    with argparse_speaks():
        options = parser().parse_args(arguments)
    if options.install_desktop_entry or options.uninstall_desktop_entry:
        return _menu_entry(options.install_desktop_entry, options.data)
    trouble = preflight.trouble() or preflight.import_trouble()
    if trouble:
        print(trouble, file=sys.stderr)
        return 1
    _import_as_usual()
    set_language("en")  # until the window applies one, with all that Qt has to know of it
    # a start only creates objects; `desktop.services.system.garbage_collection` takes over afterwards
    gc.disable()
    from desktop.app import run

    return run(
        model=options.model,
        data=options.data,
        starter=options.starter,
        debug=options.debug,
        files=options.files,
    )


def _import_as_usual() -> None:
    """Restore Python's `__import__`, which PySide6 replaces to support `from __feature__ import`.

    The replacement reads the source of each module that is imported later, of any package, to look for
    "PySide6", and keeps all the lines: a tenth of the time until the window is painted, and 33 MB once a
    model is loaded.
    """
    builtins.__import__ = vars(builtins).get("__orig_import__", builtins.__import__)


def _menu_entry(install: bool, data: Path | None) -> int:
    """Add or remove the entry in the applications menu; returns 1 on failure. Needs no display."""
    from desktop import menu_entry

    try:
        print(menu_entry.install(data) if install else menu_entry.uninstall())
    except menu_entry.EntryError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
