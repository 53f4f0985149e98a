"""LoRA adapters."""

from __future__ import annotations

from dataclasses import dataclass

from engine.fields import Settings, setting


@dataclass(frozen=True)
class AdapterSettings(Settings):
    """LoRA adapters on the model. They can be changed at any time, without loading the model again."""

    adapters: tuple[str, ...] = setting(
        (),
        "LoRA adapters",
        "One a line: the folder of an adapter (PEFT), and after an equals sign its strength, if it is not 1; "
        "for example: /models/pirate = 0.8.",
        multiline=True,
        folders=True,
    )
