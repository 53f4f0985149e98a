"""The files of a Linux desktop, drawn and written by the program itself; and icons for other systems.

python -m tests.release.share FOLDER VERSION EPOCH [SITE]
"""

from __future__ import annotations

import datetime
import os
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import resources

__all__ = ["SCREENSHOTS", "main", "metainfo"]

SCREENSHOTS = {"chat-light.png": "A conversation", "chat-dark.png": "The same conversation in dark colours"}
"""Those that the metadata shows, published beside the packages: their files, with captions."""


def metainfo(version: str, epoch: int, site: str = "") -> str:
    """The AppStream metadata: the file in resources/packaging with this release.

    With the address of a web site: also its address and screenshots, which cannot be inside a package.
    Format: https://www.freedesktop.org/software/appstream/docs/chap-Metadata.html
    """
    component = ElementTree.fromstring(resources.text("packaging/linux/inglenook.metainfo.xml"))
    if site:
        ElementTree.SubElement(component, "url", {"type": "homepage"}).text = site
        pictures = ElementTree.SubElement(component, "screenshots")
        for number, (name, caption) in enumerate(SCREENSHOTS.items()):
            picture = ElementTree.SubElement(pictures, "screenshot", {} if number else {"type": "default"})
            ElementTree.SubElement(picture, "caption").text = caption
            ElementTree.SubElement(picture, "image").text = f"{site}/{name}"
    day = datetime.datetime.fromtimestamp(epoch, datetime.UTC).date().isoformat()
    releases = ElementTree.SubElement(component, "releases")
    ElementTree.SubElement(releases, "release", {"version": version, "date": day})
    ElementTree.indent(component)
    text = ElementTree.tostring(component, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def main(folder: str, version: str, epoch: str, site: str = "") -> int:
    """Write all files."""
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    from desktop.menu_entry.kinds import write_picture
    from desktop.menu_entry.starting import Starting
    from desktop.menu_entry.xdg import write_files

    share = Path(folder)
    if sys.platform in ("win32", "darwin"):
        share.mkdir(parents=True)
        write_picture(share / ("inglenook.ico" if sys.platform == "win32" else "inglenook.icns"))
        return 0
    write_files(share, Starting(("inglenook",)))
    about = share / "metainfo" / "inglenook.metainfo.xml"
    about.parent.mkdir()
    about.write_text(metainfo(version, int(epoch), site), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
