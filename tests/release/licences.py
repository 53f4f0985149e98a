"""What a package is made of: a bill of materials, and the licences of all parts.

CycloneDX 1.6: https://cyclonedx.org/docs/1.6/json/
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.release.plan import Release

__all__ = ["RUNTIME_PACKAGES", "add_licences", "bill_of_materials"]

RUNTIME_PACKAGES = ("libc6-dev", "libfuse3-dev", "libsquashfuse-dev", "libzstd-dev")
"""What `runtime.c`, the first part of an AppImage, is linked with."""

_NOTICE = """Inglenook is licensed under Apache-2.0 (LICENSE.txt). It contains these works of others:

{parts}

The licences of Python packages are in the folders NAME-VERSION.dist-info beside this folder; those of other
libraries are in this folder.

Qt {qt} and PySide6 {qt} are used under the GNU Lesser General Public License 3 (LGPL-3.0.txt, with
GPL-3.0.txt). They are shared libraries in the folder PySide6. You may replace them by your own builds
of the same version: put libraries of the same names there. In an AppImage, unpack it first
(--appimage-extract), and start AppRun in the unpacked folder. Their source code is published at
https://download.qt.io/official_releases/.

The first part of an AppImage is linked statically with the GNU C Library, libfuse 3 (both LGPL-2.1),
squashfuse and Zstandard. Its source is tests/release/runtime.c in Inglenook's source code; the command in
tests/release/app_image.py links it with other builds of them.
"""


def add_licences(release: Release) -> Path:
    """Write the folder `licences` into the program's folder.

    Returns the bill of materials, which is also written beside the packages.
    """
    inside = release.inside
    folder = inside / "licences"
    folder.mkdir()
    shutil.copyfile(release.tree / "LICENSE", folder / "LICENSE.txt")
    for text in sorted((release.tree / "resources" / "packaging" / "licences").iterdir()):
        shutil.copyfile(text, folder / text.name)
    shutil.copyfile(_python_licence(), folder / "Python.txt")
    libraries = {**_system_libraries(inside), **_runtime_libraries()}
    parts = [*_python_packages(inside), _python(), *_debian_parts(libraries, folder), *_model(release)]
    lines = [f"{part['name']} {part['version']}: {_licence_of(part)}" for part in parts]
    qt = next(part["version"] for part in parts if part["name"].lower().startswith("pyside6"))
    (folder / "NOTICE.txt").write_text(_NOTICE.format(parts="\n".join(lines), qt=qt), encoding="utf-8")
    bill = json.dumps(bill_of_materials(release, parts), indent=1, ensure_ascii=False) + "\n"
    (folder / "sbom.cdx.json").write_text(bill, encoding="utf-8")
    made = release.out / f"{release.name}-{sys.platform}.cdx.json"
    made.write_text(bill, encoding="utf-8")
    return made


def bill_of_materials(release: Release, parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The CycloneDX document; the same for the same parts."""
    name = f"inglenook@{release.version}/" + json.dumps(parts, sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, name)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "inglenook",
                "name": "inglenook",
                "version": release.version,
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": parts,
        "dependencies": [{"ref": "inglenook", "dependsOn": [part["bom-ref"] for part in parts]}],
    }


def _part(purl: str, name: str, version: str, licence: str, *, expression: bool = False) -> dict[str, Any]:
    named = {"expression": licence} if expression else {"license": {"name": licence}}
    return {
        "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl,
        "licenses": [named],
    }  # fmt: skip


def _licence_of(part: dict[str, Any]) -> str:
    (named,) = part["licenses"]
    return str(named.get("expression") or named["license"]["name"])


def _python_packages(inside: Path) -> Iterator[dict[str, Any]]:
    """The distributions whose metadata is in the folder, by name."""
    from desktop.views.application.about_dialog import licence

    found = importlib.metadata.distributions(path=[str(inside)])
    for each in sorted(found, key=lambda one: one.name.lower()):
        if each.name != "inglenook":
            key = re.sub(r"[-_.]+", "-", each.name).lower()
            stated = each.metadata.get_all("License-Expression")
            yield _part(
                f"pkg:pypi/{key}@{each.version}", each.name, each.version, licence(each.metadata),
                expression=bool(stated),
            )  # fmt: skip


def _python() -> dict[str, Any]:
    version = platform.python_version()
    return _part(f"pkg:generic/python@{version}", "Python", version, "PSF-2.0", expression=True)


def _python_licence() -> Path:
    """The licence of Python, which also names those of the libraries inside its standard library."""
    places = [Path(sysconfig.get_paths()["stdlib"]), Path(sys.base_prefix), Path("/usr/share/doc/python3")]
    names = ("LICENSE.txt", "LICENSE", "copyright")
    return next(place / name for place in places for name in names if (place / name).is_file())


def _system_libraries(inside: Path) -> dict[str, str]:
    """The Debian packages of the libraries that PyInstaller took from the system, each with one of them."""
    if sys.platform != "linux":
        return {}
    owners: dict[str, str] = {}
    for library in sorted(inside.glob("lib*.so*")):
        if not library.is_symlink() and not library.name.startswith("libpython"):
            owner = _owner(library.name)
            if owner:
                owners.setdefault(owner, library.name)
    return owners


def _runtime_libraries() -> dict[str, str]:
    """The Debian packages that the AppImage's first part is linked with, statically."""
    return dict.fromkeys(RUNTIME_PACKAGES, "runtime.c") if sys.platform == "linux" else {}


def _debian_parts(packages: Iterable[str], folder: Path) -> Iterator[dict[str, Any]]:
    """These packages, by name; copies their licences."""
    for package in sorted(packages):
        papers = Path("/usr/share/doc") / package / "copyright"
        if papers.is_file():
            shutil.copyfile(papers, folder / f"{package}.txt")
            version = _dpkg("--showformat=${Version}", "--show", package)
            yield _part(f"pkg:deb/debian/{package}@{version}", package, version, f"in {package}.txt")


def _model(release: Release) -> Iterator[dict[str, Any]]:
    """The starter model, if it is inside."""
    if release.starter is not None:
        from engine.hub.download.starter import starter

        about = starter()
        purl = f"pkg:pypi/{about.package}@{about.version}"
        part = _part(purl, about.name, about.version, about.licence, expression=True)
        digest = {"alg": "SHA-256", "content": about.sha256}
        yield {**part, "type": "machine-learning-model", "hashes": [digest]}


def _owner(library: str) -> str:
    """The Debian package that a library of the system belongs to; empty for those from elsewhere."""
    for folder in ("/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu"):
        found = subprocess.run(
            ["dpkg-query", "--search", f"{folder}/{library}"], capture_output=True, text=True, check=False
        )
        if found.returncode == 0:
            return found.stdout.partition(":")[0]
    return ""


def _dpkg(*arguments: str) -> str:
    return subprocess.run(["dpkg-query", *arguments], capture_output=True, text=True, check=True).stdout
