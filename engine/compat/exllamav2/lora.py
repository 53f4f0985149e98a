"""`ExLlamaV2Lora`: a LoRA adapter for the `loras` argument of the generators."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from engine.compat.exllamav2.attributes import Declared
from engine.compat.exllamav2.cache import CachedModel
from engine.weights.lora_adapter import open_adapter


class ExLlamaV2Lora(Declared):
    """An adapter's folder and scaling; a generator reads the weights when it first uses them."""

    missing: ClassVar[Any] = dict.fromkeys(
        ("config", "model", "lora_config_path", "lora_path", "lora_r", "lora_alpha", "target_modules",
         "bias_ignored", "embed_tokens", "lm_head", "tensors"),
        "the adapter's files have it, in `folder`",
    )  # fmt: skip
    folder: Path
    lora_scaling: float

    def __init__(
        self,
        model: CachedModel,
        lora_config_path: str | Path,
        lora_path: str | Path,
        lora_scaling: float = 1.0,
    ) -> None:
        """Both files are in one folder, as PEFT saves them. Raises what `open_adapter` raises."""
        self.folder = Path(lora_config_path).parent
        self.lora_scaling = float(lora_scaling)
        open_adapter(self.folder)

    @classmethod
    def from_directory(
        cls, model: CachedModel, directory: str | Path, lora_scaling: float = 1.0
    ) -> ExLlamaV2Lora:
        """The adapter in `directory`."""
        folder = Path(directory)
        return cls(model, folder / "adapter_config.json", folder / "adapter_model.safetensors", lora_scaling)

    def unload(self) -> None:
        """Does nothing: a generator releases an adapter when it switches to others."""


def adapters_of(loras: Any) -> tuple[tuple[str, float], ...]:
    """(folder, scaling) of one adapter, several, or None. Raises ValueError for anything else."""
    several: Sequence[Any] = () if loras is None else loras if isinstance(loras, list | tuple) else (loras,)
    wrong = next((lora for lora in several if not isinstance(lora, ExLlamaV2Lora)), None)
    if wrong is not None:
        raise ValueError(f"loras must be ExLlamaV2Lora objects, not {type(wrong).__name__}")
    return tuple((str(lora.folder), lora.lora_scaling) for lora in several)
