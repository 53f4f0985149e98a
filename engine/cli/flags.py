"""Command-line flags made from settings dataclasses, and arguments that several commands share."""

from __future__ import annotations

import argparse
import codecs
import dataclasses
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

from engine.core import ChatRequest, Message
from engine.errors import BadSetting
from engine.fields import field_kinds
from engine.settings import (
    AdapterSettings,
    CacheSettings,
    ConstraintSettings,
    GuidanceSettings,
    LoadSettings,
    OutputSettings,
    SamplerSettings,
    Settings,
    SpeculationSettings,
    StopSettings,
    ThinkingSettings,
)
from engine.words import _, translate

S = TypeVar("S", bound=Settings)

REPLY_SETTINGS = (
    SamplerSettings, StopSettings, SpeculationSettings, ConstraintSettings, GuidanceSettings, OutputSettings,
    AdapterSettings, ThinkingSettings,
)  # fmt: skip
"""The settings classes whose fields are flags of the commands that generate replies."""

FLAG_NAMES: dict[tuple[type[Settings], str], str] = {
    (SpeculationSettings, "method"): "drafting",
    (SpeculationSettings, "adaptive"): "adaptive-drafting",
}
"""Flags named differently from their field, because the field's name is too vague on its own."""


_FORMATS = ("grammar", "json_schema")
"""Values of `ConstraintSettings.format` that have a flag of their own."""


def add_settings(
    parser: argparse.ArgumentParser, cls: type[Settings], *, without: Collection[str] = ()
) -> None:
    """Add a flag for each field of a settings class: `top_k` becomes --top-k.

    Lists take several values, or the flag several times.
    """
    group = parser.add_argument_group(heading(cls))
    if cls is ConstraintSettings:
        _add_formats(group)
    kinds = field_kinds(cls)  # type: ignore[arg-type]
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if field.name in without:
            continue
        info, kind = kinds[field.name].info, kinds[field.name].scalar
        more: dict[str, Any] = {"type": kind, "metavar": kind.__name__.upper()}
        flag = f"--{FLAG_NAMES.get((cls, field.name), field.name.replace('_', '-'))}"
        if kinds[field.name].is_tuple:
            more |= {"type": kind if kind is str else whole_numbers, "nargs": "+", "action": "extend"}
        elif kind is bool:
            more = {"action": argparse.BooleanOptionalAction}
        elif info.choices:
            more = {"choices": [value for value, _label in info.choices]}
        elif info.multiline:
            more = {"type": text_or_file, "metavar": "TEXT|@FILE"}
        default = shown_default(field.default)
        help = _("{help} Default: {default}.", help=translate(info.help), default=default).replace("%", "%%")
        group.add_argument(flag, dest=field.name, default=None, help=help, **more)


def _add_formats(group: Any) -> None:
    """Add llama.cpp's flags, one for each format, of which one may be given."""
    either = group.add_mutually_exclusive_group()
    more: dict[str, Any] = {"type": text_or_file, "metavar": "TEXT|@FILE"}
    file: dict[str, Any] = {"type": lambda path: text_or_file(f"@{path}"), "metavar": "FILE"}
    either.add_argument(
        "--grammar",
        help=_("a Lark or GBNF grammar for the reply, in place of --format and --pattern"),
        **more,
    )
    either.add_argument("--grammar-file", dest="grammar", help=_("a file with such a grammar"), **file)
    either.add_argument(
        "-j",
        "--json-schema",
        help=_("a JSON schema for the reply, in place of --format and --pattern"),
        **more,
    )
    either.add_argument(
        "-jf", "--json-schema-file", dest="json_schema", help=_("a file with such a schema"), **file
    )


def heading(cls: type[Settings]) -> str:
    """What a class of settings is about: the first sentence of its description, in the language in use."""
    return translate((cls.__doc__ or "").split(".")[0])


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add --device: one value for the backend and its GPUs."""
    parser.add_argument(
        "--device", metavar="auto|cpu|cuda|cuda:0,1|reference", type=device_words,
        help=_("the device that runs the model, in place of --backend and --gpus"),
    )  # fmt: skip


def device_words(text: str) -> dict[str, str]:
    """The fields of `LoadSettings` that a device name stands for.

    Raises ArgumentTypeError, which argparse reports, for an unknown device.
    """
    backend, colon, gpus = text.partition(":")
    try:
        if colon and (backend != "cuda" or not gpus):
            raise BadSetting(
                _(
                    "{text!r} is not a device. Use auto, cpu, cuda, cuda with numbers such as cuda:0,1, "
                    "or reference.",
                    text=text,
                )
            )
        return {"backend": LoadSettings(backend=backend).backend, "gpus": LoadSettings(gpus=gpus).gpus}
    except BadSetting as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def read_settings(cls: type[S], options: argparse.Namespace) -> S:
    """A settings object from the parsed flags; fields whose flag was not given keep their default.

    Raises `BadSetting`.
    """
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    given = {field.name: getattr(options, field.name, None) for field in fields}
    if cls is LoadSettings and getattr(options, "device", None) is not None:
        twice = [name for name in options.device if given[name] is not None]
        if twice:
            raise BadSetting(
                _("--device and --{flag} both choose the device. Use only one of them.", flag=twice[0])
            )
        given |= options.device
    for format in _FORMATS if cls is ConstraintSettings else ():
        if (pattern := getattr(options, format, None)) is not None:
            if twice := [name for name in ("format", "pattern") if given[name] is not None]:
                flags = {"one": format.replace("_", "-"), "other": twice[0]}
                raise BadSetting(
                    _("--{one} and --{other} both choose the format. Use only one of them.", **flags)
                )
            given |= {"format": format, "pattern": pattern}
    flat = {name: _flatten(value) for name, value in given.items() if value is not None}
    return cls(**flat)


def add_reply_settings(parser: argparse.ArgumentParser) -> None:
    """Add the flags of all `REPLY_SETTINGS`."""
    for cls in REPLY_SETTINGS:
        add_settings(parser, cls)


def read_request(
    options: argparse.Namespace, messages: Sequence[Message], *, continue_last: bool = False
) -> ChatRequest:
    """A request for a reply to `messages` with the settings in the flags. Raises `BadSetting`."""
    return ChatRequest(
        tuple(messages), read_settings(SamplerSettings, options), read_settings(StopSettings, options),
        continue_last, read_settings(SpeculationSettings, options),
        read_settings(ConstraintSettings, options), read_settings(GuidanceSettings, options),
        read_settings(OutputSettings, options), read_settings(AdapterSettings, options),
        thinking=read_settings(ThinkingSettings, options),
    )  # fmt: skip


def add_model(parser: argparse.ArgumentParser, *, cache: bool = True) -> None:
    """Add MODEL and the flags for loading it."""
    parser.add_argument("model", metavar="MODEL", type=model_path, help=_("a GGUF file or a model folder"))
    add_device(parser)
    add_settings(parser, LoadSettings)
    if cache:
        add_settings(parser, CacheSettings)


def add_prompt(parser: argparse.ArgumentParser, *, messages: bool) -> None:
    """Add --prompt, --file, --ids and, if `messages`, --messages. One of them is required, except where the
    standard input can be a message.
    """
    group = parser.add_mutually_exclusive_group(required=not messages)
    group.add_argument(
        "--prompt",
        metavar="TEXT",
        help=_("plain text to continue; the tokenizer decides whether to add a BOS token"),
    )
    group.add_argument("--file", type=Path, help=_("a UTF-8 file with the text; - is the standard input"))
    group.add_argument(
        "--ids", metavar="1,2,3", type=whole_numbers, help=_("token ids to continue, used as they are")
    )
    if messages:
        group.add_argument(
            "--messages",
            metavar="FILE",
            type=Path,
            help=_(
                "a JSON list of messages with role and content; the model's template is used. Without any of "
                "these flags, a text piped into the command is one message"
            ),
        )


def model_path(text: str) -> str:
    """The path of a model; of one into a model store, what `open_checkpoint` can open (`model_at`)."""
    from engine.hub.local.stores import model_at

    return str(model_at(Path(text)))


def text_or_file(text: str) -> str:
    """The text itself, or the contents of the UTF-8 file whose path follows an @.

    Raises ArgumentTypeError, which argparse reports, if the file cannot be read.
    """
    if not text.startswith("@"):
        return text
    try:
        return read_file(Path(text[1:]))
    except BadSetting as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def whole_numbers(text: str) -> list[int]:
    """Parse "1,2,3" or "1 2 3". Raises ArgumentTypeError, which argparse reports, for anything else."""
    try:
        return [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise argparse.ArgumentTypeError(
            _("{text!r} is not a list of whole numbers such as 1,2,3", text=text[:40])
        ) from None


def read_file(path: Path) -> str:
    """The contents of a text file in UTF-8, or with a byte order mark in UTF-16 or UTF-32; the path "-" is
    the standard input. Raises `BadSetting` if it cannot be read, and for null characters, which no text has.
    """
    try:
        data = sys.stdin.buffer.read() if path == Path("-") else path.read_bytes()
        text = data.decode(next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8"))
        if (place := text.find("\0")) >= 0:
            raise UnicodeDecodeError("utf-8", data, place, place + 1, "a null character")
        return text
    except OSError as error:
        raise BadSetting(
            _(
                "{path} cannot be read ({reason}); give another file.",
                path=shown_path(path),
                reason=error.strerror,
            )
        ) from error
    except UnicodeDecodeError as error:
        raise BadSetting(
            _(
                "{path} is not UTF-8 text (byte {place}); save it as UTF-8 first.",
                path=shown_path(path),
                place=error.start,
            )
        ) from error


def shown_path(path: Path) -> str:
    """A path that `read_file` takes, for a person."""
    return "<stdin>" if path == Path("-") else str(path)


_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
"""Byte order marks; UTF-32's come before UTF-16's, which are prefixes of them."""


def _flatten(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(part for item in value for part in (item if isinstance(item, list) else [item]))
    return value


def shown_default(default: Any) -> str:
    """A setting's default for a person."""
    if isinstance(default, bool):
        return _("on") if default else _("off")
    return _("none") if default in (None, (), "") else str(default)
