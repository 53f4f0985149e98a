"""A checkpoint with some of its headers changed: how positions are scaled, and how many experts a token uses.

The changes are entries among the headers, so that everything that reads these (the configuration, the
description, the fit into memory) sees the same model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.errors import BadSetting
from engine.lazy_dataclass import dataclass
from engine.models.headers.rope import ALPHA, STRETCH
from engine.tensors import RawTensor
from engine.weights.checkpoint import Checkpoint
from engine.words import _

_HF_USED = ("num_experts_per_tok", "experts_per_token")
_LEAST, _MOST = 1e-3, 1e6


@dataclass(frozen=True, slots=True)
class Overrides:
    """What to change. The defaults change nothing.

    `stretch` divides all positions once more than the file does (linear scaling, arXiv 2306.15595); `alpha`
    multiplies rope's base by alpha^(dim / (dim - 2)) ("NTK-aware" scaling). Both make the context longer, by
    their product. `yarn` is the factor of yarn (arXiv 2309.00071) over a context of `yarn_original` tokens,
    in the place of the file's own scaling; 0: none. `experts`: how many of its experts each token uses; 0: as
    the file says. Tables of layers with a sliding window stay as they are.
    """

    stretch: float = 1.0
    alpha: float = 1.0
    yarn: float = 0.0
    yarn_original: int = 0
    experts: int = 0

    def __post_init__(self) -> None:
        for name in ("stretch", "alpha"):
            value = getattr(self, name)
            if not _LEAST <= value <= _MOST:
                raise BadSetting(
                    _(
                        "The {name} of positions is {value!r}, but it must be a number from "
                        "{least:g} to {most:g}.",
                        name=name,
                        value=value,
                        least=_LEAST,
                        most=_MOST,
                    )
                )
        if self.yarn and not (1.0 <= self.yarn <= _MOST and self.yarn_original >= 1):
            raise BadSetting(
                _(
                    "The yarn factor is {yarn!r} over {yarn_original} tokens, but it must be a "
                    "number from 1 to {most:g} over a context of at least 1 token.",
                    yarn=self.yarn,
                    yarn_original=self.yarn_original,
                    most=_MOST,
                )
            )

    def on(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint with these changes.

        Raises `BadSetting` for experts of a model without experts, and for yarn on a model with several
        tables of rope settings.
        """
        if self == Overrides():
            return checkpoint
        metadata = checkpoint.metadata
        if checkpoint.format == "gguf":
            return _Changed(checkpoint, self._gguf(metadata))
        return _Changed(checkpoint, {**metadata, "config": self._config(metadata["config"])})

    def _gguf(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        prefix = f"{metadata.get('general.architecture')}."
        changed = {**metadata, prefix + STRETCH: self.stretch, prefix + ALPHA: self.alpha}
        if self.yarn:
            changed |= {
                prefix + "rope.scaling.type": "yarn", prefix + "rope.scaling.factor": self.yarn,
                prefix + "rope.scaling.original_context_length": self.yarn_original,
                prefix + "context_length": max(
                    int(self.yarn * self.yarn_original), metadata.get(prefix + "context_length") or 0
                ),
            }  # fmt: skip
            changed.pop(prefix + "rope.scale_linear", None)
        if self.experts:
            _need_experts(prefix + "expert_used_count" in metadata)
            changed[prefix + "expert_used_count"] = self.experts
        return changed

    def _config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        changed = {**config, STRETCH: self.stretch, ALPHA: self.alpha}
        inner = dict(config["text_config"]) if isinstance(config.get("text_config"), Mapping) else None
        places = [changed] if inner is None else [changed, inner]
        if self.yarn:
            table: Mapping[str, Any] = next(
                (place["rope_parameters"] for place in places if place.get("rope_parameters")), {}
            )
            if any(isinstance(value, Mapping) for value in table.values()):
                raise BadSetting(
                    _(
                        "The model has several tables of rope settings, which yarn cannot replace; use "
                        "linear or NTK scaling."
                    )
                )
            yarn = {
                "rope_type": "yarn", "factor": self.yarn,
                "original_max_position_embeddings": self.yarn_original,
            }  # fmt: skip
            if "rope_theta" in table:
                yarn["rope_theta"] = table["rope_theta"]
            for place in places:
                place.pop("rope_parameters", None)
                place["rope_scaling"] = yarn
        if self.experts:
            _need_experts(any(name in place for place in places for name in _HF_USED))
            for place in places:
                place.update({name: self.experts for name in _HF_USED if name in place})
        return changed if inner is None else changed | {"text_config": inner}


def _need_experts(there: bool) -> None:
    if not there:
        raise BadSetting(_("The model has no experts, so their number per token cannot be set."))


@dataclass(frozen=True, slots=True)
class _Changed:
    """An opened checkpoint with other metadata."""

    checkpoint: Checkpoint
    metadata: Mapping[str, Any]

    @property
    def path(self) -> Path:
        return self.checkpoint.path

    @property
    def files(self) -> Sequence[Path]:
        return self.checkpoint.files

    @property
    def format(self) -> str:
        return self.checkpoint.format

    @property
    def tensors(self) -> Mapping[str, RawTensor]:
        return self.checkpoint.tensors

    def close(self) -> None:
        self.checkpoint.close()
