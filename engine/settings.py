# Long: one table of settings, a field each.
"""Every engine setting, declared once.

A field made with `setting()` carries its default, label, help, range and neutral value in its dataclass
metadata. The form in the window, the JSON in the store, the flags of the command line, validation and the
README table all read that one field. Settings are frozen: a change makes a new object
(`dataclasses.replace`); run-time state lives elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.fields import SettingInfo, Settings, check_value, setting, setting_info

__all__ = [
    "SAMPLER_STEP_NAMES", "AdapterSettings", "CacheSettings", "ConstraintSettings", "GuidanceSettings",
    "LoadSettings", "OutputSettings", "SamplerSettings", "SettingInfo", "Settings", "SpeculationSettings",
    "StopSettings", "check_value", "setting", "setting_info",
]  # fmt: skip


@dataclass(frozen=True)
class LoadSettings(Settings):
    """How a model is brought into memory."""

    backend: str = setting(
        "auto",
        "Device",
        "What runs the model: automatic takes an NVIDIA GPU where there is one that the model fits on, "
        "else the processor; the reference is slow and exact.",
        choices=(
            ("auto", "Automatic"),
            ("cpu", "Processor (CPU)"),
            ("cuda", "GPU (CUDA)"),
            ("reference", "Reference (torch, exact and slow)"),
        ),
    )
    gpus: str = setting(
        "",
        "GPUs",
        "Numbers of the GPUs that share the model's layers, in this order; empty takes no more than are "
        "needed.",
        pattern=r"\s*(\d{1,2}\s*(,\s*\d{1,2}\s*)*)?",
        form="numbers of GPUs with commas between them, such as 0 or 0,1",
    )
    gpu_memory: int = setting(
        512,
        "GPU memory left free",
        "So much of each GPU's memory is left to the screen and to other programs.",
        low=0,
        high=1 << 20,
        slider_high=8192,
        step=64,
        unit="MiB",
        advanced=True,
    )
    threads: int = setting(
        0,
        "Threads",
        "CPU threads for the model; 0 takes one for each physical core.",
        low=0,
        high=256,
        slider_high=32,
        step=1,
        words=((0, "auto"),),
    )
    prompt_bits: str = setting(
        "16",
        "Prompt precision",
        "Bits of the numbers that the CPU computes with while it reads a prompt; replies always take 16. "
        "With 8 it is read about 1.4 times as fast, and log-probabilities of the next token are off by "
        "about 0.02, not 0.001.",
        choices=(("16", "16 bits"), ("8", "8 bits (faster)")),
        advanced=True,
    )
    quantise: str = setting(
        "none",
        "Quantise while loading",
        "Store weights that the files hold unquantised (FP32, FP16, BF16) in fewer bits: less memory and "
        "more tokens a second, at some cost in quality.",
        choices=(("none", "No"), ("q8", "8 bits"), ("q6", "6 bits"), ("q4", "4 bits")),
        advanced=True,
    )
    quantise_head: str = setting(
        "same",
        "Quantise the head",
        "Another width for the head, the largest matrix of many models; quantised ones often keep it in "
        "FP16.",
        choices=(
            ("same", "As the other weights"),
            ("none", "No"),
            ("q8", "8 bits"),
            ("q6", "6 bits"),
            ("q4", "4 bits"),
        ),
        advanced=True,
    )
    chat_template: str = setting(
        "",
        "Chat template",
        "A Jinja template in the place of the model's own; empty takes the model's, or a "
        "general one where it has none.",
        advanced=True,
        multiline=True,
    )


@dataclass(frozen=True)
class CacheSettings(Settings):
    """The key/value cache."""

    context_length: int = setting(
        0,
        "Context length",
        "Tokens the model can see at once; 0 takes the model's own length, at most 8192.",
        low=0,
        high=1 << 20,
        slider_high=32768,
        step=256,
        words=((0, "auto"),),
        unit="tokens",
    )
    dtype: str = setting(
        "auto",
        "Cache type",
        "How keys and values are stored: fewer bits hold more text in the same memory; automatic is FP16, "
        "on the reference FP32.",
        choices=(
            ("auto", "Automatic"),
            ("fp32", "FP32"),
            ("fp16", "FP16"),
            ("fp8", "FP8"),
            ("q8", "Q8"),
            ("q6", "Q6 (8-bit keys, 4-bit values)"),
            ("q4", "Q4"),
        ),
    )
    value_dtype: str = setting(
        "same",
        "Cache type of the values",
        "Another type for the values than for the keys.",
        advanced=True,
        choices=(
            ("same", "As the cache type"),
            ("fp32", "FP32"),
            ("fp16", "FP16"),
            ("fp8", "FP8"),
            ("q8", "Q8"),
            ("q4", "Q4"),
        ),
    )
    memory: int = setting(
        0,
        "Memory for conversations",
        "Room for the caches of several conversations, so that going back to one need not read it again; "
        "at least one context is always held, and 0 chooses by the free memory.",
        low=0,
        high=1 << 20,
        slider_high=16384,
        step=64,
        words=((0, "auto"),),
        unit="MiB",
    )
    keep_on_disk: bool = setting(
        False,
        "Keep caches on disk",
        "Save a conversation's cache when the model is closed and take it up again at the next start.",
        advanced=True,
    )


SAMPLER_STEP_NAMES = (
    ("repetition", "Repeat penalty"), ("occurrence", "Presence and frequency"), ("dry", "DRY"),
    ("top_n_sigma", "Top N sigma"), ("smoothing", "Smoothing"), ("temperature", "Temperature"),
    ("top_k", "Top K"), ("top_p", "Top P"), ("top_a", "Top A"), ("min_p", "Min P"),
    ("tail_free", "Tail free"), ("typical", "Typical"), ("mirostat", "Mirostat"),
    ("dynamic_temperature", "Dynamic temperature"), ("xtc", "XTC"), ("adaptive_p", "Adaptive P"),
    ("skew", "Skew"),
)  # fmt: skip
"""(name, label) of every sampler step in the default order of application; `engine.sampling.SAMPLER_STEPS`
has the same names.
"""

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
        "Higher is more varied, lower more predictable; 0 always takes the likeliest token.",
        low=0.0,
        high=10.0,
        slider_high=2.0,
        step=0.05,
        neutral=1.0,
        group=_VARIETY,
    )
    top_k: int = setting(
        40,
        "Top K",
        "Only the K likeliest tokens stay.",
        low=0,
        high=1 << 20,
        slider_high=200,
        step=1,
        neutral=0,
        group=_TRUNCATION,
    )
    top_p: float = setting(
        0.95,
        "Top P",
        "Only the likeliest tokens that together reach this probability stay.",
        low=0.0,
        high=1.0,
        step=0.01,
        neutral=1.0,
        group=_TRUNCATION,
    )
    min_p: float = setting(
        0.05,
        "Min P",
        "Tokens less likely than this share of the likeliest token are dropped.",
        low=0.0,
        high=1.0,
        step=0.01,
        neutral=0.0,
        group=_TRUNCATION,
    )
    repetition_penalty: float = setting(
        1.0,
        "Repeat penalty",
        "Makes tokens that already occurred less likely.",
        low=0.1,
        high=10.0,
        slider_high=2.0,
        step=0.01,
        neutral=1.0,
        group=_REPETITION,
    )
    repetition_range: int = setting(
        -1,
        "Repeat window",
        "How many of the latest tokens the penalties look at; -1 is the whole context.",
        low=-1,
        high=1 << 20,
        slider_high=4096,
        step=1,
        neutral=0,
        words=((-1, "all"),),
        unit="tokens",
        group=_REPETITION,
    )
    repetition_decay: int = setting(
        0,
        "Repeat fade",
        "Over so many tokens before the repeat window the penalties fade to nothing.",
        low=0,
        high=1 << 20,
        slider_high=4096,
        step=1,
        neutral=0,
        unit="tokens",
        group=_REPETITION,
        advanced=True,
    )
    presence_penalty: float = setting(
        0.0,
        "Presence penalty",
        "Taken once from the score of each token that already occurred.",
        low=-10.0,
        high=10.0,
        slider_high=2.0,
        step=0.05,
        neutral=0.0,
        group=_REPETITION,
    )
    frequency_penalty: float = setting(
        0.0,
        "Frequency penalty",
        "Taken from a token's score for each time it already occurred.",
        low=-10.0,
        high=10.0,
        slider_high=2.0,
        step=0.05,
        neutral=0.0,
        group=_REPETITION,
    )
    dry_multiplier: float = setting(
        0.0,
        "DRY strength",
        "Makes tokens less likely that would repeat a longer passage word for word; 0.8 is usual.",
        low=0.0,
        high=100.0,
        slider_high=5.0,
        step=0.05,
        neutral=0.0,
        group=_REPETITION,
        advanced=True,
    )
    dry_base: float = setting(
        1.75,
        "DRY base",
        "How fast the DRY penalty grows with the length of the repeated passage.",
        low=1.0,
        high=10.0,
        slider_high=4.0,
        step=0.05,
        group=_REPETITION,
        advanced=True,
    )
    dry_allowed_length: int = setting(
        2,
        "DRY allowed length",
        "Passages of up to so many tokens may be repeated freely.",
        low=1,
        high=1 << 20,
        slider_high=20,
        step=1,
        unit="tokens",
        group=_REPETITION,
        advanced=True,
    )
    dry_range: int = setting(
        0,
        "DRY window",
        "How many of the latest tokens DRY looks at; 0 is the whole context.",
        low=0,
        high=1 << 20,
        slider_high=8192,
        step=64,
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
        "Dynamic temperature goes from here, where the model is sure, ...",
        low=0.0,
        high=10.0,
        slider_high=3.0,
        step=0.05,
        neutral=0.0,
        group=_VARIETY,
        advanced=True,
    )
    max_temperature: float = setting(
        0.0,
        "Highest temperature",
        "... to here, where it is unsure; off unless above the lowest.",
        low=0.0,
        high=10.0,
        slider_high=3.0,
        step=0.05,
        neutral=0.0,
        group=_VARIETY,
        advanced=True,
    )
    temperature_exponent: float = setting(
        1.0,
        "Temperature curve",
        "How dynamic temperature rises with the model's doubt: 1 is even.",
        low=0.1,
        high=10.0,
        slider_high=3.0,
        step=0.05,
        group=_VARIETY,
        advanced=True,
    )
    smoothing_factor: float = setting(
        0.0,
        "Smoothing",
        "Quadratic sampling: lowers unlikely tokens by the square of their distance.",
        low=0.0,
        high=10.0,
        slider_high=2.0,
        step=0.01,
        neutral=0.0,
        group=_VARIETY,
        advanced=True,
    )
    skew: float = setting(
        0.0,
        "Skew",
        "Above 0 leans towards less likely tokens, below 0 towards the likeliest.",
        low=-5.0,
        high=5.0,
        step=0.05,
        neutral=0.0,
        group=_VARIETY,
        advanced=True,
    )
    top_n_sigma: float = setting(
        0.0,
        "Top N sigma",
        "Only tokens whose score is within so many standard deviations of the best stay.",
        low=0.0,
        high=20.0,
        slider_high=5.0,
        step=0.05,
        neutral=0.0,
        group=_TRUNCATION,
        advanced=True,
    )
    top_a: float = setting(
        0.0,
        "Top A",
        "Tokens less likely than this times the square of the best probability are dropped.",
        low=0.0,
        high=1.0,
        step=0.01,
        neutral=0.0,
        group=_TRUNCATION,
        advanced=True,
    )
    tail_free: float = setting(
        1.0,
        "Tail free",
        "Cuts the tail where the curve of probabilities becomes flat.",
        low=0.0,
        high=1.0,
        step=0.01,
        neutral=1.0,
        group=_TRUNCATION,
        advanced=True,
    )
    typical: float = setting(
        1.0,
        "Typical",
        "Keeps the tokens whose surprise is nearest to the expected one, up to this probability.",
        low=0.0,
        high=1.0,
        step=0.01,
        neutral=1.0,
        group=_TRUNCATION,
        advanced=True,
    )
    xtc_probability: float = setting(
        0.0,
        "XTC probability",
        "How often all but the least likely of the likely tokens are dropped.",
        low=0.0,
        high=1.0,
        step=0.05,
        neutral=0.0,
        group=_SPECIAL,
        advanced=True,
    )
    xtc_threshold: float = setting(
        0.1,
        "XTC threshold",
        "From which probability on a token counts as likely for XTC.",
        low=0.0,
        high=0.5,
        step=0.01,
        group=_SPECIAL,
        advanced=True,
    )
    mirostat: bool = setting(
        False,
        "Mirostat 2",
        "Keeps the text's surprise at a set level by cutting more or less of the tail.",
        neutral=False,
        group=_SPECIAL,
        advanced=True,
    )
    mirostat_tau: float = setting(
        5.0,
        "Mirostat surprise",
        "The level to keep.",
        low=0.0,
        high=20.0,
        slider_high=10.0,
        step=0.1,
        unit="bits",
        group=_SPECIAL,
        advanced=True,
    )
    mirostat_eta: float = setting(
        0.1,
        "Mirostat rate",
        "How fast it follows.",
        low=0.0,
        high=1.0,
        step=0.01,
        group=_SPECIAL,
        advanced=True,
    )
    adaptive_target: float = setting(
        0.0,
        "Adaptive P target",
        "Prefers tokens near this probability, corrected by what was drawn before.",
        low=0.0,
        high=1.0,
        step=0.01,
        neutral=0.0,
        group=_SPECIAL,
        advanced=True,
    )
    adaptive_decay: float = setting(
        0.9,
        "Adaptive P memory",
        "How long what was drawn before counts: 0 not at all, 0.99 about a hundred tokens.",
        low=0.0,
        high=0.99,
        step=0.01,
        group=_SPECIAL,
        advanced=True,
    )
    order: tuple[str, ...] = setting(
        tuple(name for name, _ in SAMPLER_STEP_NAMES),
        "Order of the steps",
        "Steps are applied from top to bottom; missing ones keep their usual place.",
        choices=SAMPLER_STEP_NAMES,
        group=_ORDER,
        advanced=True,
    )
    seed: int | None = setting(
        None,
        "Seed",
        "The same seed and settings give the same reply; empty draws a new one each time.",
        low=0,
        high=(1 << 63) - 1,
        group=_VARIETY,
    )


@dataclass(frozen=True)
class StopSettings(Settings):
    """When a reply ends. The model's own end-of-turn tokens always end it."""

    max_tokens: int = setting(
        2048,
        "Max tokens",
        "The longest reply in tokens; 0 goes on until the context is full.",
        low=0,
        high=1 << 20,
        slider_high=8192,
        step=64,
        neutral=0,
        unit="tokens",
    )
    min_tokens: int = setting(
        0,
        "Min tokens",
        "Before so many tokens the model's own end-of-turn tokens cannot be drawn.",
        low=0,
        high=1 << 20,
        slider_high=1024,
        step=1,
        neutral=0,
        unit="tokens",
        advanced=True,
    )
    stop_strings: tuple[str, ...] = setting(
        (), "Stop strings", "The reply ends before any of these texts.", multiline=True
    )
    stop_regex: str = setting(
        "", "Stop expression", "The reply ends where this regular expression first matches.", neutral=""
    )
    stop_token_ids: tuple[int, ...] = setting(
        (), "Stop token ids", "The reply ends at any of these token ids.", low=0, advanced=True
    )
    keep_stop: bool = setting(
        False, "Keep the stop text", "The text that ended the reply stays at its end.", neutral=False
    )
    time_limit: float = setting(
        0.0,
        "Time limit",
        "The longest time a reply may take, counted from its first token.",
        low=0.0,
        high=86400.0,
        slider_high=600.0,
        step=1.0,
        neutral=0.0,
        unit="seconds",
    )
    loop_window: int = setting(
        0,
        "Loop window",
        "The reply ends when its last so many tokens are one passage over and over.",
        low=0,
        high=1 << 16,
        slider_high=512,
        step=8,
        neutral=0,
        unit="tokens",
    )
    loop_repeats: int = setting(
        4,
        "Loop repeats",
        "How often at least the passage must fill the loop window.",
        low=2,
        high=1000,
        slider_high=20,
        step=1,
        advanced=True,
    )
    when_full: str = setting(
        "drop_oldest",
        "When the context is full",
        "What happens when conversation and reply no longer fit.",
        choices=(("drop_oldest", "Drop the oldest turns"), ("stop", "Stop and say so")),
    )


@dataclass(frozen=True)
class SpeculationSettings(Settings):
    """Drafting: cheap guesses of the next tokens, checked by the model in one pass.

    Never changes what is written.
    """

    method: str = setting(
        "none",
        "Drafting",
        "Who guesses: nobody, the text so far, or a smaller model with the same vocabulary.",
        choices=(("none", "None"), ("ngram", "Repeats in the text"), ("model", "Draft model")),
    )
    draft_model: str = setting("", "Draft model", "The smaller model's file or folder.", neutral="")
    draft_tokens: int = setting(
        5, "Draft length", "The most tokens guessed at a time.", low=1, high=7, step=1, unit="tokens"
    )
    adaptive: bool = setting(
        True,
        "Adapt to success",
        "Guesses fewer tokens while few are right, and pauses while drafting is slower than plain writing.",
    )
    ngram_min: int = setting(
        1,
        "Shortest match",
        "How many of the last tokens must have occurred before.",
        low=1,
        high=5,
        step=1,
        advanced=True,
    )
    ngram_max: int = setting(
        5,
        "Longest match",
        "The longest match that is looked for first.",
        low=1,
        high=5,
        step=1,
        advanced=True,
    )
    ngram_prompt: bool = setting(
        True,
        "Guess from the prompt",
        "Repeats of the prompt are guessed too, not only the reply's own.",
        advanced=True,
    )


@dataclass(frozen=True)
class ConstraintSettings(Settings):
    """What a reply must look like, and what it must not contain."""

    format: str = setting(
        "none",
        "Format",
        "A form that the whole reply is forced into.",
        choices=(
            ("none", "Free"),
            ("json", "JSON"),
            ("json_schema", "JSON schema"),
            ("regex", "Regular expression"),
            ("grammar", "Lark grammar"),
            ("choices", "One of these lines"),
        ),
    )
    pattern: str = setting(
        "",
        "Schema, expression, grammar or lines",
        "The text of the chosen format.",
        neutral="",
        multiline=True,
    )
    begin_with: str = setting(
        "",
        "The reply begins with",
        "The reply is forced to begin with this text.",
        neutral="",
        multiline=True,
    )
    banned_strings: tuple[str, ...] = setting(
        (),
        "Banned strings",
        "These texts never appear: the reply goes back and takes other words.",
        multiline=True,
    )
    ban_ignore_case: bool = setting(
        True, "Ignore case", "Banned strings are found in capital and small letters alike."
    )
    logit_bias: tuple[str, ...] = setting(
        (),
        "Token bias",
        "One a line: a token's text or its id, an equals sign, and what is added to its score; for example: "
        "' sure' = -5.",
        multiline=True,
        advanced=True,
        escaped=True,
    )
    allowed_tokens: tuple[int, ...] = setting(
        (), "Allowed token ids", "Only these tokens may be drawn.", low=0, advanced=True
    )
    banned_tokens: tuple[int, ...] = setting(
        (), "Banned token ids", "These tokens are never drawn.", low=0, advanced=True
    )
    heal: bool = setting(
        False,
        "Token healing",
        "When a reply is continued, its last token is chosen anew, so that a word cut short can be "
        "completed well.",
        neutral=False,
        advanced=True,
    )


@dataclass(frozen=True)
class GuidanceSettings(Settings):
    """Classifier-free guidance: away from what a negative system prompt would give.

    Each token costs two passes.
    """

    negative_prompt: str = setting(
        "", "Negative system prompt", "What the reply should not be like.", neutral="", multiline=True
    )
    cfg_scale: float = setting(
        1.0,
        "Guidance scale",
        "How far the reply is pushed away from the negative prompt; 1 is off.",
        low=0.0,
        high=20.0,
        slider_high=5.0,
        step=0.1,
        neutral=1.0,
    )


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


@dataclass(frozen=True)
class OutputSettings(Settings):
    """What is told of each token, and how often."""

    alternatives: int = setting(
        5,
        "Alternatives kept",
        "How many likely tokens are kept for each place, for the token inspector.",
        low=0,
        high=50,
        slider_high=20,
        step=1,
        neutral=0,
    )
    stream_interval: int = setting(
        1,
        "Stream interval",
        "The text is handed on every so many tokens.",
        low=1,
        high=100,
        slider_high=20,
        step=1,
        unit="tokens",
        advanced=True,
    )
    show_special: bool = setting(
        False,
        "Show special tokens",
        "Control tokens appear as text instead of being hidden.",
        neutral=False,
        advanced=True,
    )
