"""What a hub tells of models, as frozen data: models found, their files, and the choices people take."""

from __future__ import annotations

from dataclasses import dataclass

from engine.printable import one_line


@dataclass(frozen=True, slots=True)
class HubModel:
    """A repository of the hub.

    `id` is "author/name" (old ones have no author); `updated` is an ISO 8601 time or ""; `licence` as the
    card states it or "";
    `gated`: its terms must be accepted on the hub's page first; `formats` are those of "gguf" and
    "safetensors" that its tags name; `architecture`, `parameters` and `quantisation` (`quant_method` of the
    config, as "gptq") are "" and 0 where the hub does not tell.
    """

    id: str
    author: str
    downloads: int = 0
    likes: int = 0
    updated: str = ""
    licence: str = ""
    gated: bool = False
    tags: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    architecture: str = ""
    parameters: int = 0
    quantisation: str = ""

    def __post_init__(self) -> None:
        for name in ("id", "author", "updated", "licence", "architecture", "quantisation"):
            object.__setattr__(self, name, one_line(getattr(self, name)))
        object.__setattr__(self, "tags", tuple(map(one_line, self.tags)))


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository: its path there with "/", size in bytes, and hex digests, "" where the hub
    states none.

    `sha256` is of the content (large files); `git_sha1` of git's blob: "blob", a space, the size, a zero
    byte, the content.
    """

    name: str
    size: int
    sha256: str = ""
    git_sha1: str = ""


@dataclass(frozen=True, slots=True)
class HubFiles:
    """All files of a repository at one commit; `revision` is that commit's hash, so what is fetched later
    is the same.
    """

    model: HubModel
    revision: str
    files: tuple[HubFile, ...]


@dataclass(frozen=True, slots=True)
class HubChoice:
    """What people take of a repository: one GGUF quantisation with all its parts, or the safetensors with
    config and tokenizer.

    `format` is "gguf" or "safetensors"; `title` a short name ("Q4_K_M", "Safetensors"); `bytes` what is
    fetched; `memory_bytes` roughly what running it takes. `fits_memory` and `fits_disk` hold for the moment
    the choice was made; at most one choice of a repository is `recommended`: the best that fits.
    """

    model_id: str
    revision: str
    title: str
    format: str
    files: tuple[HubFile, ...]
    bytes: int
    memory_bytes: int = 0
    fits_memory: bool = True
    fits_disk: bool = True
    recommended: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", one_line(self.title))

    @property
    def fits(self) -> bool:
        """Whether it fits into free memory and on the disk."""
        return self.fits_memory and self.fits_disk


@dataclass(frozen=True, slots=True)
class UnfinishedDownload:
    """A download that was paused or broken off: `done` of `choice.bytes` bytes are there."""

    choice: HubChoice
    done: int
