"""The entry on Linux: a desktop file, icons and MIME types, according to freedesktop.org's specifications.

https://specifications.freedesktop.org/desktop-entry-spec/latest/, .../icon-theme-spec/latest/,
.../shared-mime-info-spec/latest/
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from xml.sax.saxutils import escape

import resources
from desktop.menu_entry.kinds import ICON_SIZES, KINDS, write_picture
from desktop.menu_entry.starting import Starting
from engine.words import _

__all__ = ["ENTRY", "data_home", "desktop_file", "install", "mime_file", "quoted", "uninstall", "write_files"]

ENTRY = "applications/inglenook.desktop"
_MIME = "mime/packages/inglenook.xml"
_SCALABLE = "icons/hicolor/scalable/apps/inglenook.svg"
_UPDATE_S = 20
_MAGIC = {
    "application/x-gguf": '<match type="string" offset="0" value="GGUF"/>',
    "application/x-inglenook-chats+json": '<match type="string" offset="0:32" '
    'value="&quot;inglenook-conversation&quot;"/>',
}
"""How the files begin: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and
`desktop.store.transfer.exporters.own`.
"""


def data_home() -> Path:
    """The user's data folder."""
    given = os.environ.get("XDG_DATA_HOME", "")
    return Path(given) if os.path.isabs(given) else Path.home() / ".local" / "share"


def quoted(argument: str) -> str:
    """An argument of an Exec line: quoted if necessary, "%" doubled, then escaped like any string value."""
    text = argument.replace("%", "%%")
    if not text or any(letter in " \t\n\"'\\><~|&;$*?#()`" for letter in text):
        inner = "".join(f"\\{letter}" if letter in '"`$\\' else letter for letter in text)
        text = f'"{inner}"'
    return _value(text)


def _value(text: str) -> str:
    """A string as a value of the desktop file."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")


def desktop_file(start: Starting) -> str:
    """The text of the desktop file."""
    lines = [
        "[Desktop Entry]",
        "Type=Application",
        "Version=1.1",
        "Name=Inglenook",
        "GenericName=Chat with language models",
        "Comment=Chat with language models that run on your own machine",
        f"Exec={' '.join(quoted(word) for word in start.command)} %F",
        f"TryExec={_value(start.command[0])}",
        *([f"Path={_value(start.folder)}"] if start.folder else []),
        "Icon=inglenook",
        "Terminal=false",
        "Categories=Science;ArtificialIntelligence;",
        "Keywords=LLM;AI;chat;GGUF;language model;assistant;",
        f"MimeType={''.join(f'{kind.mime};' for kind in KINDS)}",
        "StartupNotify=true",
        "StartupWMClass=Inglenook",
    ]
    return "\n".join(lines) + "\n"


def mime_file() -> str:
    """The description of the file types for the shared MIME database."""
    parts = []
    for kind in KINDS:
        magic = f'<magic priority="60">{_MAGIC[kind.mime]}</magic>'
        parent = '<sub-class-of type="application/json"/>' if kind.suffix.endswith(".json") else ""
        parts.append(
            f'  <mime-type type="{kind.mime}">\n    <comment>{escape(kind.label)}</comment>\n    <icon '
            'name="inglenook"/>\n'
            + "".join(f"    {line}\n" for line in (parent, magic) if line)
            + f'    <glob pattern="*{kind.suffix}" weight="60"/>\n  </mime-type>\n'
        )
    head = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<mime-info '
        'xmlns="http://www.freedesktop.org/standards/shared-mime-info">\n'
    )
    return head + "".join(parts) + "</mime-info>\n"


def _places(home: Path) -> list[Path]:
    """Every file that belongs to the entry."""
    icons = [home / f"icons/hicolor/{size}x{size}/apps/inglenook.png" for size in ICON_SIZES]
    return [home / ENTRY, home / _MIME, home / _SCALABLE, *icons]


def install(start: Starting) -> str:
    """Write all files. Raises OSError."""
    home = data_home()
    write_files(home, start)
    _update(home)
    return _("Inglenook was added to the applications menu, as {home}.", home=home / ENTRY)


def write_files(home: Path, start: Starting) -> None:
    """Write the entry, its icons and its file types below `home`, such as /usr/share. Raises OSError."""
    for path in _places(home):
        path.parent.mkdir(parents=True, exist_ok=True)
    for size in ICON_SIZES:
        write_picture(home / f"icons/hicolor/{size}x{size}/apps/inglenook.png", size)
    (home / _SCALABLE).write_text(resources.text("icons/inglenook.svg"), encoding="utf-8")
    (home / _MIME).write_text(mime_file(), encoding="utf-8")
    (home / ENTRY).write_text(desktop_file(start), encoding="utf-8")


def uninstall() -> str:
    """Remove all files, and the folders that become empty. Raises OSError."""
    home = data_home()
    present = [path for path in _places(home) if path.exists() or path.is_symlink()]
    for path in present:
        path.unlink()
    if not present:
        return _("Inglenook was not in the applications menu.")
    _update(home)
    for path in present:
        for folder in list(path.relative_to(home).parents)[:-1]:
            with contextlib.suppress(OSError):  # not empty
                (home / folder).rmdir()
    return _("Inglenook was removed from the applications menu.")


def _update(home: Path) -> None:
    """Tell the desktop about the change, if its tools are installed; otherwise it will notice later."""
    os.utime(home / "icons" / "hicolor") if (home / "icons" / "hicolor").is_dir() else None
    for program, folder in (
        ("update-desktop-database", home / "applications"),
        ("update-mime-database", home / "mime"),
    ):
        found = shutil.which(program)
        if found and folder.is_dir():
            with contextlib.suppress(subprocess.SubprocessError, OSError):
                subprocess.run([found, str(folder)], capture_output=True, timeout=_UPDATE_S, check=False)
