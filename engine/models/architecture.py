"""What a model architecture is: its names, how its headers are read, what its tensors are called."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

from engine.backends.base import RawTensor
from engine.models import decoder
from engine.models.config import ModelConfig
from engine.models.keys import Keys
from engine.models.layers import Parts
from engine.models.names import TensorNames
from engine.models.source import WeightSource


@dataclass(frozen=True, slots=True)
class Architecture:
    """`gguf` are values of general.architecture, `hf` class names in config.json; an empty tuple: not in such
    files.

    `from_hf` reads config.json, `from_gguf` the metadata (keys under the architecture's prefix) and the
    tensor table. `hf_names` and `gguf_names` are the same slots by name; `prefixes` are put before each
    folder's names in turn until the embedding is found, as where a text model lies inside one that sees
    pictures too. `turned_rows`: the GGUF file has queries' and keys' rows in the order of interleaved rotary
    pairs, and the folder in halves. `adapt` changes the names by what a file holds.
    """

    gguf: tuple[str, ...]
    hf: tuple[str, ...]
    from_hf: Callable[[Keys], ModelConfig]
    from_gguf: Callable[[Keys, Mapping[str, RawTensor]], ModelConfig] | None
    hf_names: TensorNames
    gguf_names: TensorNames | None
    prefixes: tuple[str, ...] = ("",)
    turned_rows: bool = False
    adapt: Callable[[TensorNames, Mapping[str, RawTensor]], TensorNames] = lambda names, tensors: names

    def names(self, format: str, tensors: Mapping[str, RawTensor]) -> TensorNames:
        """The names that a checkpoint's tensors have."""
        if format == "gguf":
            assert self.gguf_names is not None
            return self.adapt(self.gguf_names, tensors)
        for prefix in self.prefixes:
            names = self.hf_names.under(prefix)
            if names.embed + ".weight" in tensors:
                return self.adapt(names, tensors)
        return self.hf_names.under(self.prefixes[0])

    def build(
        self, source: WeightSource, config: ModelConfig, names: TensorNames
    ) -> Generator[int, None, Parts]:
        """The parts list; yields the number of finished layers after each."""
        return decoder.build(source, config, names)
