"""LoRA adapters."""

from __future__ import annotations

from engine.fields import Settings, setting
from engine.lazy_dataclass import dataclass


@dataclass(frozen=True)
class AdapterSettings(Settings):
    """LoRA adapters on the model. They can be changed at any time, without loading the model again."""

    adapters: tuple[str, ...] = setting(
        (),
        "LoRA adapters",
        "LoRA adapters, one per line: folders (PEFT) or GGUF files. To set a strength other than 1, add "
        "an equals sign and a number, for example: /models/pirate = 0.8.",
        multiline=True,
        folders=True,
    )
