"""The AppImage: one file that mounts itself and starts.

Format: https://github.com/AppImage/AppImageSpec/blob/master/draft.md (type 2). Its first part is `runtime.c`.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from tests.release.plan import Release, run
from tests.release.program import normalise

__all__ = ["app_folder", "make_app_image", "make_image", "make_runtime"]

_LIBRARIES = ("squashfuse_ll", "squashfuse", "fuse3", "zstd", "pthread", "dl")
_MAGIC_AT, _MAGIC = 8, b"AI\x02"
_SECTIONS_AT, _SECTION_SIZE_AT = 0x28, 0x3A  # e_shoff; e_shentsize and e_shnum


def make_runtime(made: Path) -> Path:
    """Compile the first part of the file. Raises PackagingError."""
    source = Path(__file__).with_name("runtime.c")
    libraries = [f"-l{name}" for name in _LIBRARIES]
    run(
        [
            "gcc", "-static", "-Os", "-D_FILE_OFFSET_BITS=64", "-Wall", "-Wl,--build-id=none", "-s",
            "-o", made, source.name, *libraries,
        ],
        cwd=source.parent,
    )  # fmt: skip
    content = bytearray(made.read_bytes())
    content[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] = _MAGIC
    (sections,) = struct.unpack_from("<Q", content, _SECTIONS_AT)
    size, number = struct.unpack_from("<HH", content, _SECTION_SIZE_AT)
    made.write_bytes(content[: sections + size * number].ljust(sections + size * number, b"\0"))
    return made


def app_folder(release: Release) -> Path:
    """The folder of the file system: the program, its desktop entry and its icon."""
    root = release.work / "AppDir"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(release.program, root / "usr" / "lib" / "inglenook", symlinks=True)
    shutil.copytree(release.share, root / "usr" / "share")
    (root / "AppRun").symlink_to("usr/lib/inglenook/inglenook")
    (root / "inglenook.desktop").symlink_to("usr/share/applications/inglenook.desktop")
    icons = Path("usr/share/icons/hicolor")
    (root / "inglenook.svg").symlink_to(icons / "scalable/apps/inglenook.svg")
    (root / ".DirIcon").symlink_to(icons / "256x256/apps/inglenook.png")
    normalise(root, release.epoch)
    return root


def make_image(folder: Path, runtime: Path, made: Path, epoch: int, level: int = 19) -> Path:
    """Write the file: the first part, and behind it `folder` as a SquashFS, compressed at this level of
    Zstandard. Raises PackagingError.
    """
    packed = made.with_name(f"{made.name}.squashfs")
    packed.unlink(missing_ok=True)
    run(
        [
            "mksquashfs", folder, packed, "-comp", "zstd", "-Xcompression-level", str(level), "-b", "256K",
            "-all-root", "-no-xattrs", "-noappend", "-quiet", "-no-progress",
        ],
        SOURCE_DATE_EPOCH=str(epoch),
    )  # fmt: skip
    with made.open("wb") as file, packed.open("rb") as rest:
        file.write(runtime.read_bytes())
        shutil.copyfileobj(rest, file, 1 << 20)
    packed.unlink()
    made.chmod(0o755)
    return made


def make_app_image(release: Release) -> Path:
    """The AppImage of a release. Raises PackagingError."""
    runtime = make_runtime(release.work / "runtime")
    folder = app_folder(release)
    made = make_image(folder, runtime, release.out / f"{release.name}-x86_64.AppImage", release.epoch)
    shutil.rmtree(folder)
    return made
