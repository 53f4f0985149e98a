"""What an architecture is: its names, how to read its headers, the names of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

from engine.lazy_dataclass import dataclass
from engine.models.building import decoder
from engine.models.building.source import WeightSource
from engine.models.config import ModelConfig
from engine.models.headers.keys import Keys
from engine.models.layers.whole import Parts
from engine.models.names import TensorNames
from engine.tensors import RawTensor


@dataclass(frozen=True, slots=True)
class Architecture:
    """How to load the models of one architecture, from Hugging Face folders and from GGUF files."""

    gguf: tuple[str, ...]
    """Values of general.architecture in GGUF files; empty: there are none."""
    hf: tuple[str, ...]
    """Class names in config.json; empty: there are none."""
    from_hf: Callable[[Keys], ModelConfig] | None
    """Reads config.json; None where there are no folders."""
    from_gguf: Callable[[Keys, Mapping[str, RawTensor]], ModelConfig] | None
    """Reads the metadata (keys under the architecture's prefix) and the tensor table."""
    hf_names: TensorNames
    gguf_names: TensorNames | None
    prefixes: tuple[str, ...] = ("",)
    """Tried before the names of a folder until the embedding or the last norm is found, as when the text
    model is part of one with vision; see `TensorNames.under`.
    """
    interleaved_rows: bool = False
    """Whether GGUF files have the rows of queries and keys in the order of interleaved rope, where folders
    have them in halves.
    """
    gguf_scaled: bool = False
    """Whether the weights of GGUF files hold multipliers that folders have apart, so that adapters, which are
    made for folders, do not fit.
    """
    gguf_tiled: bool = False
    """Whether GGUF files have the value heads of delta nets in the order of all key heads again and again."""
    gguf_of: Architecture | None = None
    """The architecture that GGUF files of these models name, where it is not this one."""
    adapt: Callable[[TensorNames, Mapping[str, RawTensor]], TensorNames] = lambda names, tensors: names
    """Changes the names to suit what a file holds."""

    completed: Callable[[ModelConfig, Mapping[str, RawTensor]], ModelConfig] = lambda config, tensors: config
    """Adds to what config.json says what only tensors do. Raises `BadCheckpoint`."""

    untied: bool = False
    """Whether a head in the file counts whatever config.json says of tied tables."""

    layers: decoder.Layers | None = None
    """Builds the layers where they are no row of blocks."""

    def names(self, format: str, tensors: Mapping[str, RawTensor]) -> TensorNames:
        """The names of the tensors in a checkpoint of this `format`."""
        if format == "gguf":
            assert self.gguf_names is not None
            return self.adapt(self.gguf_names, tensors)
        tried = [self.hf_names.under(prefix) for prefix in (*self.prefixes, "-")]
        # A tied folder may have the head in place of the embedding.
        for name in ("embed", "norm"):
            for names in tried:
                if getattr(names, name) + ".weight" in tensors:
                    return self.adapt(names, tensors)
        return self.adapt(self.hf_names.under(self.prefixes[0]), tensors)

    def build(
        self, source: WeightSource, config: ModelConfig, names: TensorNames
    ) -> Generator[int, None, Parts]:
        """Build the decoder; yields the number of finished layers after each layer."""
        return decoder.build(source, config, names, self.layers)
