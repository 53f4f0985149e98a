"""The language of a command in the terminal: the one chosen in the window, else that of the system.

The window's own language is applied in `desktop.services.system.language`, which Qt tells more of the system.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping

from engine.platform.folders import data_dir
from engine.platform.regular_file import regular_file
from engine.words import N_, languages, set_language, translate

__all__ = ["PREFERENCES", "SYSTEM", "argparse_speaks", "saved_choice", "speak", "wished"]

PREFERENCES = "preferences.json"
"""The file of the window's preferences, in the folder of the user's data."""
SYSTEM = "system"
"""The choice of a language that stands for the system's."""
_NUMBER = N_("1,234.5")
"""A translation writes this number with the separators of its language."""
_OF_ARGPARSE = (
    N_("usage: "), N_("positional arguments"), N_("options"), N_("show this help message and exit"),
    N_("%(prog)s: error: %(message)s\n"), N_("argument %(argument_name)s: %(message)s"),
    N_("unrecognized arguments: %s"), N_("not allowed with argument %s"), N_("ignored explicit argument %r"),
    N_("the following arguments are required: %s"), N_("one of the arguments %s is required"),
    N_("expected one argument"), N_("expected at least one argument"),
    N_("ambiguous option: %(option)s could match %(matches)s"), N_("invalid %(type)s value: %(value)r"),
    N_("invalid choice: %(value)r (choose from %(choices)s)"),
)  # fmt: skip
"""The texts of Python's own argument parser that our commands can show."""


def speak(choice: str | None = None) -> None:
    """Write texts for the terminal in the language of `choice` from now on: a code, or "system"; the
    preference of the window if it is not given.
    """
    chosen = saved_choice() if choice is None else choice
    code = chosen if chosen in languages() else _known(wished())
    set_language(code, terminal=True)
    if code != "en":
        number = translate(_NUMBER)
        set_language(code, number[1], number[-2], terminal=True)


def saved_choice() -> str:
    """The language that the user chose in the window's preferences; "system" if none is saved or readable."""
    try:
        regular_file(data_dir() / PREFERENCES)
        saved = json.loads((data_dir() / PREFERENCES).read_bytes())
        return str(saved["settings"]["Appearance"]["language"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return SYSTEM


def wished(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The system's languages, such as "de_AT", the preferred one first.

    As GNU gettext has it: LANGUAGE, a list with colons, counts only where LC_ALL, else LC_MESSAGES, else
    LANG names a language. Windows, where they are usually not set, is asked for that of its own texts.
    https://www.gnu.org/software/gettext/manual/html_node/Locale-Environment-Variables.html
    """
    given = (environment.get(name, "") for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    first = next((value for value in given if value), "")
    if not first and sys.platform == "win32":
        import ctypes
        import locale

        first = locale.windows_locale.get(ctypes.windll.kernel32.GetUserDefaultUILanguage(), "")
    if first.partition(".")[0] in ("", "C", "POSIX"):
        return []
    return [
        wish.partition(".")[0].partition("@")[0]
        for wish in (*environment.get("LANGUAGE", "").split(":"), first)
        if wish
    ]


def _known(wishes: list[str]) -> str:
    """The first of these languages that there is a catalogue for, else English."""
    known = languages()
    found = (code for wish in wishes for code in (wish, wish.partition("_")[0]) if code in known)
    return next(found, "en")


@contextlib.contextmanager
def argparse_speaks() -> Iterator[None]:
    """While this lasts, the argument parser's own words are in the language in use.

    It asks a function of `gettext` by a name of its own, which would look at LANGUAGE: set for that, the
    variable would also change the words of the C library, which keeps those that it found once.
    """
    before = vars(argparse)["_"]
    vars(argparse)["_"] = translate
    try:
        yield
    finally:
        vars(argparse)["_"] = before
