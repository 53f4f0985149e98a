"""What a hub says about models, as frozen data: models, their files, and the choices for a download."""

from __future__ import annotations

from engine.lazy_dataclass import dataclass
from engine.printable import one_line


@dataclass(frozen=True, slots=True)
class HubModel:
    """A repository of the hub. A field is "" or 0 if the hub does not say."""

    id: str
    """"author/name"; some old ones have no author."""
    author: str
    downloads: int = 0
    likes: int = 0
    updated: str = ""
    """ISO 8601."""
    licence: str = ""
    """As the model card states it."""
    gated: bool = False
    """Whether its terms must first be accepted on its page."""
    tags: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    """Those of "gguf", "safetensors" and, if it has no safetensors, "pytorch" that it has."""
    architecture: str = ""
    parameters: int = 0
    quantisation: str = ""
    """`quant_method` of its config, such as "gptq"."""
    base: str = ""
    """The model that it was made from or for, as the model card states it."""
    drafter: str = ""
    """"EAGLE-3" or "DFlash", if it is a drafter, which drafts for its `base` and writes no text alone."""

    def __post_init__(self) -> None:
        for name in ("id", "author", "updated", "licence", "architecture", "quantisation", "base"):
            object.__setattr__(self, name, one_line(getattr(self, name)))
        object.__setattr__(self, "tags", tuple(map(one_line, self.tags)))


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository, with its hash in hex digits if the hub states one."""

    name: str
    """Its path in the repository, with "/"."""
    size: int
    """Bytes; -1 if unknown."""
    sha256: str = ""
    """The hash of the content; stated for large files."""
    git_sha1: str = ""
    """The hash of the git blob: "blob", a space, the size, a zero byte, the content."""


@dataclass(frozen=True, slots=True)
class HubFiles:
    """All files of a repository at one commit; `revision` is its hash, so the files cannot change."""

    model: HubModel
    revision: str
    files: tuple[HubFile, ...]


@dataclass(frozen=True, slots=True)
class HubChoice:
    """A download: one GGUF quantisation with all its parts and a vision encoder, or safetensors, or else
    PyTorch's own files, with config and tokenizer.
    """

    model_id: str
    revision: str
    title: str
    """A short name: "Q4_K_M", "Safetensors", "PyTorch"."""
    format: str
    """"gguf", "safetensors" or "pytorch"."""
    files: tuple[HubFile, ...]
    bytes: int
    """The size of the download."""
    memory_bytes: int = 0
    """An estimate of the memory needed to run it."""
    fits_memory: bool = True
    """At the time of the listing, as is `fits_disk`."""
    fits_disk: bool = True
    recommended: bool = False
    """Whether it is the best choice of its repository that fits."""
    vision_bytes: int = 0
    """Of `bytes`, those of the vision encoder of a GGUF model, which is the last file; 0 without one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", one_line(self.title))

    @property
    def fits(self) -> bool:
        """Whether it fits into memory and on the disk."""
        return self.fits_memory and self.fits_disk


@dataclass(frozen=True, slots=True)
class UnfinishedDownload:
    """A paused or interrupted download: `done` of `choice.bytes` bytes are on disk."""

    choice: HubChoice
    done: int
