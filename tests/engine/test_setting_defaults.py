"""What every setting is where nobody has set it, and its range: replies that users know depend on these."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import BadSetting
from engine.fields import Kind, Settings, check_value, field_kinds
from engine.settings import (
    SAMPLER_STEP_NAMES,
    TEMPERATURE_LAST,
    AdapterSettings,
    CacheSettings,
    ConstraintSettings,
    GuidanceSettings,
    LoadSettings,
    OutputSettings,
    SamplerSettings,
    SpeculationSettings,
    StopSettings,
    ThinkingSettings,
)

DEFAULTS: dict[type[Settings], dict[str, Any]] = {
    SamplerSettings: {
        "temperature": (0.7, 0.0, 1000.0, 1.0), "top_k": (40, 0, 1 << 20, 0),
        "top_p": (0.95, 0.0, 1.0, 1.0), "min_p": (0.05, 0.0, 1.0, 0.0),
        "repetition_penalty": (1.0, 0.1, 1000.0, 1.0), "repetition_range": (-1, -1, 1 << 20, 0),
        "repetition_decay": (0, 0, 1 << 20, 0), "presence_penalty": (0.0, -1000.0, 1000.0, 0.0),
        "frequency_penalty": (0.0, -1000.0, 1000.0, 0.0), "dry_multiplier": (0.0, 0.0, 1000.0, 0.0),
        "dry_base": (1.75, 1.0, 1000.0, None), "dry_allowed_length": (2, 1, 1 << 20, None),
        "dry_range": (0, 0, 1 << 20, None), "dry_breakers": ("\\n", ":", '"', "*"),
        "min_temperature": (0.0, 0.0, 1000.0, 0.0), "max_temperature": (0.0, 0.0, 1000.0, 0.0),
        "temperature_exponent": (1.0, 0.1, 100.0, None), "smoothing_factor": (0.0, 0.0, 1000.0, 0.0),
        "skew": (0.0, -50.0, 50.0, 0.0), "top_n_sigma": (0.0, 0.0, 20.0, 0.0),
        "top_a": (0.0, 0.0, 1000.0, 0.0), "tail_free": (1.0, 0.0, 1.0, 1.0),
        "typical": (1.0, 0.0, 1.0, 1.0), "xtc_probability": (0.0, 0.0, 1.0, 0.0),
        "xtc_threshold": (0.1, 0.0, 0.5, None), "mirostat": False, "mirostat_tau": (5.0, 0.0, 1000.0, None),
        "mirostat_eta": (0.1, 0.0, 100.0, None), "adaptive_target": (0.0, 0.0, 1.0, 0.0),
        "adaptive_decay": (0.9, 0.0, 0.99, None), "seed": (None, 0, (1 << 63) - 1, None),
    },
    StopSettings: {
        "max_tokens": (2048, 0, 1 << 20, 0), "min_tokens": (0, 0, 1 << 20, 0), "stop_strings": (),
        "stop_regex": "", "stop_token_ids": ((), 0, None, None), "keep_stop": False,
        "time_limit": (0.0, 0.0, 86400.0, 0.0), "loop_window": (0, 0, 65536, 0),
        "loop_repeats": (4, 2, 1000, None), "when_full": "drop_oldest",
    },
    ConstraintSettings: {
        "format": "none", "pattern": "", "begin_with": "", "banned_strings": (), "ban_ignore_case": True,
        "logit_bias": (), "allowed_tokens": ((), 0, None, None), "banned_tokens": ((), 0, None, None),
        "heal": False,
    },
    GuidanceSettings: {
        "negative_prompt": "", "cfg_scale": (1.0, 0.0, 20.0, 1.0),
    },
    SpeculationSettings: {
        "method": "none", "draft_model": "", "draft_tokens": (5, 1, 7, None), "adaptive": True,
        "ngram_min": (1, 1, 5, None), "ngram_max": (5, 1, 5, None), "ngram_prompt": True,
    },
    OutputSettings: {
        "alternatives": (5, 0, 50, 0), "stream_interval": (1, 1, 100, None), "show_special": False,
    },
    ThinkingSettings: {
        "thinking": "auto",
    },
    AdapterSettings: {
        "adapters": (),
    },
    CacheSettings: {
        "context_length": (0, 0, 1 << 20, None), "dtype": "auto", "value_dtype": "same",
        "memory": (0, 0, 1 << 20, None), "keep_on_disk": False,
    },
    LoadSettings: {
        "backend": "auto", "gpus": "", "gpu_memory": (512, 0, 1 << 20, None), "threads": (0, 0, 256, None),
        "offload": False, "prompt_bits": "16", "picture_tokens": (0, 0, 16384, None),
        "quantise": "none", "quantise_head": "same",
        "chat_template": "",
    },
}  # fmt: skip
"""Of each setting its default; of numbers (default, lowest, highest, the value that does nothing)."""

CHOICES = {
    "when_full": "drop_oldest stop", "format": "none json json_schema regex grammar choices",
    "method": "none ngram model mtp", "thinking": "auto off on minimal low medium high xhigh max",
    "dtype": "auto fp32 fp16 fp8 q8 q6 q4", "value_dtype": "same fp32 fp16 fp8 q8 q4",
    "backend": "auto cpu cuda reference", "prompt_bits": "16 8", "quantise": "none q8 q6 q4",
    "quantise_head": "same none q8 q6 q4",
}  # fmt: skip
WORDS = {
    "repetition_range": ((-1, "all"),), "dry_range": ((0, "all"),), "context_length": ((0, "auto"),),
    "memory": ((0, "auto"),), "threads": ((0, "auto"),), "picture_tokens": ((0, "auto"),),
}  # fmt: skip
"""What is shown instead of a number."""


def kinds_of(cls: type[Settings]) -> list[tuple[str, Kind]]:
    return list(field_kinds(cls).items())  # type: ignore[arg-type]


@pytest.mark.parametrize("cls", DEFAULTS, ids=lambda cls: cls.__name__)
def test_defaults_and_ranges(cls: type[Settings]) -> None:
    found: dict[str, Any] = {}
    for name, kind in kinds_of(cls):
        value, info = getattr(cls(), name), kind.info
        found[name] = value if info.low is None else (value, info.low, info.high, info.neutral)
    found.pop("order", None)
    assert found == DEFAULTS[cls]


def test_choices_and_the_words_of_numbers() -> None:
    infos = {name: kind.info for cls in DEFAULTS for name, kind in kinds_of(cls) if name != "order"}
    choices = {name: " ".join(value for value, _label in info.choices) for name, info in infos.items()}
    assert {name: values for name, values in choices.items() if values} == CHOICES
    assert {name: info.words for name, info in infos.items() if info.words} == WORDS


@pytest.mark.parametrize(
    ("gpus", "fits"),
    [("", True), ("0", True), ("0,1", True), (" 1 , 0 ", True), ("15", True), ("a", False), ("0,", False),
     ("0 1", False), ("-1", False), ("100", False)],
)  # fmt: skip
def test_numbers_of_gpus(gpus: str, fits: bool) -> None:
    if fits:
        assert LoadSettings(gpus=gpus).gpus == gpus
        return
    with pytest.raises(BadSetting, match="separated by commas, such as 0 or 0,1"):
        LoadSettings(gpus=gpus)


def test_the_order_of_the_sampler_steps() -> None:
    names = [name for name, _label in SAMPLER_STEP_NAMES]
    assert SamplerSettings().order == tuple(names)
    assert names.index("temperature") < names.index("top_k") < names.index("top_p") < names.index("min_p")
    assert sorted(TEMPERATURE_LAST) == sorted(names)
    assert TEMPERATURE_LAST[-6:] == (
        "mirostat", "temperature", "dynamic_temperature", "xtc", "adaptive_p", "skew",
    )  # fmt: skip


@pytest.mark.parametrize("cls", DEFAULTS, ids=lambda cls: cls.__name__)
def test_what_is_declared_fits_together(cls: type[Settings]) -> None:
    for name, kind in kinds_of(cls):
        info, default = kind.info, getattr(cls(), name)
        assert check_value(cls, name, default) == default
        for value in (info.neutral, info.slider_high, *(value for value, _word in info.words)):
            assert value is None or check_value(cls, name, value) == value
        assert info.step is None or info.step > 0
        assert not info.choices or kind.is_tuple or default in dict(info.choices)
        assert info.help.endswith(".")
    labels = [kind.info.label for _name, kind in kinds_of(cls)]
    assert len(set(labels)) == len(labels)
