"""`ExLlamaV2Sampler`: the namespace of `Settings`."""

from __future__ import annotations

from typing import Any, NoReturn

from engine.compat.exllamav2.settings import Settings as SamplerSettings
from engine.errors import NotSupportedYet


class ExLlamaV2Sampler:
    """The namespace of `Settings`."""

    Settings = SamplerSettings

    @staticmethod
    def sample(*_arguments: Any, **_more: Any) -> NoReturn:
        """Raises `NotSupportedYet`: the generators sample."""
        raise NotSupportedYet(
            "`ExLlamaV2Sampler.sample` is not supported here: a sampler belongs to a sequence; use a "
            "generator, or draw from the logits of `forward` with torch."
        )
