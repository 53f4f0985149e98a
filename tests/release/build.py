"""The steps of a release, in the release's own environment: `tests.release` starts it there."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from tests.release import share
from tests.release.app_image import make_app_image
from tests.release.archives import LIBC, make_archive, make_deb
from tests.release.licences import add_licences
from tests.release.macos import make_dmg
from tests.release.plan import PackagingError, Release, run
from tests.release.program import libraries, make_program, normalise
from tests.release.windows import make_setup

__all__ = ["MAX_BYTES", "PACKAGES", "build", "check_left_out", "check_libc", "check_size", "write_checksums"]

PACKAGES: dict[str, Callable[[Release], Path]] = {
    "tar": make_archive, "deb": make_deb, "appimage": make_app_image, "setup": make_setup, "dmg": make_dmg,
}  # fmt: skip
MAX_BYTES = {False: 150_000_000, True: 250_000_000}
"""The largest package, without and with the starter model inside."""


def build(release: Release, kinds: tuple[str, ...]) -> list[Path]:
    """Make the program's folder and its packages of these `kinds`; returns their files.

    Raises PackagingError.
    """
    release.out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(release.share, ignore_errors=True)
    _say("desktop entry, icons and file types")
    share.main(str(release.share), release.version, str(release.epoch), release.site)
    _say("the program's folder")
    make_program(release)
    check_left_out(release.program)
    check_libc(release.program)
    _say("licences and bill of materials")
    made = [add_licences(release)]
    normalise(release.program, release.epoch)
    for kind in PACKAGES:
        if kind in kinds:
            _say(kind)
            made.append(PACKAGES[kind](release))
            check_size(made[-1], starter=release.starter is not None)
    for name in share.SCREENSHOTS if release.site else ():
        shutil.copyfile(release.tree / "resources" / "screenshots" / name, release.out / name)
    write_checksums(release.out)
    return made


_GLIBC = re.compile(r"Name: GLIBC_(\d+)\.(\d+)")
LEFT_OUT = ("torch", "nvidia", "numba_cuda", "triton", "numba/cuda")


def check_left_out(program: Path) -> None:
    """Raise PackagingError if PyTorch or a library of GPUs is in the program's folder."""
    for folder in ("_internal", "Contents/Frameworks", "Contents/Resources"):
        for name in LEFT_OUT:
            if (program / folder / name).exists():
                raise PackagingError(f"{name} is inside, but packages for processors leave it out.")


def check_libc(program: Path) -> None:
    """Raise PackagingError if a library needs a newer C library than the .deb declares, and so than the
    systems have that the packages are for.
    """
    for path in libraries(program) if sys.platform == "linux" else ():
        needed = _GLIBC.findall(run(["readelf", "--version-info", "--wide", path]))
        newest = max(((int(major), int(minor)) for major, minor in needed), default=(0, 0))
        if newest > LIBC:
            raise PackagingError(
                f"{path.name} needs glibc {newest[0]}.{newest[1]}, newer than {LIBC[0]}.{LIBC[1]}: build "
                "on an older system, or with a Python from elsewhere."
            )


def check_size(package: Path, *, starter: bool) -> None:
    """Raise PackagingError if a package is larger than it may be."""
    size = package.stat().st_size
    if size > MAX_BYTES[starter]:
        raise PackagingError(
            f"{package.name} has {size:,} bytes; at most {MAX_BYTES[starter]:,} are allowed."
        )


def write_checksums(folder: Path) -> None:
    """Write SHA256SUMS, which `sha256sum --check` reads."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    lines = []
    for path in files:
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def _say(what: str) -> None:
    print(f"-- {what}", file=sys.stderr, flush=True)
