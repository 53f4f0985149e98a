"""The packages of a release on a bare Debian or Ubuntu with no network:

    sudo python -m tests.packaging --packages DIST --key PRIVATE.pem --work FOLDER [--suite trixie]

The packages come from `python -m tests.release --starter --out DIST --site http://127.0.0.1:8765
--update-key PUBLIC`, with a key of `python -m tests.release.updates key`. A root is made by debootstrap (kept
in FOLDER, so later runs need no mirror) and runs under Xvfb in mount, process and network namespaces of its
own: the .deb is installed and started by its desktop entry, in each language too, the archive by the entry
that it makes itself, the AppImage from three folders; and it is updated from a server on this machine, killed
at ten places. Screenshots are in FOLDER/pictures-SUITE.

Ubuntu: --suite jammy --mirror http://archive.ubuntu.com/ubuntu --components main,universe

Needs root, and on Debian or Ubuntu: debootstrap xvfb xdotool squashfs-tools iproute2.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Sequence
from pathlib import Path

from tests.packaging.proof import Proof
from tests.packaging.root import Machine, declared, make_root
from tests.packaging.screen import Screen
from tests.packaging.update_proof import UpdateProof, make_newer
from tests.packaging.update_site import UpdateSite

TOOLS = ("debootstrap", "Xvfb", "xdotool", "mksquashfs", "unshare", "ip", "dpkg-deb", "zstd")
SITE = "http://127.0.0.1:8765"


def mirror() -> str:
    """The mirror that this machine's apt uses."""
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    found = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split()
    return found[0] if found else ""


def package(folder: Path, ending: str) -> Path:
    """The package with this ending and the starter model inside. Raises SystemExit if it is not one."""
    found = sorted(folder.absolute().glob(f"inglenook*-starter*{ending}"))
    if len(found) != 1:
        sys.exit(f"{folder} has {len(found)} packages *-starter*{ending}; one was expected.")
    return found[0]


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    result = argparse.ArgumentParser(
        prog="python -m tests.packaging",
        description="Run the packages of a release on a bare Debian or Ubuntu.",
    )
    result.add_argument("--packages", type=Path, required=True, help="the folder of one version's packages")
    result.add_argument("--key", type=Path, required=True, help="the private key of its updates")
    result.add_argument("--work", type=Path, required=True, help="roots and pictures are kept there")
    result.add_argument("--suite", default="bookworm", help="of Debian or Ubuntu (default: bookworm)")
    result.add_argument("--mirror", default="", help="of the suite (default: the one that apt uses)")
    result.add_argument("--components", default="main", help="of the mirror, with commas (default: main)")
    result.add_argument("--fuse", action="store_true", help="with fuse3, so that the AppImage is mounted")
    result.add_argument(
        "--only", choices=("deb", "tar", "appimage", "updates"), help="one part of the proof (default: all)"
    )
    result.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the proof; returns 1 if something is wrong."""
    options = parser().parse_args(arguments)
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        print(f"The proof needs root, and these programs: {', '.join(missing or TOOLS)}.", file=sys.stderr)
        return 1
    deb = package(options.packages, ".deb")
    packages = [*declared(deb), "fonts-dejavu-core", *(["fuse3"] if options.fuse else [])]
    root = options.work.absolute() / f"root-{options.suite}{'-fuse' if options.fuse else ''}"
    if not options.inside:
        make_root(root, options.suite, options.mirror or mirror(), options.components, packages)
        words = [sys.executable, "-m", "tests.packaging", *(arguments or sys.argv[1:]), "--inside"]
        spaces = ["--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
        return subprocess.run(["unshare", *spaces, *words], check=False).returncode
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    pictures = options.work.absolute() / f"pictures-{options.suite}"
    shutil.rmtree(pictures, ignore_errors=True)
    pictures.mkdir(parents=True)
    screen = Screen()
    with tempfile.TemporaryDirectory(dir=options.work, ignore_cleanup_errors=True) as work:
        machine = Machine(root, Path(work) / "machine", screen.display)
        machine.start()
        try:
            _prove(options, machine, screen, pictures, Path(work))
        except AssertionError as error:
            screen.picture(pictures / "wrong.png")
            print(f"NOT PROVEN: {error}", file=sys.stderr)
            return 1
        finally:
            screen.close()
            machine.stop()
    print("all is proven")
    return 0


def _prove(options: argparse.Namespace, machine: Machine, screen: Screen, pictures: Path, work: Path) -> None:
    image = package(options.packages, ".AppImage")
    proof = Proof(machine, screen, image, pictures)
    proof.bare()
    if options.only in (None, "deb"):
        proof.install(package(options.packages, ".deb"))
        proof.first_chat()
        proof.second_start()
        proof.in_languages()
    if options.only in (None, "appimage"):
        proof.from_folders()
    if options.only in (None, "deb"):
        proof.remove()
    if options.only in (None, "tar"):
        proof.unpacked(package(options.packages, ".tar.zst"))
    if options.only in (None, "updates"):
        site = UpdateSite(
            make_newer(image, work / "newer", options.key.absolute()), urllib.parse.urlsplit(SITE).port or 0
        )
        updates = UpdateProof(machine, screen, image, site, pictures)
        updates.killed()
        updates.taken()
        site.close()


if __name__ == "__main__":
    sys.exit(main())
