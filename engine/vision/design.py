"""What describes a vision encoder before its weights are loaded, and the table's entry of a family."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Protocol

from engine.backends.base import Backend
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource
from engine.models.headers.keys import Keys
from engine.tensors import RawTensor
from engine.vision.base import Piece, VisionEncoder, VisionSpec
from engine.vision.passes import Prepared

Tensors = Mapping[str, RawTensor]


class OpenedEncoder(VisionEncoder, Prepared, Protocol):
    """An encoder whose weights are loaded."""


class Design(Protocol):
    """A vision encoder as the headers of its files describe it. `width` is that of its rows, which is the
    language model's; `layers` counts what `build` yields. Of `spec`, `nbytes` is not known yet.
    """

    @property
    def spec(self) -> VisionSpec: ...
    @property
    def width(self) -> int: ...
    @property
    def layers(self) -> int: ...

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `VisionEncoder.layout`."""
        ...

    def build(self, source: WeightSource) -> Generator[int, None, Any]:
        """Build its parts; yields the number of finished layers after each. Raises `BadCheckpoint`."""
        ...

    def encoder(self, spec: VisionSpec, parts: Any, backend: Backend) -> OpenedEncoder:
        """The encoder of what `build` returned, with the weights on `backend`."""
        ...


@dataclass(frozen=True, slots=True)
class Family:
    """How to open the vision encoders of one family.

    `hf` are classes of whole models in config.json, and with `towers` only where the `model_type` of its
    vision_config is one of these, or absent. `gguf` are values of clip.projector_type. `from_hf` reads
    config.json and the image processor's settings, `from_gguf` the metadata of an mmproj file and of the
    model beside it; both raise `BadCheckpoint` and `UnsupportedModel`.
    """

    name: str
    hf: tuple[str, ...]
    gguf: tuple[str, ...]
    from_hf: Callable[[Keys, Keys, Tensors], Design] | None
    from_gguf: Callable[[Keys, Tensors], Design] | None
    towers: tuple[str, ...] = ()
