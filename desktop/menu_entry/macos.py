"""The entry on macOS: a small application in the user's Applications folder that starts this program."""

from __future__ import annotations

import plistlib
import shlex
import shutil
from pathlib import Path
from typing import Any

from desktop.menu_entry.kinds import KINDS, EntryError, write_picture
from desktop.menu_entry.starting import Starting
from engine.platform.version import version
from engine.words import _

__all__ = ["IDENTIFIER", "bundle", "information", "install", "script", "uninstall"]

IDENTIFIER = "org.inglenook.start"


def bundle() -> Path:
    """The path of the application."""
    return Path.home() / "Applications" / "Inglenook.app"


def information() -> dict[str, Any]:
    """The application's Info.plist."""
    return {
        "CFBundleName": "Inglenook", "CFBundleIdentifier": IDENTIFIER, "CFBundleExecutable": "inglenook",
        "CFBundleIconFile": "inglenook",
        "CFBundlePackageType": "APPL", "CFBundleShortVersionString": version(),
        "NSHighResolutionCapable": True,
        "CFBundleDocumentTypes": [
            {"CFBundleTypeName": kind.label, "CFBundleTypeRole": "Editor", "LSHandlerRank": "Alternate",
             "CFBundleTypeExtensions": [kind.suffix.rpartition(".")[2]]}
            for kind in KINDS
        ],
    }  # fmt: skip


def script(start: Starting) -> str:
    """The executable of the application."""
    folder = f"cd {shlex.quote(start.folder)} || exit 1\n" if start.folder else ""
    return f'#!/bin/sh\n{folder}exec {shlex.join(start.command)} "$@"\n'


def _is_own(place: Path) -> bool:
    try:
        with (place / "Contents" / "Info.plist").open("rb") as file:
            return bool(plistlib.load(file).get("CFBundleIdentifier") == IDENTIFIER)
    except (OSError, ValueError):
        return False


def install(start: Starting) -> str:
    """Create the application, replacing an older one.

    Raises OSError, and `EntryError` if something else has its name.
    """
    place = bundle()
    if place.exists():
        uninstall()
    for part in ("MacOS", "Resources"):
        (place / "Contents" / part).mkdir(parents=True)
    with (place / "Contents" / "Info.plist").open("wb") as file:
        plistlib.dump(information(), file)
    program = place / "Contents" / "MacOS" / "inglenook"
    program.write_text(script(start), encoding="utf-8")
    program.chmod(0o755)
    write_picture(place / "Contents" / "Resources" / "inglenook.icns")
    return _("Inglenook was added to the applications, as {place}.", place=place)


def uninstall() -> str:
    """Remove the application. Raises OSError, and `EntryError` if something else has its name."""
    place = bundle()
    if not place.exists():
        return _("Inglenook was not among the applications.")
    if not _is_own(place):
        raise EntryError(
            _(
                "{place} was not created by Inglenook, so it was left unchanged. Move it elsewhere first.",
                place=place,
            )
        )
    shutil.rmtree(place)
    return _("Inglenook was removed from the applications.")
