"""Where the program keeps things for this user, and that nobody else can read or change them."""

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

__all__ = [
    "CACHE_VARIABLE",
    "DATA_VARIABLE",
    "cache_dir",
    "close_to_others",
    "code_folder",
    "data_dir",
    "is_trusted",
    "private_file",
    "private_folder",
]

log = logging.getLogger(__name__)

DATA_VARIABLE = "INGLENOOK_DATA"
CACHE_VARIABLE = "INGLENOOK_CACHE"
_MOST_LINKS = 40


def data_dir() -> Path:
    """Conversations, settings and models; the environment variable INGLENOOK_DATA moves it. Not made here."""
    named = os.environ.get(DATA_VARIABLE, "")
    return Path(named).expanduser() if named else platformdirs.user_data_path("inglenook", appauthor=False)


def cache_dir() -> Path:
    """What can be made again, compiled kernels; the environment variable INGLENOOK_CACHE moves it.

    Not made here.
    """
    named = os.environ.get(CACHE_VARIABLE, "")
    return Path(named).expanduser() if named else platformdirs.user_cache_path("inglenook", appauthor=False)


def code_folder(name: str) -> Path | None:
    """A folder for compiled code, made here: in the user's cache, or a private temporary one. None when
    neither can be written, or somebody else could put code into them: then nothing is loaded from there.
    """
    for place in (
        cache_dir(),
        Path(tempfile.gettempdir()) / f"inglenook-{_user() if _user() >= 0 else 'user'}",
    ):
        try:
            folder = _closed(place, place / name)
            if folder is None:
                log.warning(
                    "no compiled code is kept in %s: others can write there, or above it", place / name
                )
                continue
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    return None


def private_folder(folder: Path) -> Path:
    """Make a folder, with those above it that are missing, that only this user can enter; an older one of the
    user's is closed to others as far as its disk allows that. Raises OSError when it cannot be made.
    """
    for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    _close(folder)
    return folder


def private_file(path: Path) -> Path:
    """Make an empty file that only this user can read, or close one that is there to others; what is in it
    stays. Raises OSError.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    _close(path)
    return path


def close_to_others(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Take all rights of others off files and folders of this user, and off what is in the folders; returns
    what stayed open. Links are not followed.
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
            continue  # it went meanwhile
        except OSError:
            left.append(path)
    return tuple(left)


def is_trusted(folder: Path) -> bool:
    """Whether nobody but this user and the system's administrator can put another folder in the place of this
    one.

    All that is passed on the way there, links included, must be theirs, and others must not write to any of
    it but folders like /tmp, where they cannot rename what is not theirs. What is missing is not asked.
    Always true on Windows, where rights are inherited from the user's own folder.
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
    """`folder` in `place`, made or closed to others; None where it cannot be trusted. What others could have
    put into it before is removed.
    """
    if not is_trusted(place.parent) or not (_is_mine(place) and _is_mine(folder)):
        return None
    if folder.exists() and any(_written_by_others(each.stat()) for each in (place, folder)):
        shutil.rmtree(folder.resolve())
    private_folder(place)
    private_folder(folder)
    return folder if is_trusted(folder) and _is_mine(place) and _is_mine(folder) else None


def _user() -> int:
    """This user's number; -1 where users have none."""
    return os.getuid() if hasattr(os, "getuid") else -1


def _is_mine(path: Path) -> bool:
    """Whether a path is this user's, as a link and as what that leads to, or is free."""
    if _user() < 0 or not os.path.lexists(path):
        return True
    return path.lstat().st_uid in (0, _user()) and path.stat().st_uid == _user()


def _close(path: Path) -> None:
    """Take the rights of others off a file or folder of this user, where its disk knows rights and can be
    written.
    """
    found = path.stat()
    if _user() == found.st_uid and found.st_mode & 0o077:
        with contextlib.suppress(OSError):
            path.chmod(stat.S_IMODE(found.st_mode) & 0o700)


def _way_to(path: Path) -> Iterator[Path]:
    """Every folder and link that is passed on the way to `path`, the root first and `path` last."""
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
    """Whether the rights let others write; where users have no numbers, they say nothing."""
    return _user() >= 0 and bool(
        found.st_mode & 0o002 or (found.st_mode & 0o020 and not _has_no_others(found.st_gid))
    )


def _has_no_others(group: int) -> bool:
    """Whether a group is the administrator's, or has this user alone, as many systems give each user one."""
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
    """Whose number the files of the administrator outside have in a user namespace, as in a rootless
    container; -1 outside of one.
    """
    try:
        if Path("/proc/self/uid_map").read_text(encoding="ascii").split() == ["0", "0", "4294967295"]:
            return -1
        return int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return -1
