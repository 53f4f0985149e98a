"""Makes the signed list of updates that installed programs ask for.

    python -m tests.release.updates key PRIVATE.pem      a new pair of keys; prints the public one
    python -m tests.release.updates sign --key PRIVATE.pem --notes NOTES.md FOLDER

The folder is that of `python -m tests.release --site URL --update-key PUBLIC`; the list goes into it,
and all of it to URL. The private key belongs on no server.
"""

from __future__ import annotations

import argparse
import base64
import datetime
import hashlib
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)  # fmt: skip

from engine.hub.updates.manifest import HEAD
from tests.release.plan import LIST_NAME

__all__ = ["main", "new_key", "public_key", "signed"]

_PACKAGE = re.compile(
    r"inglenook[-_](?P<version>[0-9.]+)(?P<starter>-starter)?[-_.].*?(?P<end>AppImage|deb|tar\.zst)"
)
_KINDS = {"AppImage": "appimage", "deb": "deb", "tar.zst": "tar"}


def new_key(path: Path) -> str:
    """Write a private key that only this user can read; returns the public one, in base64."""
    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
    return public_key(key)


def public_key(key: Ed25519PrivateKey) -> str:
    """The public key, in base64."""
    return base64.b64encode(key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()


def signed(content: dict[str, Any], key: Ed25519PrivateKey) -> bytes:
    """The file with this list (`engine.hub.updates.manifest`)."""
    payload = (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()
    return HEAD + base64.b64encode(key.sign(payload)) + b"\n" + payload


def contents(folder: Path, notes: str, day: str) -> dict[str, Any]:
    """The list of the packages in a folder, which are of one version. Raises ValueError."""
    packages, versions = [], set()
    for path in sorted(folder.iterdir()):
        if found := _PACKAGE.fullmatch(path.name):
            versions.add(found["version"])
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            packages.append(
                {
                    "kind": _KINDS[found["end"]], "file": path.name, "bytes": path.stat().st_size,
                    "sha256": digest, "starter": bool(found["starter"]),
                }
            )  # fmt: skip
    if len(versions) != 1:
        raise ValueError(f"{folder} has packages of {len(versions)} versions; one was expected.")
    return {"version": versions.pop(), "published": day, "notes": notes, "packages": packages}


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a key, or sign a list."""
    parser = argparse.ArgumentParser(prog="python -m tests.release.updates")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("key", help="make a pair of keys").add_argument("file", type=Path)
    sign = commands.add_parser("sign", help="write the signed list")
    sign.add_argument("--key", type=Path, required=True)
    sign.add_argument("--notes", type=Path, required=True, help="what is new, in Markdown")
    sign.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "key":
        print(new_key(options.file))
        return 0
    key = load_pem_private_key(options.key.read_bytes(), None)
    assert isinstance(key, Ed25519PrivateKey), "the key is not of Ed25519"
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    try:
        content = contents(options.folder, options.notes.read_text(encoding="utf-8"), day)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    (options.folder / LIST_NAME).write_bytes(signed(content, key))
    print(options.folder / LIST_NAME)
    return 0


if __name__ == "__main__":
    sys.exit(main())
