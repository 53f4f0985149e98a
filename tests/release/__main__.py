"""Makes the packages of a release:  python -m tests.release --out dist [--starter]

On Linux: an archive, a .deb package and an AppImage, which have the same bytes for the same commit; on
Windows an installer, on macOS a disk image. The environment that they are made from is kept
in --work. What is inside, and what has to be installed first, is in README.md beside this file.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.release.environment import copy_tree, make_environment
from tests.release.plan import ROOT, PackagingError, Release, maintainer, source_time, version

KINDS = {"linux": ("tar", "deb", "appimage"), "win32": ("setup",), "darwin": ("dmg",)}.get(sys.platform, ())


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    result = argparse.ArgumentParser(
        prog="python -m tests.release", description="Make the packages of a release."
    )
    result.add_argument(
        "--out", type=Path, default=ROOT / "dist", help="where the packages go (default: dist)"
    )
    result.add_argument(
        "--work",
        type=Path,
        default=ROOT / "build" / "release",
        help="what is made on the way (default: build/release)",
    )
    result.add_argument(
        "--packages", nargs="*", choices=KINDS, default=list(KINDS), help="which (default: all)"
    )
    result.add_argument("--starter", action="store_true", help="put the starter model inside")
    result.add_argument("--site", default="", metavar="URL", help="where the packages will be published")
    result.add_argument(
        "--update-key", default="", metavar="KEY",
        help="the public key of the list of updates at the site (tests.release.updates makes one)",
    )  # fmt: skip
    result.add_argument(
        "--maintainer", default="", metavar="'NAME <ADDRESS>'",
        help="whom the .deb names (default: DEBFULLNAME and DEBEMAIL, or the author of the last commit)",
    )  # fmt: skip
    result.add_argument(
        "--signer", default="", metavar="WHO",
        help="sign for Windows (the certificate's SHA-1) or macOS (its name, “Developer ID Application: …”)",
    )  # fmt: skip
    result.add_argument(
        "--notary", default="", metavar="PROFILE",
        help="have Apple notarise the disk image, with this profile of `xcrun notarytool store-credentials`",
    )  # fmt: skip
    result.add_argument("--inside", type=int, metavar="EPOCH", help=argparse.SUPPRESS)
    result.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the packages; returns 1 if a step failed."""
    options = parser().parse_args(arguments)
    out, work = options.out.absolute(), options.work.absolute()
    try:
        if options.inside is not None:
            from tests.release.build import build

            release = Release(
                work,
                out,
                version(),
                options.inside,
                options.model,
                options.maintainer,
                options.site.rstrip("/"),
                options.update_key,
                options.signer,
                options.notary,
            )
            for made in build(release, tuple(options.packages)):
                print(f"{made.name}: {made.stat().st_size:,} bytes")
            return 0
        release = Release(work, out, version(), source_time())
        copy_tree(release)
        make_environment(release)
        inside = [
            "--inside",
            str(release.epoch),
            "--out",
            str(out),
            "--work",
            str(work),
            "--site",
            options.site,
            "--update-key",
            options.update_key,
            "--signer",
            options.signer,
            "--notary",
            options.notary,
            "--maintainer",
            options.maintainer or maintainer(),
        ]
        if options.starter:
            inside += ["--model", str(_starter(release))]
    except PackagingError as error:
        print(error, file=sys.stderr)
        return 1
    command = [str(release.python), "-m", "tests.release", *inside, "--packages", *options.packages]
    return subprocess.run(command, cwd=release.tree, check=False).returncode


def _starter(release: Release) -> Path:
    """The starter model's file, downloaded once."""
    from engine.core import Downloaded
    from engine.hub.download.starter import fetch_starter

    *_, last = fetch_starter(release.work / "models")
    assert isinstance(last, Downloaded)
    return Path(last.path)


if __name__ == "__main__":
    sys.exit(main())
