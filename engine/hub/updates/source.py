"""Where updates of this program are published, and how this installation takes them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import resources
from engine.lazy_dataclass import dataclass
from engine.platform.program import PORTABLE_NAME, app_image, portable_folder
from engine.words import _

__all__ = ["SOURCE_FILE", "UpdateSource", "installed_as", "update_advice", "update_source"]

SOURCE_FILE = "updates.json"
"""Written into a package by `tests.release`; others have none."""
DEB_FOLDER = Path("/usr/lib/inglenook")
FLATPAK_INFO = Path("/.flatpak-info")
"""https://docs.flatpak.org/en/latest/sandbox-permissions.html"""


@dataclass(frozen=True)
class UpdateSource:
    """The address of the signed list; keys that may have signed it (Ed25519, 32 bytes each in base64)."""

    url: str
    keys: tuple[str, ...]


def update_source() -> UpdateSource | None:
    """Where this program looks for updates; None if it was built without an address."""
    try:
        found = json.loads(resources.text(SOURCE_FILE))
    except FileNotFoundError:
        return None
    return UpdateSource(str(found["url"]), tuple(map(str, found["keys"])))


def installed_as() -> str:
    """How this program was installed: "appimage", "deb", "flatpak", "folder" (of an unpacked archive or a
    system's installer), "portable" (such a folder with its data inside) or "python" (an environment or a
    clone).
    """
    if app_image() is not None:
        return "appimage"
    if not getattr(sys, "frozen", False):
        return "python"
    if FLATPAK_INFO.is_file():
        return "flatpak"
    if Path(sys.executable).resolve().is_relative_to(DEB_FOLDER):
        return "deb"
    return "portable" if portable_folder() is not None else "folder"


def update_advice(kind: str, command: str = "") -> str:
    """How the user brings an installation of this kind up to date; `command` starts its Python."""
    if kind == "appimage":
        return ""
    if kind == "deb":
        return _(
            "Inglenook was installed as a Debian package. Download the new package and open it, or use "
            "apt install."
        )
    if kind == "flatpak":
        return _("Inglenook was installed with Flatpak. Run “flatpak update org.inglenook.Inglenook”.")
    if kind == "python":
        return _(
            "Inglenook was installed with pip. Run “{command}”. In a clone, pull first, then install it "
            "again.",
            command=f"{command or 'python'} -m pip install --upgrade inglenook",
        )
    if kind == "portable":
        return _(
            "This is a portable copy of Inglenook. Unpack the new package, and move the folder {name} from "
            "this copy into it: it holds your data. Then delete this copy.",
            name=PORTABLE_NAME,
        )
    return _("Download the new package and replace this one with it. Your data is in another folder.")
