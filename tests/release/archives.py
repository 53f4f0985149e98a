"""Packages for Linux that need no runtime of their own: a compressed archive and a .deb."""

from __future__ import annotations

import datetime
import email.utils
import gzip
import hashlib
import io
import shutil
import tarfile
from pathlib import Path, PurePosixPath

from desktop.__main__ import parser as window_parser
from desktop.preflight import DEBIAN_PACKAGES
from engine.__main__ import parser as engine_parser
from tests.release.manual import manual_page
from tests.release.plan import Release, run
from tests.release.program import normalise

__all__ = ["LIBC", "make_archive", "make_deb"]

LIBC = (2, 35)
"""The oldest C library that the packages run with: that of Ubuntu 22.04."""

_ABOUT = (
    "chat with language models that run on your own machine\n"
    " Inglenook runs language models in GGUF files and Hugging Face folders on the\n"
    " processor, in the same process as its window. There is no account and no\n"
    " telemetry."
)
_COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Inglenook
Comment: The works of others in this package, and the places of their licences, are listed in
 /usr/lib/inglenook/_internal/licences/NOTICE.txt.

Files: *
Copyright: {year} The authors of Inglenook
License: Apache-2.0
 On Debian systems, the full text of this licence is in
 /usr/share/common-licenses/Apache-2.0; it is also in
 /usr/lib/inglenook/_internal/licences/LICENSE.txt.
"""
_CHANGES = """inglenook ({version}) unstable; urgency=medium

  * Version {version}. What is new is written in CHANGELOG.md of the source.

 -- {maintainer}  {day}
"""


def make_archive(release: Release) -> Path:
    """A .tar.zst of the program's folder: to be unpacked anywhere."""
    made = release.out / f"{release.name}-linux-x86_64.tar.zst"
    plain, top = release.work / "archive.tar", PurePosixPath(release.name)
    with tarfile.open(plain, "w", format=tarfile.GNU_FORMAT) as archive:
        for path in [release.program, *sorted(release.program.rglob("*"))]:
            entry = archive.gettarinfo(path, str(top / path.relative_to(release.program)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            content = io.BytesIO(path.read_bytes()) if entry.isreg() else None
            archive.addfile(entry, content)
    run(["zstd", "-19", "--long=27", "-T2", "--quiet", "--force", plain, "-o", made])
    plain.unlink()
    return made


def make_deb(release: Release) -> Path:
    """A package for Debian 12, Ubuntu 22.04 and newer ones.

    Format: https://manpages.debian.org/bookworm/dpkg-dev/deb.5.en.html
    """
    root = release.work / "deb"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(release.program, root / "usr" / "lib" / "inglenook", symlinks=True)
    shutil.copytree(release.share, root / "usr" / "share")
    (root / "usr" / "bin").mkdir()
    for name in ("inglenook", "inglenook-engine"):
        (root / "usr" / "bin" / name).symlink_to(f"../lib/inglenook/{name}")
    _add_papers(release, root / "usr" / "share")
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    size, control = sum(path.stat().st_size for path in files), root / "DEBIAN"
    sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root)}\n" for path in files]
    control.mkdir()
    (control / "md5sums").write_text("".join(sums), encoding="utf-8")  # what `dpkg --verify` looks at
    (control / "control").write_text(_control(release, size // 1024), encoding="utf-8")
    normalise(root, release.epoch)
    made = release.out / f"{release.name.replace('-', '_', 1)}_amd64.deb"
    run(
        ["dpkg-deb", "--root-owner-group", "-Zxz", "-z6", "--build", root, made],
        SOURCE_DATE_EPOCH=str(release.epoch),
    )
    shutil.rmtree(root)
    return made


def _add_papers(release: Release, share: Path) -> None:
    """Write what Debian's policy asks for, and which of lintian's findings are meant to be (chapter 12:
    https://www.debian.org/doc/debian-policy/ch-docs.html).
    """
    day = datetime.datetime.fromtimestamp(release.epoch, datetime.UTC)
    papers, overrides = share / "doc" / "inglenook", share / "lintian" / "overrides" / "inglenook"
    papers.mkdir(parents=True)
    (papers / "copyright").write_text(_COPYRIGHT.format(year=day.year), encoding="utf-8")
    changes = _CHANGES.format(
        version=release.version, maintainer=release.maintainer, day=email.utils.format_datetime(day)
    )
    (papers / "changelog.gz").write_bytes(gzip.compress(changes.encode(), 9, mtime=release.epoch))
    manual = share / "man" / "man1"
    manual.mkdir(parents=True)
    for parser in (window_parser(), engine_parser()):
        page = manual_page(parser, release.version, day.date()).encode()
        (manual / f"{parser.prog}.1.gz").write_bytes(gzip.compress(page, 9, mtime=release.epoch))
    overrides.parent.mkdir(parents=True)
    shutil.copyfile(Path(__file__).with_name("lintian_overrides.txt"), overrides)


def _control(release: Release, kibibytes: int) -> str:
    needs = [f"libc6 (>= {LIBC[0]}.{LIBC[1]})", "libstdc++6 (>= 12)", "libgcc-s1", *DEBIAN_PACKAGES.split()]
    return (
        f"Package: inglenook\nVersion: {release.version}\nArchitecture: amd64\nSection: science\n"
        "Priority: optional\n"
        f"Maintainer: {release.maintainer}\nInstalled-Size: {kibibytes}\n"
        f"Depends: {', '.join(needs)}\nRecommends: fonts-dejavu-core | fonts-noto-core, xdg-utils\n"
        "Suggests: fonts-noto-cjk, fonts-noto-color-emoji, speech-dispatcher\n"
        f"Description: {_ABOUT}\n"
    )
