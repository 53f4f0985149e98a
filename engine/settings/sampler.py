"""How the next token is chosen: the sampler steps and what each of them is set to."""

from __future__ import annotations

from engine.fields import Settings, setting, within
from engine.lazy_dataclass import dataclass

SAMPLER_STEP_NAMES = (
    ("repetition", "Repeat penalty"), ("occurrence", "Presence and frequency"), ("dry", "DRY"),
    ("top_n_sigma", "Top N sigma"), ("smoothing", "Smoothing"), ("temperature", "Temperature"),
    ("top_k", "Top K"), ("top_p", "Top P"), ("top_a", "Top A"), ("min_p", "Min P"),
    ("tail_free", "Tail free"), ("typical", "Typical"), ("mirostat", "Mirostat"),
    ("dynamic_temperature", "Dynamic temperature"), ("xtc", "XTC"), ("adaptive_p", "Adaptive P"),
    ("skew", "Skew"),
)  # fmt: skip
"""(name, label) of every sampler step in the default order of application; `engine.sampling` implements them.
"""

_OTHERS = [name for name, _ in SAMPLER_STEP_NAMES if name != "temperature"]
_PLACE = _OTHERS.index("dynamic_temperature")
TEMPERATURE_LAST = (*_OTHERS[:_PLACE], "temperature", *_OTHERS[_PLACE:])
"""The order with the temperature after the steps that remove unlikely tokens, as ExLlamaV2 has it."""

_VARIETY, _TRUNCATION, _REPETITION, _SPECIAL, _ORDER = (
    "Variety",
    "Truncation",
    "Repetition",
    "Special",
    "Order",
)


@dataclass(frozen=True)
class SamplerSettings(Settings):
    """How the next token is drawn."""

    temperature: float = setting(
        0.7,
        "Temperature",
        "Higher values give more varied replies, lower values more predictable ones. With 0, the "
        "most likely token is always chosen.",
        **within(0.0, 1000.0, step=0.05, slider_high=2.0),
        neutral=1.0,
        group=_VARIETY,
    )
    top_k: int = setting(
        40,
        "Top K",
        "Keep only the K most likely tokens.",
        **within(0, 1 << 20, step=1, slider_high=200),
        neutral=0,
        group=_TRUNCATION,
    )
    top_p: float = setting(
        0.95,
        "Top P",
        "Keep only the most likely tokens that together reach this probability.",
        **within(0.0, 1.0, step=0.01),
        neutral=1.0,
        group=_TRUNCATION,
    )
    min_p: float = setting(
        0.05,
        "Min P",
        "Remove tokens whose probability is below this fraction of the most likely token's.",
        **within(0.0, 1.0, step=0.01),
        neutral=0.0,
        group=_TRUNCATION,
    )
    repetition_penalty: float = setting(
        1.0,
        "Repeat penalty",
        "Make tokens that have already occurred less likely.",
        **within(0.1, 1000.0, step=0.01, slider_high=2.0),
        neutral=1.0,
        group=_REPETITION,
    )
    repetition_range: int = setting(
        -1,
        "Repeat window",
        "The number of latest tokens that penalties consider. -1 is the whole context.",
        **within(-1, 1 << 20, step=1, slider_high=4096),
        neutral=0,
        words=((-1, "all"),),
        unit="tokens",
        group=_REPETITION,
    )
    repetition_decay: int = setting(
        0,
        "Repeat fade",
        "The number of tokens before the repeat window over which the penalties fade out.",
        **within(0, 1 << 20, step=1, slider_high=4096),
        neutral=0,
        unit="tokens",
        group=_REPETITION,
        advanced=True,
    )
    presence_penalty: float = setting(
        0.0,
        "Presence penalty",
        "Subtracted once from the score of each token that has already occurred.",
        **within(-1000.0, 1000.0, step=0.05, slider_high=2.0),
        neutral=0.0,
        group=_REPETITION,
    )
    frequency_penalty: float = setting(
        0.0,
        "Frequency penalty",
        "Subtracted from a token's score for each time it has already occurred.",
        **within(-1000.0, 1000.0, step=0.05, slider_high=2.0),
        neutral=0.0,
        group=_REPETITION,
    )
    dry_multiplier: float = setting(
        0.0,
        "DRY strength",
        "Make tokens less likely that would repeat a longer passage word for word. 0.8 is common.",
        **within(0.0, 1000.0, step=0.05, slider_high=5.0),
        neutral=0.0,
        group=_REPETITION,
        advanced=True,
    )
    dry_base: float = setting(
        1.75,
        "DRY base",
        "How quickly the DRY penalty grows with the length of the repeated passage.",
        **within(1.0, 1000.0, step=0.05, slider_high=4.0),
        group=_REPETITION,
        advanced=True,
    )
    dry_allowed_length: int = setting(
        2,
        "DRY allowed length",
        "The number of tokens that may be repeated without a penalty.",
        **within(1, 1 << 20, step=1, slider_high=20),
        unit="tokens",
        group=_REPETITION,
        advanced=True,
    )
    dry_range: int = setting(
        0,
        "DRY window",
        "The number of latest tokens that DRY considers. 0 is the whole context.",
        **within(0, 1 << 20, step=64, slider_high=8192),
        words=((0, "all"),),
        unit="tokens",
        group=_REPETITION,
        advanced=True,
    )
    dry_breakers: tuple[str, ...] = setting(
        ("\\n", ":", '"', "*"),
        "DRY breakers",
        "A repeated passage ends at any token with one of these texts; \\n is a line break.",
        group=_REPETITION,
        advanced=True,
        multiline=True,
        escaped=True,
    )
    min_temperature: float = setting(
        0.0,
        "Lowest temperature",
        "The temperature when the model is certain, with dynamic temperature.",
        **within(0.0, 1000.0, step=0.05, slider_high=3.0),
        neutral=0.0,
        group=_VARIETY,
        advanced=True,
    )
    max_temperature: float = setting(
        0.0,
        "Highest temperature",
        "The temperature when the model is uncertain. Dynamic temperature is off unless this is "
        "above the lowest temperature.",
        **within(0.0, 1000.0, step=0.05, slider_high=3.0),
        neutral=0.0,
        group=_VARIETY,
        advanced=True,
    )
    temperature_exponent: float = setting(
        1.0,
        "Temperature curve",
        "How dynamic temperature rises with the model's uncertainty. 1 is linear.",
        **within(0.1, 100.0, step=0.05, slider_high=3.0),
        group=_VARIETY,
        advanced=True,
    )
    smoothing_factor: float = setting(
        0.0,
        "Smoothing",
        "Quadratic sampling: reduce the scores of unlikely tokens by the square of their distance "
        "from the best.",
        **within(0.0, 1000.0, step=0.01, slider_high=2.0),
        neutral=0.0,
        group=_VARIETY,
        advanced=True,
    )
    skew: float = setting(
        0.0,
        "Skew",
        "Positive values favour less likely tokens, negative values the most likely ones.",
        **within(-50.0, 50.0, step=0.05, slider_high=5.0),
        neutral=0.0,
        group=_VARIETY,
        advanced=True,
    )
    top_n_sigma: float = setting(
        0.0,
        "Top N sigma",
        "Keep only tokens whose score is within this number of standard deviations of the best.",
        **within(0.0, 20.0, step=0.05, slider_high=5.0),
        neutral=0.0,
        group=_TRUNCATION,
        advanced=True,
    )
    top_a: float = setting(
        0.0,
        "Top A",
        "Remove tokens less likely than this value times the square of the highest probability.",
        **within(0.0, 1000.0, step=0.01, slider_high=1.0),
        neutral=0.0,
        group=_TRUNCATION,
        advanced=True,
    )
    tail_free: float = setting(
        1.0,
        "Tail free",
        "Remove the tail where the curve of probabilities becomes flat.",
        **within(0.0, 1.0, step=0.01),
        neutral=1.0,
        group=_TRUNCATION,
        advanced=True,
    )
    typical: float = setting(
        1.0,
        "Typical",
        "Keep the tokens whose surprise is closest to the expected surprise, up to this total probability.",
        **within(0.0, 1.0, step=0.01),
        neutral=1.0,
        group=_TRUNCATION,
        advanced=True,
    )
    xtc_probability: float = setting(
        0.0,
        "XTC probability",
        "How often the likely tokens are removed, except the least likely one of them.",
        **within(0.0, 1.0, step=0.05),
        neutral=0.0,
        group=_SPECIAL,
        advanced=True,
    )
    xtc_threshold: float = setting(
        0.1,
        "XTC threshold",
        "The probability from which XTC considers a token likely.",
        **within(0.0, 0.5, step=0.01),
        group=_SPECIAL,
        advanced=True,
    )
    mirostat: bool = setting(
        False,
        "Mirostat 2",
        "Keep the surprise of the text at a set level by removing more or less of the tail.",
        neutral=False,
        group=_SPECIAL,
        advanced=True,
    )
    mirostat_tau: float = setting(
        5.0,
        "Mirostat surprise",
        "The target level of surprise.",
        **within(0.0, 1000.0, step=0.1, slider_high=10.0),
        unit="bits",
        group=_SPECIAL,
        advanced=True,
    )
    mirostat_eta: float = setting(
        0.1,
        "Mirostat rate",
        "How quickly Mirostat adapts.",
        **within(0.0, 100.0, step=0.01, slider_high=1.0),
        group=_SPECIAL,
        advanced=True,
    )
    adaptive_target: float = setting(
        0.0,
        "Adaptive P target",
        "Prefer tokens near this probability, adjusted by the previously sampled tokens.",
        **within(0.0, 1.0, step=0.01),
        neutral=0.0,
        group=_SPECIAL,
        advanced=True,
    )
    adaptive_decay: float = setting(
        0.9,
        "Adaptive P memory",
        "How long previously sampled tokens count: 0 is not at all, 0.99 is about a hundred tokens.",
        **within(0.0, 0.99, step=0.01),
        group=_SPECIAL,
        advanced=True,
    )
    order: tuple[str, ...] = setting(
        tuple(name for name, _ in SAMPLER_STEP_NAMES),
        "Order of the steps",
        "Steps are applied from top to bottom. Missing steps keep their default place.",
        choices=SAMPLER_STEP_NAMES,
        group=_ORDER,
        advanced=True,
    )
    seed: int | None = setting(
        None,
        "Seed",
        "The same seed and settings give the same reply. If empty, each reply gets a random seed.",
        low=0,
        high=(1 << 63) - 1,
        group=_VARIETY,
    )
