"""The program's entry in the applications menu, and its registration as a program that opens files.

    install(data), uninstall(): add or remove it; each returns a sentence about the result and may be
    repeated.
    installed(): whether it is there.

Only the user's own part of the system is changed, and `uninstall` removes exactly what `install` adds.
"""

from __future__ import annotations

import sys
from pathlib import Path

from desktop.menu_entry.kinds import EntryError
from desktop.menu_entry.starting import starting
from engine.words import N_, _, translate

__all__ = ["EntryError", "install", "installed", "uninstall"]


def install(data: Path | None = None) -> str:
    """Add the entry, which starts the program with the data folder `data` if given. Raises `EntryError`."""
    start = starting(data)
    try:
        if sys.platform == "win32":
            from desktop.menu_entry import windows

            return windows.install(start)
        if sys.platform == "darwin":
            from desktop.menu_entry import macos

            return macos.install(start)
        from desktop.menu_entry import xdg

        return xdg.install(start)
    except OSError as error:
        raise EntryError(
            _sentence(
                N_("Inglenook cannot be added to the applications menu ({reason}). Check the permissions."),
                error,
            )
        ) from error
    except ImportError as error:  # Qt draws the icons
        raise EntryError(
            _(
                "Inglenook cannot be added to the applications menu, because Qt does not work here "
                "({error}).",
                error=error,
            )
        ) from error


def uninstall() -> str:
    """Remove the entry. Raises `EntryError`."""
    try:
        if sys.platform == "win32":
            from desktop.menu_entry import windows

            return windows.uninstall()
        if sys.platform == "darwin":
            from desktop.menu_entry import macos

            return macos.uninstall()
        from desktop.menu_entry import xdg

        return xdg.uninstall()
    except OSError as error:
        raise EntryError(
            _sentence(
                N_(
                    "Inglenook cannot be removed from the applications menu ({reason}). "
                    "Check the permissions."
                ),
                error,
            )
        ) from error


def installed() -> bool:
    """Whether the entry exists."""
    if sys.platform == "win32":
        from desktop.menu_entry import windows

        return windows.shortcut().exists()
    if sys.platform == "darwin":
        from desktop.menu_entry import macos

        return macos.bundle().exists()
    from desktop.menu_entry import xdg

    return (xdg.data_home() / xdg.ENTRY).exists()


def _sentence(words: str, error: OSError) -> str:
    reason = str(error.strerror or error)
    if error.filename:
        reason = _("{reason} at {path}", reason=reason, path=error.filename)
    return translate(words, reason=reason)
