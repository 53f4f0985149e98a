"""The steps of a release, in the release's own environment: `tests.release` starts it there."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

from tests.release import share
from tests.release.app_image import make_app_image
from tests.release.archives import make_archive, make_deb
from tests.release.licences import add_licences
from tests.release.plan import PackagingError, Release
from tests.release.program import make_program, normalise

__all__ = ["MAX_BYTES", "build", "check_left_out", "check_size", "write_checksums"]

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
    _say("licences and bill of materials")
    made = [add_licences(release)]
    normalise(release.program, release.epoch)
    for kind, make in (("tar", make_archive), ("deb", make_deb), ("appimage", make_app_image)):
        if kind in kinds:
            _say(kind)
            made.append(make(release))
            check_size(made[-1], starter=release.starter is not None)
    write_checksums(release.out)
    return made


LEFT_OUT = ("torch", "nvidia", "numba_cuda", "triton", "numba/cuda")


def check_left_out(program: Path) -> None:
    """Raise PackagingError if PyTorch or a library of GPUs is in the program's folder."""
    for name in LEFT_OUT:
        if (program / "_internal" / name).exists():
            raise PackagingError(f"{name} is inside, but packages for processors leave it out.")


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
