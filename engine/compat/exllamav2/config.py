"""`ExLlamaV2Config`: where a model is, how long its sequences may be, and how its positions are scaled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from engine.compat.exllamav2.attributes import Declared, UnknownAttribute
from engine.compat.exllamav2.config_facts import FACTS, MISSING, FileScaling, facts_of, file_scaling
from engine.core import ModelInfo
from engine.errors import BadSetting
from engine.settings import LoadSettings

if TYPE_CHECKING:
    from engine.models.config import ModelConfig
    from engine.models.headers.overrides import Overrides


class ExLlamaV2Config(Declared):
    """The model in `model_dir`, a folder or a GGUF file. The constructor raises what `describe` raises.

    Positions: `scale_pos_emb` divides them (after `prepare` it is the file's linear factor),
    `scale_alpha_value` raises rope's base as NTK-aware scaling does, and with `alt_rope_method` "yarn"
    `yarn_rope_factor` stretches `yarn_rope_original_max_position_embeddings` tokens. They count when the
    model is loaded, and lengthen its context by as much; `max_seq_len` is not changed by them.

    `max_input_len` bounds the tokens of a pass that reads a prompt, `max_output_len` the rows of logits of a
    `forward`. `num_experts_per_token` (None: as in the file) and `load_in_q4` count when the model is loaded;
    `load_settings` are the engine's own settings for that.

    Of no effect on any result, so that every value is right: `no_flash_attn`, `no_xformers`, `no_sdpa` and
    `fasttensors` (the engine contains none of them), `no_graphs` (its passes are the same with and without),
    `max_attention_size` or, as some programs write it, `max_attn_size` or `max_attention_len`, `max_dq_size`
    and `max_batch_size` (it has no buffers of such sizes), and in a model without experts
    `num_experts_per_token`. What the files say can be read but not set.
    """

    missing: ClassVar[Mapping[str, str]] = MISSING
    model_dir: str | Path | None
    max_seq_len: int
    max_batch_size: int
    max_input_len: int
    max_attention_size: int
    max_attn_size: int
    max_attention_len: int
    max_output_len: int | None
    scale_pos_emb: float
    scale_alpha_value: float
    alt_rope_method: str | None
    yarn_rope_factor: float | None
    yarn_rope_original_max_position_embeddings: int | None
    num_experts_per_token: int | None
    no_flash_attn: bool
    no_xformers: bool
    no_sdpa: bool
    no_graphs: bool
    fasttensors: bool
    load_in_q4: bool
    max_dq_size: int
    load_settings: LoadSettings
    info: ModelInfo | None

    def __init__(self, model_dir: str | Path | None = None) -> None:
        self.model_dir = model_dir
        self.max_seq_len = 0
        self.max_batch_size = 1
        self.max_input_len, self.max_attention_size, self.max_output_len = 2048, 2048**2, None
        self.scale_pos_emb = self.scale_alpha_value = 1.0
        self.alt_rope_method = None
        self.yarn_rope_factor = self.yarn_rope_original_max_position_embeddings = None
        self.num_experts_per_token = None
        self.no_flash_attn = self.no_xformers = self.no_sdpa = self.no_graphs = False
        self.fasttensors = self.load_in_q4 = False
        self.max_dq_size = 512 * 1024**2
        self.load_settings = LoadSettings()
        self.info = None
        self._facts: dict[str, Any] = {}
        self._scaling = FileScaling()
        if model_dir is not None:
            self.prepare()

    def prepare(self, no_tensors: bool = False) -> None:
        """Read the headers and set the attributes from them. Raises what `describe` raises.

        `no_tensors` makes no difference: the tensors' headers are always checked.
        """
        from engine.models.load import read_config
        from engine.vision.describe import describe_checkpoint
        from engine.weights.checkpoint import open_checkpoint

        if self.model_dir is None:
            raise ValueError("model_dir must be set before prepare()")
        checkpoint = open_checkpoint(Path(self.model_dir))
        try:
            self.info = describe_checkpoint(checkpoint)
            config = read_config(checkpoint)
            self._scaling = file_scaling(checkpoint)
        finally:
            checkpoint.close()
        own = self._scaling
        self.max_seq_len = self.max_seq_len or self.info.context_length
        self.scale_pos_emb, self.alt_rope_method = own.linear, own.method or None
        if own.method == "yarn":
            self.yarn_rope_factor = own.factor
            self.yarn_rope_original_max_position_embeddings = own.original
        self.num_experts_per_token = None if config.experts is None else config.experts.used
        self._facts = facts_of(self.info, config)

    def set_low_mem(self) -> None:
        """Read prompts in passes of at most 1024 tokens."""
        self.max_input_len, self.max_attention_size = 1024, 1024**2
        self.max_output_len = None if self.max_output_len is None else min(self.max_output_len, 1024)

    def arch_compat_overrides(self, quiet: bool = False, warn_only: bool = False) -> None:
        """Does nothing: no model needs overrides here."""

    def overrides(self, config: ModelConfig) -> Overrides:
        """What these attributes change in the model with this configuration, which the files give.

        Raises `BadSetting` for what this model does not have, and for values out of range.
        """
        from engine.models.headers.overrides import Overrides

        used = 0 if config.experts is None else config.experts.used
        asked = self.num_experts_per_token or used
        if config.experts is None:
            asked = used
        elif asked != used and not 1 <= asked <= config.experts.count:
            raise BadSetting(
                f"num_experts_per_token is {asked}, but the number of experts is {config.experts.count}."
            )
        yarn, original = self._new_yarn(config)
        scale, alpha = float(self.scale_pos_emb or 1.0), float(self.scale_alpha_value or 1.0)
        changes = Overrides(
            stretch=scale if yarn else scale / self._scaling.linear, alpha=alpha, yarn=yarn,
            yarn_original=original, experts=0 if asked == used else asked,
        )  # fmt: skip
        if config.rope is None and changes != Overrides(experts=changes.experts):
            raise BadSetting("The model has a table of positions instead of rope; they cannot be scaled.")
        return changes

    def _new_yarn(self, config: ModelConfig) -> tuple[float, int]:
        """Factor and original context of a yarn that is not the file's own; (0, 0) without one."""
        method, own = self.alt_rope_method, self._scaling
        if method not in (None, own.method, "yarn"):
            raise BadSetting(f"alt_rope_method is {method!r}, but only 'yarn' can be set.")
        if method is None and own.method:
            raise BadSetting(f"alt_rope_method is {own.method!r} in the model's files and cannot be removed.")
        factor = float(self.yarn_rope_factor or 0.0)
        original = self.yarn_rope_original_max_position_embeddings or config.context_length
        same = own.method == "yarn" and (factor, original) == (own.factor, own.original)
        # As in ExLlamaV2, yarn counts only for sequences that are longer than the original context.
        if method != "yarn" or not factor or same or self.max_seq_len <= original:
            return 0.0, 0
        return factor, original

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            facts = self.__dict__.get("_facts", {})
            return facts[name] if name in facts else super().__getattr__(name)

    @classmethod
    def _may_be_set(cls, name: str) -> bool:
        if name in FACTS:
            raise UnknownAttribute(
                f"{cls.__name__}.{name} is read from the model's files and cannot be set; do not change it."
            )
        return super()._may_be_set(name)
