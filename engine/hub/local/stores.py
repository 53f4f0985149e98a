"""Reads the two stores that keep models under hashed names: the Hugging Face cache and Ollama's blobs."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

from engine.lazy_dataclass import dataclass
from engine.weights.gguf.ollama import (
    MODEL_LAYER,
    blobs_of,
    manifest_title,
    manifests,
    pulled_name,
    sorted_entries,
)
from engine.words import _

__all__ = ["StoredModel", "hugging_face_models", "model_at", "ollama_models", "title_of"]


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model in a store; `trouble` says in one sentence why it cannot be opened, if so."""

    path: Path
    title: str
    trouble: str = ""


def hugging_face_models(cache: Path, stop: threading.Event) -> Iterator[StoredModel]:
    """One snapshot folder of each cached repository: that of refs/main, else the newest.

    Layout: https://huggingface.co/docs/huggingface_hub/guides/manage-cache
    (models--OWNER--NAME/snapshots/REVISION).
    """
    for repository in sorted_entries(cache):
        if stop.is_set():
            return
        if not repository.name.startswith("models--"):
            continue
        snapshot = _snapshot(repository)
        if snapshot is None:
            continue  # only the description of this repository is cached
        title = _repository(repository.name)
        broken = _broken_link(snapshot)
        trouble = (
            _(
                "The download of {title} is incomplete ({broken} is missing); download it again.",
                title=title,
                broken=broken,
            )
            if broken
            else ""
        )
        yield StoredModel(snapshot, title.rpartition("/")[2], trouble)


def _repository(name: str) -> str:
    return name.removeprefix("models--").replace("--", "/")


def _snapshot(repository: Path) -> Path | None:
    snapshots = repository / "snapshots"
    try:
        revision = (repository / "refs" / "main").read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        revision = ""
    if re.fullmatch(r"[0-9A-Za-z]{1,64}", revision) and (snapshots / revision).is_dir():
        return snapshots / revision
    folders = [path for path in sorted_entries(snapshots) if path.is_dir()]
    return max(folders, key=_changed, default=None)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _broken_link(folder: Path) -> str:
    """The name of a weight file whose blob is missing; "" if there is none."""
    for path in sorted_entries(folder):
        if path.suffix in (".safetensors", ".gguf") and path.is_symlink() and not path.exists():
            return path.name
    return ""


def ollama_models(folder: Path, stop: threading.Event) -> Iterator[StoredModel]:
    """The models in Ollama's folder: each manifest names a blob, which is a GGUF file."""
    for manifest in manifests(folder):
        if stop.is_set():
            return
        title = manifest_title(manifest)
        try:
            digests = blobs_of(manifest, MODEL_LAYER)
        except (OSError, ValueError) as error:
            yield StoredModel(
                manifest,
                title,
                _(
                    "Ollama's description of {title} cannot be read ({error}); pull it again with Ollama.",
                    title=title,
                    error=error,
                ),
            )
            continue
        if not digests:
            continue  # a cloud model has no weights here
        blob = folder / "blobs" / digests[0]
        trouble = (
            ""
            if blob.is_file()
            else _("Ollama's file for {title} is missing; pull it again with Ollama.", title=title)
        )
        yield StoredModel(blob, title, trouble)


def model_at(path: Path) -> Path:
    """What to open for a path that people copy from a store: of a cached repository its snapshot, of one of
    Ollama's manifests its blob, of a JSON file the folder that it lies in; any other path as it is.
    """
    try:
        found = path.expanduser()
        repository = found.parent if found.name == "snapshots" else found
        if repository.name.startswith("models--") and found.is_dir():
            return _snapshot(repository) or path
        if found.suffix == ".json" and found.is_file():
            return found.parent
        if "manifests" in found.parts and found.suffix != ".gguf" and found.is_file():
            store = next(folder for folder in found.parents if folder.name == "manifests").parent
            blobs = (store / "blobs" / name for name in blobs_of(found, MODEL_LAYER)[:1])
            return next((blob for blob in blobs if blob.is_file()), path)
    except (OSError, RuntimeError, ValueError):  # opening it says what is wrong
        pass
    return path


def title_of(path: Path) -> str:
    """The name of a model in one of these stores, by its path; "" if it is elsewhere."""
    if name := pulled_name(path):
        return name
    if path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--"):
        return _repository(path.parent.parent.name).rpartition("/")[2]
    return ""
