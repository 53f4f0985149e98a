"""Recommended models: a list that comes with the program, from the weakest to the strongest, each with the
numbers of its headers that tell whether it fits; its files can be asked for again.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import resources
from engine.core import ModelInfo, WorkSpace
from engine.hub.catalogue.choose import WORK_BYTES, vision_encoder
from engine.hub.catalogue.models import HubChoice, HubFile
from engine.hub.catalogue.search import model_files
from engine.lazy_dataclass import dataclass
from engine.platform.whole_file import write_whole

RENEWED = "recommended_models.json"
"""The file, in the folder of models, with what the hub said when it was asked last."""


@dataclass(frozen=True, slots=True)
class Pick:
    """A recommended model: the `files` of `repo` at `revision`, a commit.

    `active` is the part of the weights that one token uses. The other numbers are those of its headers.
    """

    name: str
    maker: str
    repo: str
    revision: str
    quantisation: str
    licence: str
    about: str
    """What it is good for: the name of a sentence that the window has."""
    layers: int
    kv_heads: int
    head_dim: int
    context: int
    vocabulary: int
    active: float
    files: tuple[HubFile, ...]
    encoder: HubFile | None = None
    """Its vision encoder, as the hub has said since the list was shipped."""

    @property
    def bytes(self) -> int:
        """The size of its weights."""
        return sum(file.size for file in self.files)

    @property
    def choice(self) -> HubChoice:
        """What is to be downloaded."""
        own = () if self.encoder is None else (self.encoder,)
        size = sum(file.size for file in own)
        return HubChoice(
            self.repo, self.revision, self.quantisation, "gguf", (*self.files, *own), self.bytes + size,
            vision_bytes=size,
        )  # fmt: skip

    @property
    def info(self) -> ModelInfo:
        """Enough of its headers for `engine.models.memory.fit.fit`; the work space is an estimate. The path
        is only its name.
        """
        return ModelInfo(
            path=f"{self.repo}/{self.files[0].name}",
            name=self.name,
            architecture="",
            format="gguf",
            parameters=0,
            bits_per_weight=0.0,
            weights_bytes=self.bytes,
            layers=self.layers,
            context_length=self.context,
            vocab_size=self.vocabulary,
            kv_bytes_per_token=4 * self.layers * self.kv_heads * self.head_dim,
            stop_token_ids=(),
            has_chat_template=True,
            kv_shapes=((self.kv_heads, self.head_dim),) * self.layers,
            read_bytes=int(self.bytes * self.active),
            work=WorkSpace(fixed=WORK_BYTES),
        )


@dataclass(frozen=True, slots=True)
class Picks:
    """The list, weakest first, and the day (ISO 8601) on which the hub was asked about it."""

    models: tuple[Pick, ...]
    updated: str


def load_picks(folder: Path | None = None) -> Picks:
    """The list that comes with the program, with what was renewed and kept in `folder`; nothing is asked."""
    shipped = json.loads(resources.text("picks.json"))
    picks = Picks(tuple(_pick(each) for each in shipped["models"]), shipped["updated"])
    kept = _kept(folder / RENEWED) if folder is not None else {}
    if str(kept.get("updated", "")) <= picks.updated:
        return picks
    try:
        models = tuple(_with_files(pick, kept["files"].get(pick.repo)) for pick in picks.models)
        return Picks(models, str(kept["updated"]))
    except (KeyError, TypeError, ValueError, AttributeError):  # written by another version, or damaged
        return picks


def renew_picks(folder: Path, *, stop: threading.Event | None = None) -> Picks:
    """Ask the hub for the present sizes, hashes and commits of all models, and keep them in `folder`.

    A model whose files were renamed or removed keeps those of its commit. Blocks as `model_files` does.
    Raises `DownloadError`, then nothing is changed.
    """
    picks = load_picks(folder)
    models = tuple(_renewed(pick, stop) for pick in picks.models)
    today = _today()
    files = {
        pick.repo: {
            "revision": pick.revision,
            "files": [_plain(file) for file in pick.files],
            "encoder": None if pick.encoder is None else _plain(pick.encoder),
        }
        for pick in models
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / RENEWED, json.dumps({"updated": today, "files": files}, indent=1) + "\n")
    return Picks(models, today)


def _today() -> str:
    return datetime.date.today().isoformat()


def _renewed(pick: Pick, stop: threading.Event | None) -> Pick:
    listing = model_files(pick.repo, stop=stop)
    now = {file.name: file for file in listing.files}
    names = [file.name for file in pick.files]
    if not all(name in now and now[name].size > 0 for name in names):
        return pick
    files = tuple(now[name] for name in names)
    return dataclasses.replace(
        pick, revision=listing.revision, files=files, encoder=vision_encoder(listing.files)
    )


def _plain(file: HubFile) -> dict[str, Any]:
    return {"name": file.name, "size": file.size, "sha256": file.sha256}


def _pick(values: dict[str, Any]) -> Pick:
    return Pick(**{**values, "files": _files(values["files"])})


def _files(values: Sequence[dict[str, Any]]) -> tuple[HubFile, ...]:
    return tuple(HubFile(str(each["name"]), int(each["size"]), str(each["sha256"])) for each in values)


def _with_files(pick: Pick, kept: dict[str, Any] | None) -> Pick:
    """The pick with kept files, if they are the same ones by name."""
    if kept is None:
        return pick
    files = _files(kept["files"])
    if [file.name for file in files] != [file.name for file in pick.files]:
        return pick
    encoder = _files([kept["encoder"]])[0] if kept.get("encoder") else None
    return dataclasses.replace(pick, revision=str(kept["revision"]), files=files, encoder=encoder)


def _kept(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}
