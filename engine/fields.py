"""How a setting is declared: a dataclass field with label, help, range and neutral value; validation and JSON
both ways.

A field made with `setting()` carries its default, label, help, range and neutral value in its dataclass
metadata. The form in the window, the JSON in the store, the flags of the command line, validation and the
README table all read that one field. Settings are frozen: a change makes a new object
(`dataclasses.replace`); run-time state lives elsewhere.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import types
import typing
from typing import Any

from engine.errors import BadSetting
from engine.lazy_dataclass import dataclass
from engine.words import N_, _, language, translate


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """What a form, a flag and a validator need to know about one field.

    `low`, `high` bound the value (inclusive); `slider_high` is where a slider ends when the true bound is far
    away; `neutral` is the value at which the setting does nothing, shown as "off"; `choices` lists (value,
    label) pairs; `words` lists (number, word) pairs for numbers that have a meaning of their own, such as 0
    for "auto". `group` is the heading under which a long form shows the field, `advanced` hides it behind a
    switch. `escaped` texts are kept as they are written, with escapes such as \\n that the engine resolves.
    Lines of a field with `folders` begin with folders or files that can be chosen. A text must match
    `pattern`, a regular expression, where there is one; `form` says in words what it asks for.
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
    escaped: bool = False
    group: str = ""
    folders: bool = False
    pattern: str = ""
    form: str = ""


def setting(default: Any, label: str, help: str, **info: Any) -> Any:
    """A dataclass field with its `SettingInfo` under metadata key "setting"."""
    return dataclasses.field(
        default=default, metadata={"setting": SettingInfo(label=label, help=help, **info)}
    )


def within(low: float, high: float, *, step: float, slider_high: float | None = None) -> dict[str, Any]:
    """The arguments of `setting` for a number with these bounds."""
    return {"low": low, "high": high, "step": step, "slider_high": slider_high}


def setting_info(field: dataclasses.Field[Any]) -> SettingInfo:
    """The `SettingInfo` of a field declared with `setting()`, in the user's language."""
    info = _declared(field)
    if language() == "en":
        return info
    return dataclasses.replace(
        info,
        label=translate(info.label),
        help=translate(info.help),
        unit=translate(info.unit),
        group=translate(info.group),
        choices=tuple((value, translate(label)) for value, label in info.choices),
        words=tuple((number, translate(word)) for number, word in info.words),
    )


def _declared(field: dataclasses.Field[Any]) -> SettingInfo:
    info = field.metadata["setting"]
    assert isinstance(info, SettingInfo)
    return info


class Kind(typing.NamedTuple):
    """What a value of one field has to be: a scalar of a kind, a tuple of them, or None too."""

    info: SettingInfo
    scalar: Any
    is_tuple: bool
    optional: bool
    where: str


@functools.cache  # a millisecond each time without, and every value of every settings object asks
def field_kinds(cls: type) -> dict[str, Kind]:
    """What the values of a settings class's fields have to be, by name."""
    found, hints = {}, typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        kind = hints[field.name]
        optional = isinstance(kind, types.UnionType)
        if optional:
            kind = next(k for k in typing.get_args(kind) if k is not types.NoneType)
        is_tuple = typing.get_origin(kind) is tuple
        scalar = typing.get_args(kind)[0] if is_tuple else kind
        found[field.name] = Kind(_declared(field), scalar, is_tuple, optional, f"{cls.__name__}.{field.name}")
    return found


def _check_scalar(where: str, value: Any, kind: Any, info: SettingInfo) -> Any:
    """`value` as `kind` (bool, int, float, str) inside the range of `info`; raises `BadSetting`."""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise BadSetting(
            _(
                "{where} is {value!r}, but it must be {kind}.",
                where=where,
                value=value,
                kind=translate(_KIND_NAMES[kind]),
            )
        )
    if kind is float and not math.isfinite(value):
        raise BadSetting(_("{where} is {value!r}, but it must be a finite number.", where=where, value=value))
    if kind in (int, float) and not _inside(value, info):
        raise BadSetting(
            _(
                "{where} is {value!r}, but it must be {range}.",
                where=where,
                value=value,
                range=_range_text(info),
            )
        )
    if info.choices and value not in [choice for choice, _unused in info.choices]:
        allowed = ", ".join(choice for choice, _unused in info.choices)
        raise BadSetting(
            _(
                "{where} is {value!r}, but it must be one of: {allowed}.",
                where=where,
                value=value,
                allowed=allowed,
            )
        )
    if info.pattern and not re.fullmatch(info.pattern, value):
        raise BadSetting(
            _(
                "{where} is {value!r}, but it must be {form}.",
                where=where,
                value=value,
                form=translate(info.form),
            )
        )
    return value


_KIND_NAMES = {bool: N_("true or false"), int: N_("a whole number"), float: N_("a number"), str: N_("text")}


def _inside(value: float, info: SettingInfo) -> bool:
    return (info.low is None or value >= info.low) and (info.high is None or value <= info.high)


def _range_text(info: SettingInfo) -> str:
    if info.low is not None and info.high is not None:
        return _("between {low:.12g} and {high:.12g}", low=info.low, high=info.high)
    return (
        _("at least {low:.12g}", low=info.low)
        if info.low is not None
        else _("at most {high:.12g}", high=info.high)
    )


def check_value(cls: type, name: str, value: Any) -> Any:
    """`value` as the type of field `name` of `cls`; lists become tuples.

    Raises `BadSetting` in one sentence.
    """
    found = field_kinds(cls).get(name)
    if found is None:
        raise BadSetting(_("{cls} has no setting named {name!r}.", cls=cls.__name__, name=name))
    if value is None and found.optional:
        return None
    if found.is_tuple:
        if not isinstance(value, (list, tuple)):
            raise BadSetting(
                _("{where} is {value!r}, but it must be a list.", where=found.where, value=value)
            )
        return tuple(_check_scalar(found.where, item, found.scalar, found.info) for item in value)
    return _check_scalar(found.where, value, found.scalar, found.info)


@functools.cache  # most values of most settings objects are defaults
def _checked_defaults(cls: type) -> dict[str, tuple[Any, Any]]:
    """The default of each field as it is declared, and as `check_value` returns it."""
    return {
        field.name: (field.default, check_value(cls, field.name, field.default))
        for field in dataclasses.fields(cls)
    }


class Settings:
    """Base of all settings dataclasses: validation on creation, and JSON both ways."""

    def __post_init__(self) -> None:
        cls: type = type(self)
        for name, (default, checked) in _checked_defaults(cls).items():
            value = getattr(self, name)
            if value is not default:
                checked = check_value(cls, name, value)
            if checked is not value:
                object.__setattr__(self, name, checked)

    def to_json(self) -> dict[str, Any]:
        """Plain dict of str, int, float, bool, list, None."""
        cls: type = type(self)
        values = {name: getattr(self, name) for name in field_kinds(cls)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> typing.Self:
        """The inverse of `to_json`; unknown names and bad values raise `BadSetting`."""
        for name, value in data.items():
            check_value(cls, name, value)
        return cls(**data)
