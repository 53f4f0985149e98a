"""The signed list of the latest packages: one file, so that list and signature always fit together.

Its first line is `inglenook-updates-1 SIGNATURE`: an Ed25519 signature (RFC 8032, base64) of the bytes after
that line, which are a JSON object with `version`, `published`, `notes` (Markdown) and `packages`.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import urllib.parse
from collections.abc import Sequence

from engine.errors import DownloadError
from engine.lazy_dataclass import dataclass
from engine.words import _

__all__ = ["HEAD", "MAX_BYTES", "Package", "Update", "read_manifest", "version_key"]

HEAD = b"inglenook-updates-1 "
MAX_BYTES = 256 << 10
_SHA256 = re.compile(r"[0-9a-f]{64}")
_VERSION = re.compile(r"\d{1,6}(\.\d{1,6}){0,3}")


@dataclass(frozen=True)
class Package:
    """One file: `kind` is "appimage", "deb", "tar" or a later one; `starter`: the starter model is inside."""

    kind: str
    url: str
    bytes: int
    sha256: str
    starter: bool = False


@dataclass(frozen=True)
class Update:
    """The latest version, the day it was published, what is new, and its packages."""

    version: str
    published: str
    notes: str
    packages: tuple[Package, ...]

    def package(self, kind: str, starter: bool) -> Package | None:
        """The package that replaces one of this kind, with or without the starter model inside."""
        fitting = [one for one in self.packages if one.kind == kind]
        return next((one for one in fitting if one.starter == starter), fitting[0] if fitting else None)


def version_key(version: str) -> tuple[int, ...]:
    """Sorts versions. Raises ValueError for anything but up to four numbers."""
    if not _VERSION.fullmatch(version):
        raise ValueError(f"{version!r} is not a version")
    numbers = [int(part) for part in version.split(".")]
    return tuple(numbers + [0] * (4 - len(numbers)))


def read_manifest(content: bytes, url: str, keys: Sequence[str]) -> Update:
    """The list in `content`, which was read from `url`; its signature must be by one of the `keys`.

    Raises `DownloadError`.
    """
    head, _unused, payload = content.partition(b"\n")
    if not head.startswith(HEAD) or not _is_signed(head.removeprefix(HEAD).strip(), payload, keys):
        raise DownloadError(
            _(
                "The list of updates at {url} is not signed by the developers of Inglenook, so it "
                "is not used.",
                url=url,
            )
        )
    try:
        found = json.loads(payload)
        version_key(found["version"])
        packages = tuple(_package(one, url) for one in found["packages"])
        return Update(found["version"], str(found["published"]), str(found["notes"]), packages)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DownloadError(
            _(
                "The list of updates at {url} cannot be read ({error}); a newer version of "
                "Inglenook may read it.",
                url=url,
                error=error,
            )
        ) from error


def _is_signed(signature: bytes, payload: bytes, keys: Sequence[str]) -> bool:
    # On Linux it is there through keyring; it takes 30 ms to import, and only this needs it.
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    for key in keys:
        try:
            public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key, validate=True))
            public.verify(base64.b64decode(signature, validate=True), payload)
            return True
        except (InvalidSignature, ValueError, binascii.Error):
            continue
    return False


def _package(found: dict[str, object], manifest: str) -> Package:
    size, sha256 = found["bytes"], found["sha256"]
    if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
        raise ValueError(f"{size!r} is not a size")
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise ValueError(f"{sha256!r} is not a SHA-256")
    url = urllib.parse.urljoin(manifest, str(found["file"]))
    return Package(str(found["kind"]), url, size, sha256, found.get("starter") is True)
