"""The places of LoRA adapters that are in GGUF files, in models of GGUF files and of folders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import BadSetting
from engine.lazy_dataclass import dataclass
from engine.models.building.source import View
from engine.models.config.recurrent import DeltaNet
from engine.models.layers.parts import Linear, Order, Slot
from engine.models.lora.slots import adapter_slots, whole_slot
from engine.models.names import TensorNames
from engine.weights.adapter import Adapter
from engine.words import _

if TYPE_CHECKING:
    from engine.models.architecture import Architecture
    from engine.models.config import ModelConfig


@dataclass(slots=True)
class _Shape:
    """Stands for a matrix of a GGUF file."""

    shape: tuple[int, ...]
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Places:
    """A loaded model: the `names` of its file, its `linears` by these, and as what view of which tensor each
    matrix was loaded, by its id.
    """

    architecture: Architecture
    config: ModelConfig
    names: TensorNames
    linears: Mapping[str, Linear]
    views: Mapping[int, tuple[str, View]]
    from_gguf: bool


def find_slots(places: Places, adapter: Adapter) -> dict[str, Slot]:
    """The slots of an adapter's modules by its names, as far as the model has them.

    Raises `BadSetting` for an adapter of another architecture, and for one that does not fit the form of the
    model's files.
    """
    expected = (places.architecture.gguf_of or places.architecture).gguf
    if adapter.architecture not in expected and (expected or places.from_gguf):
        raise BadSetting(
            _(
                "The adapter {path} is for models of the architecture {name!r}, but this model is of "
                "{name_2!r}; choose an adapter that was made for it.",
                path=adapter.path.name,
                name=adapter.architecture[:40],
                name_2=", ".join(expected),
            )
        )
    if places.from_gguf:
        return _slots_of_file(places)
    try:
        found = _slots_of_folder(places, adapter)
    except (ValueError, IndexError) as error:  # orders of rows for other counts than the adapter's
        raise _unfit(adapter) from error
    missing = next((module for module in adapter.modules if module not in found), None)
    if missing is not None:
        raise BadSetting(
            _(
                "The adapter {path} changes {module}, which was not found in this model's folder; load the "
                "model's GGUF file instead, or use the adapter's PEFT folder.",
                path=adapter.path.name,
                module=missing,
            )
        )
    return found


def _unfit(adapter: Adapter) -> BadSetting:
    return BadSetting(
        _(
            "The adapter {path} has matrices of other shapes than this model; choose an adapter that was "
            "made for it.",
            path=adapter.path.name,
        )
    )


def _slots_of_file(places: Places) -> dict[str, Slot]:
    """A GGUF adapter has the names and rows of the GGUF file: each linear holds those of its view."""
    found: dict[str, Slot] = {}
    for name, linear in places.linears.items():
        _tensor, view = places.views.get(id(linear.weight), ("", None))
        if view is None or view.parts or view.transposed or view.flipped or view.taps:
            continue
        if view.factors is not None:
            continue
        module = name.partition(" ")[0]  # without which of `PARTS` it is
        rows = linear.weight.shape[0] if view.order is None else view.stored_rows
        linears = found[module].linears if module in found else ()
        is_embedding = module == places.names.embed
        found[module] = Slot((*linears, (linear, view.order)), rows, is_embedding=is_embedding)
    return found


def _slots_of_folder(places: Places, adapter: Adapter) -> dict[str, Slot]:
    """The tables of names and orders say which rows of which of the folder's modules each matrix of a GGUF
    file is, and which of them each of the model's linears holds.
    """
    architecture, config = places.architecture, places.config
    form = architecture.gguf_of or architecture
    names = form.gguf_names
    if names is None or form.gguf_scaled:
        return {}
    if form.gguf_tiled and isinstance(config.recurrent, DeltaNet):
        config = replace(config, recurrent=replace(config.recurrent, tiled=True))
    stood = {module: Linear(_Shape(change.shape)) for module, change in adapter.modules.items()}
    formed = replace(architecture, gguf_names=names, interleaved_rows=form.interleaved_rows)
    theirs = adapter_slots(formed, config, names, stood) | _unsplit_slots(places, names, stood)
    mine = adapter_slots(architecture, places.config, places.names, places.linears)
    modules = {id(linear): module for module, linear in stood.items()}
    found: dict[str, Slot] = {}
    seen = set()
    for name, slot in theirs.items():
        for linear, rows in slot.linears if name in mine else ():
            module = modules[id(linear)]
            for made, order, inputs in _placed(linear, rows, slot, mine[name]):
                if (module, id(made)) in seen:
                    continue
                seen.add((module, id(made)))
                there = found[module].linears if module in found else ()
                count, is_embedding = linear.weight.shape[0], mine[name].is_embedding
                found[module] = Slot((*there, (made, order)), count, inputs, is_embedding)
    return found


def _placed(
    linear: Linear, rows: Order | None, theirs: Slot, mine: Slot
) -> Iterator[tuple[Linear, Order | None, Order | None]]:
    """The model's linears that hold rows of a GGUF file's `linear`, which are `rows` of the folder's module:
    each with the indices of its rows in that linear, -1 for those of others, and with those of its columns.
    """
    count = linear.weight.shape[0]
    if theirs.rows != mine.rows:
        raise ValueError(f"{theirs.rows} rows instead of {mine.rows}")
    places = np.full(mine.rows, -1, np.int64)
    places[np.arange(count) if rows is None else rows] = np.arange(count)
    columns = None if theirs.inputs is None else np.argsort(theirs.inputs)
    if mine.inputs is not None:
        columns = mine.inputs if columns is None else columns[mine.inputs]
    for made, order in mine.linears:
        held = places if order is None else places[order]
        if (held >= 0).any():
            yield made, held, columns


def _unsplit_slots(places: Places, names: TensorNames, linears: Mapping[str, Linear]) -> dict[str, Slot]:
    """Those of matrices that the pass has in parts, whose rows are in the same order in both forms: latent
    attention's, and what makes decay and beta of a delta net at once.
    """
    whole = places.architecture.hf_names
    found: dict[str, Slot] = {}
    for layer in range(places.config.layers):
        folder, own = whole.of(layer), names.of(layer)
        pairs = []
        if folder.latent is not None and own.latent is not None:
            pairs.append((folder.query, own.query))
            for field in ("query_down", "query_up", "down"):
                pairs.append((getattr(folder.latent, field), getattr(own.latent, field)))
        if folder.recurrent is not None and own.recurrent is not None:
            pairs.append((folder.recurrent.decay_beta, own.recurrent.decay_beta))
        for theirs, mine in pairs:
            linear = linears.get(own.layer.format(layer) + mine) if mine else None
            if linear is not None and theirs:
                found[folder.layer.format(layer) + theirs] = whole_slot(linear)
    return found
