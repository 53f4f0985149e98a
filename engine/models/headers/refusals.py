"""Why a header is refused, in the sentences that several architectures need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.headers.keys import Keys
from engine.words import _


def unsupported(name: str, value: object) -> UnsupportedModel:
    """A key has a value that no layer here computes."""
    return UnsupportedModel(
        _(
            "The model sets {name} to {value!r}, which is not supported. Choose another model.",
            name=name,
            value=value,
        )
    )


def refuse_other(keys: Keys, name: str, value: Any) -> None:
    """Raises `UnsupportedModel` where a key that only ever has one value has another one."""
    if keys.raw(name) not in (None, value):
        raise unsupported(name, keys.raw(name))


def unsupported_activation(found: str, known: Iterable[str]) -> UnsupportedModel:
    """The activation is none of those known."""
    return UnsupportedModel(
        _(
            "The model's activation is {found!r}; only {known} are supported. Choose another model.",
            found=found,
            known=", ".join(known),
        )
    )


def unsupported_layer(kind: object) -> UnsupportedModel:
    """A layer is of no known kind."""
    return UnsupportedModel(
        _(
            "The model has layers of the kind {other!r}, which are not supported. Choose another model.",
            other=kind,
        )
    )


def unlike_layers(layers: int, name: str, found: int) -> BadCheckpoint:
    """The key `name` does not go with the number of layers."""
    return BadCheckpoint(
        _(
            "The model has {layers} layers but states {name} of {found}; the file is damaged.",
            layers=layers,
            name=name,
            found=found,
        )
    )


def not_kinds(name: str, layers: int) -> BadCheckpoint:
    """The key `name` lists too few kinds of layers, or none."""
    return BadCheckpoint(
        _(
            "config.json: {name} is not a list of {layers} kinds of layers; the file is damaged.",
            name=name,
            layers=layers,
        )
    )


def uneven(heads: int, width: int) -> BadCheckpoint:
    """Heads do not share a width evenly."""
    return BadCheckpoint(
        _(
            "The model has {heads} heads but a width of {width}; the file is damaged.",
            heads=heads,
            width=width,
        )
    )


def not_a_multiple(heads: int, parts: int) -> BadCheckpoint:
    """Heads do not fall into `parts` equal groups."""
    return BadCheckpoint(
        _(
            "The model has {heads} heads, but a multiple of {parts} was expected; the file is damaged.",
            heads=heads,
            parts=parts,
        )
    )
