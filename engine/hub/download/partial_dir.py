"""A download on disk: a hidden folder with a note of its origin, which gets its name when it is complete."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from engine.errors import DownloadError
from engine.hub.catalogue.models import HubChoice, HubFile
from engine.printable import one_line
from engine.words import _

NOTE = ".hub.json"
"""The note in the folder, which stays with the finished model: where it came from."""
_MAX_NOTE_BYTES = 8 << 20
_FORBIDDEN = re.compile(r'[\\:*?"<>|]')
_DEVICES = re.compile(r"^(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
"""Names of devices on Windows:
https://learn.microsoft.com/en-us/windows/win32/fileio/naming-a-file.
"""


def check_names(files: Iterable[HubFile]) -> None:
    """Raise `DownloadError` for names that leave the folder, are not valid on every system, or repeat."""
    seen: set[str] = set()
    for file in files:
        steps = file.name.split("/")
        bad = (
            _FORBIDDEN.search(file.name)
            or one_line(file.name) != file.name
            or len(file.name.encode("utf-8", "replace")) > 200
        )
        if bad or any(
            not step or step.startswith(".") or step.endswith((".", " ")) or _DEVICES.match(step)
            for step in steps
        ):
            raise DownloadError(
                _(
                    "The Hub lists the file {file!r}, which is not a safe file name; nothing was downloaded.",
                    file=file.name[:200],
                )
            )
        local = local_name(file).casefold()
        if local in seen:
            raise DownloadError(
                _("The Hub lists the file {file!r} twice; nothing was downloaded.", file=file.name)
            )
        seen.add(local)


def local_name(file: HubFile) -> str:
    """The path in the finished folder, where GGUF files lie side by side."""
    return file.name.rpartition("/")[2] if file.name.endswith(".gguf") else file.name


def folder_name(choice: HubChoice) -> str:
    """The name of the finished folder, at most 160 characters: author, model, and the title if needed."""
    parts = [
        choice.model_id,
        *([choice.title] if choice.format == "gguf" or choice.title != "Safetensors" else []),
    ]
    whole = "--".join(part.replace("/", "--") for part in parts)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", whole).strip(".-")[:150].rstrip(".-")
    # a changed name might be the same for two models
    return name if name == whole and name else f"{name}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"


def final_folder(target: Path, choice: HubChoice) -> Path:
    """The folder of the finished model."""
    return target / folder_name(choice)


def part_folder(target: Path, choice: HubChoice) -> Path:
    """The folder until then."""
    return target / f".{folder_name(choice)}.part"


def model_path(folder: Path, choice: HubChoice) -> Path:
    """The path to open: the first GGUF file, or the folder of safetensors."""
    return folder / local_name(choice.files[0]) if choice.format == "gguf" else folder


def lock_path(target: Path, choice: HubChoice) -> Path:
    """The file that is locked during the download."""
    return target / f".{folder_name(choice)}.lock"


def open_inside(folder: Path, name: str) -> IO[bytes]:
    """Open a file in the folder for reading and writing, and create its subfolders.

    Raises `DownloadError` if a symbolic link is on the way.
    """
    path = folder
    for step in name.split("/")[:-1]:
        path /= step
        if path.is_symlink():
            raise DownloadError(_("{path} is a link to another place; delete it and try again.", path=path))
        path.mkdir(exist_ok=True)
    path = folder / name
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    if path.is_symlink():
        raise DownloadError(_("{path} is a link to another place; delete it and try again.", path=path))
    return os.fdopen(os.open(path, flags, 0o644), "r+b")


def prepare(folder: Path, choice: HubChoice) -> None:
    """Create the folder, or reuse a partial download; files that changed since its revision are removed."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise DownloadError(
            _("{folder} was not created by this program; delete it and try again.", folder=folder)
        )
    folder.mkdir(parents=True, exist_ok=True)
    before = read_note(folder)
    if before is None:
        remove(folder)
        folder.mkdir()
    elif before != choice:
        same = {_identity(choice, file) for file in choice.files}
        for file in before.files:
            if _identity(before, file) not in same:
                for name in (local_name(file), f"{local_name(file)}.part"):
                    (folder / name).unlink(missing_ok=True)
    write_note(folder, choice)


def _identity(choice: HubChoice, file: HubFile) -> tuple[str, int, str]:
    """Equal for files with the same name and content; without a hash, only within one revision."""
    return local_name(file), file.size, file.sha256 or file.git_sha1 or f"{choice.model_id} {choice.revision}"


def write_note(folder: Path, choice: HubChoice) -> None:
    """Note the origin in the folder."""
    handle = folder / f"{NOTE}.new"
    handle.unlink(missing_ok=True)
    handle.write_text(json.dumps(asdict(choice), indent=1), "utf-8")
    os.replace(handle, folder / NOTE)


def read_note(folder: Path) -> HubChoice | None:
    """The choice that a folder is a download of; None if its note is missing, damaged or unsafe."""
    try:
        path = folder / NOTE
        if path.is_symlink() or path.stat().st_size > _MAX_NOTE_BYTES:
            return None
        data: Any = json.loads(path.read_text("utf-8"))
        files = tuple(HubFile(**file) for file in data.pop("files"))
        choice = HubChoice(**data, files=files)
        texts = (choice.model_id, choice.revision, choice.title, choice.format)
        numbers = (choice.bytes, choice.memory_bytes, choice.vision_bytes, *(file.size for file in files))
        names = [text for file in files for text in (file.name, file.sha256, file.git_sha1)]
        if not files or any(not isinstance(text, str) for text in (*texts, *names)):
            return None
        if any(type(number) is not int or number < 0 for number in numbers):
            return None
        check_names(files)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, DownloadError):
        return None
    return choice


def bytes_done(folder: Path, choice: HubChoice) -> int:
    """Bytes of the choice on disk, partial files included."""
    done = 0
    for file in choice.files:
        for name in (local_name(file), f"{local_name(file)}.part"):
            with contextlib.suppress(OSError):
                done += min(file.size, (folder / name).stat(follow_symlinks=False).st_size)
                break
    return done


def check_final(final: Path) -> None:
    """Raise `DownloadError` if the name is taken by something that this program did not download."""
    if final.is_symlink() or (final.exists() and read_note(final) is None):
        raise DownloadError(
            _(
                "{final} already exists and was not downloaded by this program; move it and try again.",
                final=final,
            )
        )


def publish(folder: Path, final: Path) -> None:
    """Give the complete folder its name; it replaces an older download, which is restored on failure."""
    check_final(final)
    old = final.with_name(f".{final.name}.old")
    remove(old)
    if final.exists():
        os.replace(final, old)
    try:
        os.replace(folder, final)
    except OSError:
        if old.exists():
            os.replace(old, final)
        raise
    with contextlib.suppress(OSError):
        remove(old)


def remove(folder: Path) -> None:
    """Remove a folder and its content; links are removed, not followed."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)
