"""The program's folders for this user, closed to other users."""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import platformdirs

from engine.platform.moved_data import read_moved
from engine.platform.program import portable_folder

__all__ = [
    "CACHE_VARIABLE", "DATA_VARIABLE", "cache_dir", "close_to_others", "code_folder", "data_dir",
    "is_trusted", "private_file", "private_folder", "usual_data_dir",
]  # fmt: skip

log = logging.getLogger(__name__)

DATA_VARIABLE = "INGLENOOK_DATA"
CACHE_VARIABLE = "INGLENOOK_CACHE"
_MOST_LINKS = 40


def data_dir() -> Path:
    """The folder of conversations, settings and models. Not created here.

    It is that in INGLENOOK_DATA, or else a portable one, or else the system's place for this user, or where
    the data was moved to from there. Raises OSError if that cannot be found out.
    """
    named = os.environ.get(DATA_VARIABLE, "")
    if named:
        return Path(named).expanduser()
    portable = portable_folder()
    if portable:
        return portable
    usual = usual_data_dir()
    moved = read_moved(usual)
    return moved.folder if moved else usual


def usual_data_dir() -> Path:
    """The system's place for this user's data, which may hold only a note of where it was moved to."""
    return platformdirs.user_data_path("inglenook", appauthor=False)


def cache_dir() -> Path:
    """The folder of what can be made again, such as kernels. Not created here.

    It is that in INGLENOOK_CACHE, or `cache` in a portable folder, or the system's place for this user.
    """
    named = os.environ.get(CACHE_VARIABLE, "")
    if named:
        return Path(named).expanduser()
    portable = portable_folder()
    return portable / "cache" if portable else platformdirs.user_cache_path("inglenook", appauthor=False)


def code_folder(name: str) -> Path | None:
    """Create a folder for compiled code in the user's cache, or else a private temporary one.

    None if neither is writable, or if another user could put code into them.
    """
    for place in (
        cache_dir(),
        Path(tempfile.gettempdir()) / f"inglenook-{_user() if _user() >= 0 else 'user'}",
    ):
        try:
            folder = _closed(place, place / name)
            if folder is None:
                log.warning(
                    "compiled code is not cached in %s: other users can write to it or to a parent folder",
                    place / name,
                )
                continue
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    return None


def private_folder(folder: Path) -> Path:
    """Create a folder, and missing parents, for this user only.

    An existing folder of the user is closed to others if the file system allows it. Raises OSError.
    """
    for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    _close(folder)
    return folder


def private_file(path: Path) -> Path:
    """Create an empty file for this user only, or close an existing one to others. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    _close(path)
    return path


def close_to_others(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Remove all permissions of others from files and folders of this user, recursively.

    Returns what stayed open. Links are not followed.
    """
    left: list[Path] = []
    waiting = list(paths)
    while waiting and _user() >= 0:
        path = waiting.pop()
        try:
            found = path.lstat()
            if stat.S_ISLNK(found.st_mode):
                continue
            _close(path)
            if stat.S_IMODE(path.lstat().st_mode) & 0o077:
                left.append(path)
            if stat.S_ISDIR(found.st_mode):
                waiting += path.iterdir()
        except FileNotFoundError:
            continue  # deleted meanwhile
        except OSError:
            left.append(path)
    return tuple(left)


def is_trusted(folder: Path) -> bool:
    """Whether only this user and the administrator can replace this folder by another.

    All folders and links on the path must belong to them, and others must not be able to write to any, except
    to sticky folders such as /tmp. Missing ones are ignored. Always true on Windows, where permissions are
    inherited from the user's folder.
    """
    if _user() < 0:
        return True
    try:
        return all(map(_keeps_out_others, _way_to(folder)))
    except OSError:
        return False


# -- parts
# --------------------------------------------------------------------------------------------------------


def _closed(place: Path, folder: Path) -> Path | None:
    """Create `folder` in `place`, or close it to others; None if it cannot be trusted.

    If others could write to it before, its content is removed.
    """
    if not is_trusted(place.parent) or not (_is_mine(place) and _is_mine(folder)):
        return None
    if folder.exists() and any(_written_by_others(each.stat()) for each in (place, folder)):
        shutil.rmtree(folder.resolve())
    private_folder(place)
    private_folder(folder)
    return folder if is_trusted(folder) and _is_mine(place) and _is_mine(folder) else None


def _user() -> int:
    """The user id; -1 on systems without user ids."""
    return os.getuid() if hasattr(os, "getuid") else -1


def _is_mine(path: Path) -> bool:
    """Whether a path, and its target if it is a link, belongs to this user, or does not exist."""
    if _user() < 0 or not os.path.lexists(path):
        return True
    return path.lstat().st_uid in (0, _user()) and path.stat().st_uid == _user()


def _close(path: Path) -> None:
    """Remove the permissions of others from a file or folder of this user, if the file system allows it."""
    found = path.stat()
    if _user() == found.st_uid and found.st_mode & 0o077:
        with contextlib.suppress(OSError):
            path.chmod(stat.S_IMODE(found.st_mode) & 0o700)


def _way_to(path: Path) -> Iterator[Path]:
    """Every folder and link on the way to `path`, from the root to `path` itself."""
    at, *rest = Path(os.path.abspath(path)).parts
    waiting, links = rest[::-1], 0
    yield Path(at)
    while waiting:
        part = waiting.pop()
        if part == "..":
            at = os.path.dirname(at)
            continue
        beyond = os.path.join(at, part)
        yield Path(beyond)
        if not os.path.islink(beyond):
            at = beyond
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = list(Path(os.readlink(beyond)).parts)
        if os.path.isabs(target[0]):
            at = target.pop(0)
        waiting += reversed(target)


def _keeps_out_others(place: Path) -> bool:
    try:
        found = place.lstat()
    except FileNotFoundError:
        return True
    if found.st_uid not in (0, _user(), _unmapped()):
        return False
    return stat.S_ISLNK(found.st_mode) or not _written_by_others(found) or bool(found.st_mode & stat.S_ISVTX)


def _written_by_others(found: os.stat_result) -> bool:
    """Whether the permissions let others write; False on systems without user ids."""
    return _user() >= 0 and bool(
        found.st_mode & 0o002 or (found.st_mode & 0o020 and not _has_no_others(found.st_gid))
    )


def _has_no_others(group: int) -> bool:
    """Whether a group is the administrator's or has this user as its only member."""
    try:
        import grp
        import pwd

        me, found = pwd.getpwuid(_user()), grp.getgrgid(group)
    except (ImportError, KeyError):
        return group == 0
    alone = found.gr_name == me.pw_name and set(found.gr_mem) <= {me.pw_name}
    return group == 0 or (group == me.pw_gid and alone)


@functools.cache
def _unmapped() -> int:
    """The user id that unmapped owners have in a user namespace, such as a rootless container; else -1."""
    try:
        if Path("/proc/self/uid_map").read_text(encoding="ascii").split() == ["0", "0", "4294967295"]:
            return -1
        return int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return -1
