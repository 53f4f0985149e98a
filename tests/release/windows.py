"""The installer for Windows: Inno Setup over the program's folder, signed if there is a certificate.

NOT RUN YET: written on Linux, by the documentation; a test checks the commands.
https://jrsoftware.org/ishelp/topic_isppcc.htm, https://learn.microsoft.com/windows/win32/seccrypto/signtool
"""

from __future__ import annotations

import datetime
import os
import platform
import shutil
import subprocess
from pathlib import Path

from tests.release.plan import PackagingError, Release, run

__all__ = ["make_setup"]

_TIMES = "http://timestamp.digicert.com"
_PROGRAMS = ("inglenook.exe", "inglenook-engine.exe")


def make_setup(release: Release) -> Path:
    """The installer of a release. Raises PackagingError."""
    for name in _PROGRAMS if release.signer else ():
        run([*_signing(release), release.program / name])
    arch = platform.machine().lower().replace("amd64", "x86_64")
    name = f"{release.name}-windows-{arch}-setup"
    day = datetime.datetime.fromtimestamp(release.epoch, datetime.UTC).date()
    defined = {
        "Version": release.version, "Day": day, "Program": release.program, "Name": name,
        "Icon": release.share / "inglenook.ico", "Out": release.out,
    }  # fmt: skip
    words = [f"/D{key}={value}" for key, value in defined.items()]
    if release.signer:
        words.append("/DSign")
        words.append(f"/Srelease={subprocess.list2cmdline(_signing(release))} $f")
    run([_compiler(), "/Qp", *words, Path(__file__).with_name("inglenook.iss")])
    return release.out / f"{name}.exe"


def _signing(release: Release) -> list[str]:
    return ["signtool", "sign", "/sha1", release.signer, "/fd", "SHA256", "/tr", _TIMES, "/td", "SHA256"]


def _compiler() -> str:
    """Inno Setup's compiler, in the path or where its installer puts it."""
    found = shutil.which("ISCC")
    usual = Path(os.environ.get("PROGRAMFILES(X86)", r"C:\Program Files (x86)"), "Inno Setup 6", "ISCC.exe")
    if found is None and not usual.is_file():
        raise PackagingError(
            "Inno Setup is missing: install version 6.3 or newer (winget install JRSoftware.InnoSetup)."
        )
    return found or str(usual)
