"""E-books (.epub). EPUB 3.3, sections 4 and 5, and EPUB 2."""

from __future__ import annotations

from posixpath import dirname, join, normpath
from urllib.parse import unquote
from zipfile import ZipFile

from desktop.store.attachments.documents.markdown import from_html
from desktop.store.attachments.documents.packages import Locked, attribute, children, part, tree

__all__ = ["read"]


def read(archive: ZipFile, most_characters: int) -> str:
    """The chapters as Markdown, in the order in which they are read, without pictures. Ends soon after
    `most_characters`. Raises `Locked` for a book with copy protection.
    """
    if _protected(archive):
        raise Locked
    root = next(children(tree(archive, "META-INF/container.xml"), "rootfile"))
    package = attribute(root, "full-path")
    book = tree(archive, package)
    files = {attribute(item, "id"): attribute(item, "href") for item in children(book, "item")}
    chapters, length = list[str](), 0
    for reference in children(book, "itemref"):
        name = normpath(join(dirname(package), unquote(files.get(attribute(reference, "idref"), ""))))
        if name not in archive.namelist():
            continue
        if text := from_html(part(archive, name).decode("utf-8", "replace"), links=False):
            chapters.append(text)
            length += len(text)
        if length > most_characters:
            break
    return "\n\n".join(chapters)


def _protected(archive: ZipFile) -> bool:
    """Whether more than fonts is encrypted."""
    name = "META-INF/encryption.xml"
    if name not in archive.namelist():
        return False
    parts = [attribute(found, "URI").lower() for found in children(tree(archive, name), "CipherReference")]
    return any(not one.endswith((".otf", ".ttf", ".woff", ".woff2")) for one in parts)
