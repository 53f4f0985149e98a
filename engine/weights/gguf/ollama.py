"""Reads the manifests of Ollama's folder: which of its blobs are models, and which are their vision encoders.

Layout: https://github.com/ollama/ollama/blob/main/docs/faq.md and the OCI image manifests
(manifests/HOST/OWNER/NAME/TAG and blobs/sha256-DIGEST).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from engine.words import _

__all__ = [
    "MODEL_LAYER", "blobs_of", "is_blob", "known_name", "known_place", "manifest_title", "manifests",
    "projectors_of", "pulled_name", "sorted_entries",
]  # fmt: skip

MOST_MANIFESTS = 2000
MAX_MANIFEST_BYTES = 1 << 20
MODEL_LAYER = "application/vnd.ollama.image.model"
PROJECTOR_LAYER = "application/vnd.ollama.image.projector"
_HOST, _OWNER = "registry.ollama.ai", "library"
"""Ollama's own registry and the owner of its models, which names leave out."""
_DIGEST = re.compile(r"(sha256)[:-]([0-9a-f]{64})")


def is_blob(path: Path) -> bool:
    """Whether a file is one of Ollama's, by its name and its folder's."""
    return _DIGEST.fullmatch(path.name) is not None and path.parent.name == "blobs"


def manifests(folder: Path) -> Iterator[Path]:
    """The manifests in Ollama's folder, sorted by name; the first 2,000."""
    return islice(_manifests(folder / "manifests"), MOST_MANIFESTS)


def _manifests(folder: Path) -> Iterator[Path]:
    for host in sorted_entries(folder):
        for owner in sorted_entries(host):
            for name in sorted_entries(owner):
                yield from (
                    path for path in sorted_entries(name) if path.is_file() and not path.name.startswith(".")
                )


def blobs_of(manifest: Path, layer: str) -> list[str]:
    """The file names of the blobs that a manifest has for layers of this media type. Raises OSError, and
    ValueError if the manifest is damaged.
    """
    facts = manifest.stat()
    if facts.st_size > MAX_MANIFEST_BYTES:
        raise ValueError("it is too large")
    found = _layers(str(manifest), facts.st_mtime_ns, facts.st_size)
    names = []
    for kind, digest in found:
        if kind == layer:
            match = _DIGEST.fullmatch(digest)
            if match is None:  # never a path outside the folder of blobs
                raise ValueError("its digest is invalid")
            names.append(f"{match[1]}-{match[2]}")
    return names


@lru_cache(maxsize=MOST_MANIFESTS)
def _layers(manifest: str, mtime_ns: int, size: int) -> tuple[tuple[str, str], ...]:
    """The media types and digests of a manifest's layers, which is read once as long as it has this time and
    size. Raises OSError and ValueError.
    """
    try:
        data: Any = json.loads(Path(manifest).read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError("it is not JSON") from error
    layers = data.get("layers") if isinstance(data, dict) else None
    if not isinstance(layers, list):
        raise ValueError("it lists no layers")
    return tuple(
        (str(each.get("mediaType")), str(each.get("digest"))) for each in layers if isinstance(each, dict)
    )


def manifest_title(manifest: Path) -> str:
    """The name as Ollama shows it, without its own registry and the owner "library": "llama3.2:3b"."""
    host, owner, name, tag = manifest.parts[-4:]
    named = [part for part, usual in ((host, _HOST), (owner, _OWNER)) if part != usual]
    return "/".join([*named, f"{name}:{tag}"])


def pulled_name(model: Path) -> str:
    """The name of the model in one of Ollama's blobs, by the first manifest that names it; "" for any other
    file.
    """
    return next((manifest_title(manifest) for manifest in _naming(model)), "")


def known_name(file: Path) -> str:
    """The name of a model's file in a sentence: of one of Ollama's blobs the name that it was pulled by, and
    that it is the vision encoder if it is; else the file's own.
    """
    if name := pulled_name(file):
        return name
    manifest = next(_naming(file, PROJECTOR_LAYER), None)
    return _("{name} (vision encoder)", name=manifest_title(manifest)) if manifest is not None else file.name


def known_place(file: Path) -> str:
    """The path of a model's file in a sentence; of one of Ollama's blobs, after its `known_name`."""
    name = known_name(file)
    return str(file) if name == file.name else f"{name} ({file})"


def _naming(blob: Path, layer: str = MODEL_LAYER) -> Iterator[Path]:
    """The manifests that name a blob as their model, or as this other layer."""
    if not is_blob(blob):
        return
    for manifest in manifests(blob.parent.parent):
        try:
            if blob.name in blobs_of(manifest, layer):
                yield manifest
        except (OSError, ValueError):
            continue  # another model's, or one that the search for models says cannot be read


def projectors_of(model: Path) -> list[Path]:
    """The files (mmproj) with the vision encoder of one of Ollama's models, by the manifests that name its
    blob; empty for any other file.
    """
    found: dict[Path, None] = {}
    for manifest in _naming(model):
        with suppress(OSError, ValueError):
            found |= {model.parent / name: None for name in blobs_of(manifest, PROJECTOR_LAYER)}
    return [path for path in found if path.is_file()]


def sorted_entries(folder: Path) -> list[Path]:
    """The entries of a folder, sorted by name; empty if it cannot be read."""
    try:
        return [folder / name for name in sorted(os.listdir(folder), key=str.lower)]
    except OSError:
        return []
