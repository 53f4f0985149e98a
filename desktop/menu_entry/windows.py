"""The entry on Windows: a shortcut in the user's Start menu, and file types in the user's part of the
registry.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from desktop.menu_entry.kinds import KINDS, EntryError, write_picture
from desktop.menu_entry.starting import Starting
from engine.words import _

__all__ = ["install", "registry", "shortcut", "shortcut_script", "uninstall"]

_CLASSES = r"Software\Classes"
_LAST_ENDINGS = {kind.prog_id: "." + kind.suffix.rpartition(".")[2] for kind in KINDS}


def shortcut() -> Path:
    """The path of the shortcut."""
    return (
        Path(os.environ.get("APPDATA", Path.home() / "AppData" / "Roaming"))
        / "Microsoft/Windows/Start Menu/Programs/Inglenook.lnk"
    )


def _icon() -> Path:
    return (
        Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
        / "Inglenook"
        / "inglenook.ico"
    )


def registry(start: Starting, icon: Path) -> list[tuple[str, str, str]]:
    """What is written under HKEY_CURRENT_USER: (key, name of the value, text).

    The extension ".json" is only offered, never taken over.
    """
    command = subprocess.list2cmdline(start.command) + ' "%1"'
    found = []
    for kind in KINDS:
        found += [
            (rf"{_CLASSES}\{kind.prog_id}", "", kind.label),
            (rf"{_CLASSES}\{kind.prog_id}\DefaultIcon", "", str(icon)),
            (rf"{_CLASSES}\{kind.prog_id}\shell\open\command", "", command),
            (rf"{_CLASSES}\{_LAST_ENDINGS[kind.prog_id]}\OpenWithProgids", kind.prog_id, ""),
        ]
    return found


def shortcut_script(start: Starting, icon: Path, place: Path) -> str:
    """The PowerShell script that creates the shortcut."""

    def text(value: str) -> str:
        return "'" + value.replace("'", "''") + "'"

    lines = [
        f"$link = (New-Object -ComObject WScript.Shell).CreateShortcut({text(str(place))})",
        f"$link.TargetPath = {text(start.command[0])}",
        f"$link.Arguments = {text(subprocess.list2cmdline(start.command[1:]))}",
        f"$link.WorkingDirectory = {text(start.folder)}",
        f"$link.IconLocation = {text(str(icon))}",
        "$link.Save()",
    ]
    return "; ".join(lines)


def install(start: Starting) -> str:
    """Create the shortcut and write the registry. Raises OSError and `EntryError`."""
    icon, place = _icon(), shortcut()
    icon.parent.mkdir(parents=True, exist_ok=True)
    write_picture(icon)
    command = ["powershell", "-NoProfile", "-NonInteractive", "-Command", shortcut_script(start, icon, place)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode or not place.exists():
        raise EntryError(
            _(
                "The Start menu shortcut could not be created, because PowerShell reported an error. "
                "Create one yourself."
            )
        )
    if sys.platform == "win32":
        import winreg

        for key, name, value in registry(start, icon):
            with winreg.CreateKeyEx(winreg.HKEY_CURRENT_USER, key) as handle:
                winreg.SetValueEx(handle, name, 0, winreg.REG_SZ, value)
    return _("Inglenook was added to the Start menu.")


def uninstall() -> str:
    """Remove the shortcut and the registry keys. Raises OSError."""
    present = shortcut().exists()
    for path in (shortcut(), _icon()):
        path.unlink(missing_ok=True)
    if sys.platform == "win32":
        import winreg

        for kind in KINDS:
            for below in (r"\shell\open\command", r"\shell\open", r"\shell", r"\DefaultIcon", ""):
                with contextlib.suppress(FileNotFoundError):
                    winreg.DeleteKey(winreg.HKEY_CURRENT_USER, rf"{_CLASSES}\{kind.prog_id}{below}")
            with contextlib.suppress(FileNotFoundError):
                ending = rf"{_CLASSES}\{_LAST_ENDINGS[kind.prog_id]}\OpenWithProgids"
                with winreg.OpenKey(winreg.HKEY_CURRENT_USER, ending, access=winreg.KEY_SET_VALUE) as handle:
                    winreg.DeleteValue(handle, kind.prog_id)
    return (
        _("Inglenook was removed from the Start menu.")
        if present
        else _("Inglenook was not in the Start menu.")
    )
