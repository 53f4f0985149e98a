"""Every engine setting, declared once.

A field made with `setting()` carries its default, label, help, range and neutral value in its dataclass metadata. The
form in the window, the JSON in the store, the flags of the command line, validation and the README table all read
that one field. Settings are frozen: a change makes a new object (`dataclasses.replace`); run-time state lives elsewhere.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from dataclasses import dataclass
from typing import Any

from engine.errors import BadSetting


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """What a form, a flag and a validator need to know about one field.

    `low`, `high` bound the value (inclusive); `slider_high` is where a slider ends when the true bound is far away;
    `neutral` is the value at which the setting does nothing, shown as "off"; `choices` lists (value, label) pairs;
    `words` lists (number, word) pairs for numbers that have a meaning of their own, such as 0 for "auto".
    """

    label: str
    help: str
    low: float | None = None
    high: float | None = None
    step: float | None = None
    slider_high: float | None = None
    neutral: Any = None
    choices: tuple[tuple[str, str], ...] = ()
    words: tuple[tuple[float, str], ...] = ()
    unit: str = ""
    advanced: bool = False
    multiline: bool = False


def setting(default: Any, label: str, help: str, **info: Any) -> Any:
    """A dataclass field with its `SettingInfo` under metadata key "setting"."""
    return dataclasses.field(default=default, metadata={"setting": SettingInfo(label=label, help=help, **info)})


def setting_info(field: dataclasses.Field[Any]) -> SettingInfo:
    """The `SettingInfo` of a field declared with `setting()`."""
    info = field.metadata["setting"]
    assert isinstance(info, SettingInfo)
    return info


def _field_types(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _check_scalar(where: str, value: Any, kind: Any, info: SettingInfo) -> Any:
    """`value` as `kind` (bool, int, float, str) inside the range of `info`; raises `BadSetting`."""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise BadSetting(f"{where} is {value!r}, but it must be {_KIND_NAMES[kind]}.")
    if kind is float and not math.isfinite(value):
        raise BadSetting(f"{where} is {value!r}, but it must be a finite number.")
    if kind in (int, float) and not _inside(value, info):
        raise BadSetting(f"{where} is {value!r}, but it must be {_range_text(info)}.")
    if info.choices and value not in [choice for choice, _ in info.choices]:
        allowed = ", ".join(choice for choice, _ in info.choices)
        raise BadSetting(f"{where} is {value!r}, but it must be one of: {allowed}.")
    return value


_KIND_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _inside(value: float, info: SettingInfo) -> bool:
    return (info.low is None or value >= info.low) and (info.high is None or value <= info.high)


def _range_text(info: SettingInfo) -> str:
    if info.low is not None and info.high is not None:
        return f"between {info.low:g} and {info.high:g}"
    return f"at least {info.low:g}" if info.low is not None else f"at most {info.high:g}"


def check_value(cls: type, name: str, value: Any) -> Any:
    """`value` as the type of field `name` of `cls`; lists become tuples. Raises `BadSetting` in one sentence."""
    field = {f.name: f for f in dataclasses.fields(cls)}.get(name)
    if field is None:
        raise BadSetting(f"{cls.__name__} has no setting named {name!r}.")
    info, kind, where = setting_info(field), _field_types(cls)[name], f"{cls.__name__}.{name}"
    if isinstance(kind, types.UnionType):
        if value is None:
            return None
        kind = next(k for k in typing.get_args(kind) if k is not types.NoneType)
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, (list, tuple)):
            raise BadSetting(f"{where} is {value!r}, but it must be a list.")
        return tuple(_check_scalar(where, item, typing.get_args(kind)[0], info) for item in value)
    return _check_scalar(where, value, kind, info)


class Settings:
    """Base of all settings dataclasses: validation on creation, and JSON both ways."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            object.__setattr__(self, field.name, check_value(type(self), field.name, getattr(self, field.name)))

    def to_json(self) -> dict[str, Any]:
        """Plain dict of str, int, float, bool, list, None."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()}  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> typing.Self:
        """The inverse of `to_json`; unknown names and bad values raise `BadSetting`."""
        for name, value in data.items():
            check_value(cls, name, value)
        return cls(**data)


@dataclass(frozen=True)
class LoadSettings(Settings):
    """How a model is brought into memory."""

    backend: str = setting(
        "auto", "Backend", "Which code runs the model: the fast CPU kernels, or the slow exact reference.",
        choices=(("auto", "Automatic"), ("cpu", "CPU (Numba)"), ("reference", "Reference (torch, exact and slow)")),
    )
    threads: int = setting(
        0, "Threads", "CPU threads for the model; 0 takes one for each physical core.", low=0, high=256, slider_high=32, step=1,
        words=((0, "auto"),),
    )


@dataclass(frozen=True)
class CacheSettings(Settings):
    """The key/value cache."""

    context_length: int = setting(
        0, "Context length", "Tokens the model can see at once; 0 takes the model's own length, at most 8192.",
        low=0, high=1 << 20, slider_high=32768, step=256, words=((0, "auto"),), unit="tokens",
    )
    dtype: str = setting(
        "auto", "Cache type", "How keys and values are stored; automatic is FP16 on the CPU and FP32 on the reference.",
        choices=(("auto", "Automatic"), ("fp16", "FP16"), ("fp32", "FP32")),
    )


@dataclass(frozen=True)
class SamplerSettings(Settings):
    """How the next token is drawn. The order of the steps is `engine.sampling.SAMPLER_STEPS`."""

    temperature: float = setting(
        0.7, "Temperature", "Higher is more varied, lower more predictable; 0 always takes the likeliest token.",
        low=0.0, high=10.0, slider_high=2.0, step=0.05, neutral=1.0,
    )
    top_k: int = setting(40, "Top K", "Only the K likeliest tokens stay.", low=0, high=1 << 20, slider_high=200, step=1, neutral=0)
    top_p: float = setting(
        0.95, "Top P", "Only the likeliest tokens that together reach this probability stay.", low=0.0, high=1.0, step=0.01, neutral=1.0
    )
    min_p: float = setting(
        0.05, "Min P", "Tokens less likely than this share of the likeliest token are dropped.", low=0.0, high=1.0, step=0.01, neutral=0.0
    )
    repetition_penalty: float = setting(
        1.0, "Repeat penalty", "Makes tokens that already occurred less likely.", low=0.1, high=10.0, slider_high=2.0, step=0.01,
        neutral=1.0,
    )
    repetition_range: int = setting(
        -1, "Repeat window", "How many of the latest tokens the penalties look at; -1 is the whole context.",
        low=-1, high=1 << 20, slider_high=4096, step=1, neutral=0, words=((-1, "all"),), unit="tokens",
    )
    presence_penalty: float = setting(
        0.0, "Presence penalty", "Taken once from the score of each token that already occurred.", low=-10.0, high=10.0, slider_high=2.0,
        step=0.05, neutral=0.0,
    )
    frequency_penalty: float = setting(
        0.0, "Frequency penalty", "Taken from a token's score for each time it already occurred.", low=-10.0, high=10.0, slider_high=2.0,
        step=0.05, neutral=0.0,
    )
    seed: int | None = setting(
        None, "Seed", "The same seed and settings give the same reply; empty draws a new one each time.", low=0, high=(1 << 63) - 1
    )


@dataclass(frozen=True)
class StopSettings(Settings):
    """When a reply ends. The model's own end-of-turn tokens always end it."""

    max_tokens: int = setting(
        2048, "Max tokens", "The longest reply in tokens; 0 goes on until the context is full.", low=0, high=1 << 20, slider_high=8192,
        step=64, neutral=0, unit="tokens",
    )
    stop_strings: tuple[str, ...] = setting((), "Stop strings", "The reply ends before any of these texts.", multiline=True)
    stop_token_ids: tuple[int, ...] = setting((), "Stop token ids", "The reply ends at any of these token ids.", low=0)
    when_full: str = setting(
        "drop_oldest", "When the context is full", "What happens when conversation and reply no longer fit.",
        choices=(("drop_oldest", "Drop the oldest turns"), ("stop", "Stop and say so")),
    )
