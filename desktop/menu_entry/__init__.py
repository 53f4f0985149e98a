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
        raise EntryError(_sentence("added to", error)) from error
    except ImportError as error:  # Qt draws the icons
        raise EntryError(
            f"Inglenook cannot be added to the applications menu, because Qt does not work here ({error})."
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
        raise EntryError(_sentence("removed from", error)) from error


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


def _sentence(what: str, error: OSError) -> str:
    place = f" at {error.filename}" if error.filename else ""
    reason = f"{error.strerror or error}{place}"
    return f"Inglenook cannot be {what} the applications menu ({reason}). Check the permissions."
