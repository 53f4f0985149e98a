"""Reads the manifests of Ollama's folder: which of its blobs are models, and which are their vision encoders.

Layout: https://github.com/ollama/ollama/blob/main/docs/faq.md and the OCI image manifests
(manifests/HOST/OWNER/NAME/TAG and blobs/sha256-DIGEST).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

__all__ = ["MODEL_LAYER", "blobs_of", "is_blob", "manifests", "projectors_of", "sorted_entries"]

MOST_MANIFESTS = 2000
MAX_MANIFEST_BYTES = 1 << 20
MODEL_LAYER = "application/vnd.ollama.image.model"
PROJECTOR_LAYER = "application/vnd.ollama.image.projector"
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
    if manifest.stat().st_size > MAX_MANIFEST_BYTES:
        raise ValueError("it is too large")
    try:
        data: Any = json.loads(manifest.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError("it is not JSON") from error
    layers = data.get("layers") if isinstance(data, dict) else None
    if not isinstance(layers, list):
        raise ValueError("it lists no layers")
    names = []
    for each in layers:
        if isinstance(each, dict) and each.get("mediaType") == layer:
            found = _DIGEST.fullmatch(str(each.get("digest")))
            if found is None:  # never a path outside the folder of blobs
                raise ValueError("its digest is invalid")
            names.append(f"{found[1]}-{found[2]}")
    return names


def projectors_of(model: Path) -> list[Path]:
    """The files (mmproj) with the vision encoder of one of Ollama's models, by the manifests that name its
    blob; empty for any other file.
    """
    if not is_blob(model):
        return []
    found: dict[Path, None] = {}
    for manifest in manifests(model.parent.parent):
        try:
            if model.name in blobs_of(manifest, MODEL_LAYER):
                found |= {model.parent / name: None for name in blobs_of(manifest, PROJECTOR_LAYER)}
        except (OSError, ValueError):
            continue  # another model's, or one that the search for models says cannot be read
    return [path for path in found if path.is_file()]


def sorted_entries(folder: Path) -> list[Path]:
    """The entries of a folder, sorted by name; empty if it cannot be read."""
    try:
        return [folder / name for name in sorted(os.listdir(folder), key=str.lower)]
    except OSError:
        return []
