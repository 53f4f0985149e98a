"""ZIP archives of documents: what they hold, and their parts as bytes or XML."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import dirname, join, normpath
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from zipfile import ZipFile

__all__ = [
    "Locked", "NotSupported", "attribute", "children", "kind_of_package", "local", "part", "related", "tree",
]  # fmt: skip

MOST_PART_BYTES = 256 << 20
_MIME_KINDS = {
    "application/epub+zip": "epub",
    "application/vnd.oasis.opendocument.text": "open_document",
    "application/vnd.oasis.opendocument.presentation": "open_document",
    "application/vnd.oasis.opendocument.spreadsheet": "sheets",
}
_FOLDER_KINDS = {"word/": "word", "xl/": "sheets", "ppt/": "slides", "META-INF/container.xml": "epub"}


class Locked(Exception):
    """A document needs a password, or a licence."""


class NotSupported(Exception):
    """A file is no document of a kind that is read."""


def kind_of_package(archive: ZipFile) -> str:
    """The module that reads this archive. Raises `Locked` and `NotSupported`.

    OpenDocument and EPUB say what they are in a first part, Office by the folder of their parts.
    """
    names = archive.namelist()
    if "mimetype" in names:
        kind = part(archive, "mimetype").decode("ascii", "replace").strip()
        for begin, module in _MIME_KINDS.items():  # also templates
            if kind.startswith(begin):
                if module != "epub" and b"encryption-data" in part(archive, "META-INF/manifest.xml"):
                    raise Locked
                return module
    for begin, module in _FOLDER_KINDS.items():
        if any(name.startswith(begin) for name in names):
            return module
    raise NotSupported


def part(archive: ZipFile, name: str) -> bytes:
    """A part of an archive. Raises KeyError if it has none of this name, and ValueError if it is too long."""
    info = archive.getinfo(name)
    if info.flag_bits & 1:
        raise Locked
    if info.file_size > MOST_PART_BYTES:
        raise ValueError("the part is too long")
    return archive.read(info)


def tree(archive: ZipFile, name: str) -> Element:
    """A part that is XML. Raises ParseError, and as `part`."""
    return ElementTree.fromstring(part(archive, name))


def local(element: Element) -> str:
    """The name of an element without its namespace, of which Office has two for each."""
    return element.tag.rpartition("}")[2]


def children(element: Element, name: str) -> Iterator[Element]:
    """The elements of this name inside another one, at any depth, in order."""
    return (found for found in element.iter() if local(found) == name)


def attribute(element: Element, name: str) -> str:
    """An attribute, whatever its namespace; empty without it."""
    return next((value for key, value in element.attrib.items() if key.rpartition("}")[2] == name), "")


def related(archive: ZipFile, name: str) -> dict[str, tuple[str, str]]:
    """The type and the name of each part that an Office part refers to, by the id of the reference.

    ECMA-376, part 2: they stand in `_rels/NAME.rels` beside it.
    """
    folder = dirname(name)
    rels = join(folder, "_rels", name.removeprefix(folder).lstrip("/") + ".rels")
    if rels not in archive.namelist():
        return {}
    return {
        one.get("Id", ""): (
            one.get("Type", "").rpartition("/")[2],
            normpath(join("/", folder, one.get("Target", ""))).lstrip("/"),
        )
        for one in tree(archive, rels)
        if one.get("TargetMode") != "External"
    }
