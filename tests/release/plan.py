"""What a release is made of, and the folders that its steps share."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LIST_NAME", "ROOT", "PackagingError", "Release", "maintainer", "run", "source_time", "version"]

LIST_NAME = "inglenook-updates.txt"
"""The signed list of updates, at the site."""
ROOT = Path(__file__).resolve().parents[2]
_LAST_LINES = 30


class PackagingError(Exception):
    """A step failed, or a tool is missing; one sentence, with the last lines of what the tool printed."""


@dataclass(frozen=True)
class Release:
    """One build.

    work: the folder of everything in between; out: where the packages go; version: of the program; epoch: the
    time of every file in the packages, seconds since 1970; starter: the starter model's file to put inside;
    maintainer: whom a .deb names, as "name <address>";
    site: the web address of the packages and of the update manifest, without a slash at its end; empty for
    packages that cannot be updated; update_key: the public key that signs the list of updates there;
    signer: who signs the program for Windows (the certificate's SHA-1) or macOS (its name); notary: the
    keychain profile that Apple's notary service is asked with.
    """

    work: Path
    out: Path
    version: str
    epoch: int
    starter: Path | None = None
    maintainer: str = ""
    site: str = ""
    update_key: str = ""
    signer: str = ""
    notary: str = ""

    @property
    def tree(self) -> Path:
        """A copy of the tracked files."""
        return self.work / "tree"

    @property
    def environment(self) -> Path:
        """The virtual environment with the pinned packages."""
        return self.work / "environment"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        windows = self.environment / "Scripts" / "python.exe"
        return windows if windows.exists() else self.environment / "bin" / "python"

    @property
    def program(self) -> Path:
        """The program's folder, which every package holds; on macOS an application."""
        return self.work / "dist" / ("Inglenook.app" if sys.platform == "darwin" else "inglenook")

    @property
    def inside(self) -> Path:
        """Where its data files are: resources, licences and the metadata of Python packages."""
        return self.program / ("Contents/Resources" if sys.platform == "darwin" else "_internal")

    @property
    def name(self) -> str:
        """The beginning of the packages' names; with the starter model inside, it says so."""
        return f"inglenook-{self.version}{'-starter' if self.starter else ''}"

    @property
    def share(self) -> Path:
        """Desktop entry, icons, file types and AppStream metadata, as below /usr/share."""
        return self.work / "share"


def version() -> str:
    """The version in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(project["project"]["version"])


def source_time() -> int:
    """SOURCE_DATE_EPOCH, or the time of the last commit.

    https://reproducible-builds.org/specs/source-date-epoch/
    """
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    return int(given or run(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]))


def maintainer() -> str:
    """DEBFULLNAME and DEBEMAIL, as other tools of Debian take them, or the author of the last commit.

    https://manpages.debian.org/bookworm/devscripts/debchange.1.en.html
    """
    name, address = os.environ.get("DEBFULLNAME", ""), os.environ.get("DEBEMAIL", "")
    if name and address:
        return f"{name} <{address}>"
    return run(["git", "-C", str(ROOT), "log", "-1", "--format=%an <%ae>"]).strip()


def run(command: Sequence[str | Path], *, cwd: Path | None = None, **environ: str) -> str:
    """The output of a command; `environ` is added to the environment. Raises PackagingError."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, cwd=cwd, env={**os.environ, **environ}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise PackagingError(f"The program {words[0]} is missing; {TOOLS}") from error
    if done.returncode:
        last = "\n".join(done.stdout.splitlines()[-_LAST_LINES:])
        raise PackagingError(f"{' '.join(words[:4])} ended with exit code {done.returncode}:\n{last}")
    return done.stdout


TOOLS = (
    "on Debian or Ubuntu install what packages are made with: sudo apt install binutils patchelf zstd "
    "dpkg-dev squashfs-tools gcc libc6-dev libfuse3-dev libsquashfuse-dev libzstd-dev"
)
"""The end of a sentence about a missing tool."""
