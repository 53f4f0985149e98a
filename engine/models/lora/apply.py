"""Applies LoRA adapters to a loaded model and removes them.

The weights stay unchanged: adapters are added to the pass, which must then be recorded again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from engine.backends.base import Weight
from engine.errors import BadSetting
from engine.models.layers.parts import Changes, Linear, Order, Slot
from engine.models.names import LATENT_HF
from engine.tensors import Floats
from engine.weights.adapter import Adapter, LowRank
from engine.weights.tensor import FileTensor
from engine.words import _

if TYPE_CHECKING:
    from engine.models.base import Model


@dataclass(slots=True)
class _Sum:
    """The changes of one matrix (N, K) by all adapters, before the backend has them.

    `factors` (N,) multiply its rows, `whole` (N, K) is added then; None: no change.
    """

    linear: Linear
    factors: Floats | None = None
    whole: Floats | None = None
    changes: Changes = field(default_factory=Changes)

    def scale(self, factors: Floats | np.float32) -> None:
        """Add `factors` - 1 to the factors."""
        if self.factors is None:
            self.factors = np.ones(self.linear.weight.shape[0], np.float32)
        self.factors = self.factors + (factors - np.float32(1))

    def add_bias(self, bias: Floats) -> None:
        self.changes.bias = bias if self.changes.bias is None else self.changes.bias + bias


def apply_adapters(model: Model, adapters: Sequence[tuple[Adapter, float]]) -> None:
    """Replace the model's adapters by these, each scaled by its strength: what an adapter changes of a matrix
    or of a bias is multiplied by it.

    Programs that are already recorded do not change. Raises `BadSetting` for an adapter of another model, and
    the errors of `open_checkpoint` where the model's weights must be read again and cannot; leaves the model
    unchanged then.
    """
    sums: dict[int, _Sum] = {}
    for adapter, strength in adapters:
        slots = _checked(model, adapter)
        for module, change in adapter.modules.items():
            add = _add_to_table if change.of_table else _add_low_rank
            add(model, slots[module], change, strength, sums)
        for module, tensor in adapter.whole.items():
            values = tensor.dequantise()
            for linear, order in _ordered(slots[module]):
                made = _of(sums, linear)
                made.scale(np.float32(1 - strength))
                matrix = np.float32(strength) * (values if order is None else values[order])
                made.whole = matrix if made.whole is None else made.whole + matrix
        for module, tensor in adapter.biases.items():
            bias = tensor.dequantise()
            for linear, order in slots[module].linears:
                mine = bias if order is None else bias[order]
                old = np.float32(0) if linear.bias is None else linear.bias
                _of(sums, linear).add_bias(np.float32(strength) * (mine - old))
        for module, (numbers, tensor) in adapter.tokens.items():
            _add_tokens(model, slots[module], numbers, tensor.dequantise(), strength, sums)
    for made in sums.values():
        _finish(model, made)
    for old_changes in model.adapted:
        old_changes.clear()
    model.adapted = [made.linear.adapters for made in sums.values()]
    for made in sums.values():
        changes = made.linear.adapters
        changes.weight, changes.factors = made.changes.weight, made.changes.factors
        changes.bias = made.changes.bias
        changes.pairs += made.changes.pairs


def _of(sums: dict[int, _Sum], linear: Linear) -> _Sum:
    return sums.setdefault(id(linear.adapters), _Sum(linear))


def _ordered(slot: Slot) -> Iterator[tuple[Linear, Order | tuple[Order | slice, Order] | None]]:
    """The linears, each with what picks its matrix out of the module's."""
    for linear, order in slot.linears:
        if slot.inputs is None:
            yield linear, order
        else:
            yield linear, (slice(None) if order is None else order[:, None], slot.inputs)


def _add_low_rank(model: Model, slot: Slot, change: LowRank, strength: float, sums: dict[int, _Sum]) -> None:
    """Add a low-rank product, and for DoRA (arXiv 2402.09353, equation 5) what scales the rows: with
    f = magnitude / |W + s B A|, a row of the change is (f - 1) W + f s B A.
    """
    up = change.up.dequantise() * np.float32(change.scale)
    inputs = change.down.dequantise()
    inputs = inputs if slot.inputs is None else np.ascontiguousarray(inputs[:, slot.inputs])
    down = _load(model, change.down.name, inputs)
    magnitude = None if change.magnitude is None else change.magnitude.dequantise().reshape(-1)
    bias = None if change.bias is None else change.bias.dequantise() * np.float32(change.scale * strength)
    for linear, order in slot.linears:
        made = _of(sums, linear)
        rows = up if order is None else _rows(up, order)
        if magnitude is not None:
            norms = np.linalg.norm(model.stored(linear.weight) + rows @ inputs, axis=1)
            mine = magnitude if order is None else magnitude[order]
            factors = np.divide(mine, norms, out=np.zeros_like(mine), where=norms != 0)
            made.scale(1 + np.float32(strength) * (factors - 1))
            rows = factors[:, None] * rows
        if bias is not None:
            made.add_bias(bias if order is None else bias[order])
        made.changes.pairs.append((down, _load(model, change.up.name, rows * np.float32(strength))))


def _add_to_table(model: Model, slot: Slot, change: LowRank, strength: float, sums: dict[int, _Sum]) -> None:
    """Add a low-rank product to a table of embeddings, which takes the place of the model's."""
    up = change.up.dequantise() * np.float32(change.scale * strength)
    down = change.down.dequantise()
    for linear, order in slot.linears:
        made = _of(sums, linear)
        rows: Floats = up if order is None else _rows(up, order)
        product = np.matmul(rows, down.T, dtype=np.float32)
        made.scale(np.float32(1))
        made.whole = product if made.whole is None else made.whole + product


def _add_tokens(
    model: Model, slot: Slot, numbers: Sequence[int], rows: Floats, strength: float, sums: dict[int, _Sum]
) -> None:
    """Put `rows` in the place of those of the tokens `numbers`; with tied tables in the head, too, as PEFT
    does. Of a head, that is a product of low rank: for each token, where it is and what is added there.
    """
    ((table, _order),) = slot.linears
    added = np.float32(strength) * (rows - model.stored(table.weight)[list(numbers)])
    heads = [] if slot.is_embedding else [table]
    if slot.is_embedding:
        made = _of(sums, table)
        made.scale(np.float32(1))
        if made.whole is None:
            made.whole = np.zeros(table.weight.shape, np.float32)
        made.whole[list(numbers)] += added
        heads = [model.parts.head] if model.config.tied else []
    for head in heads:
        places = np.zeros((head.weight.shape[0], len(numbers)), np.float32)
        places[list(numbers), np.arange(len(numbers))] = 1
        pair = _load(model, "tokens", added), _load(model, "tokens", places)
        _of(sums, head).changes.pairs.append(pair)


def _rows(matrix: Floats, order: Order) -> Floats:
    """The rows `order` of a matrix (N, K); zeros for -1."""
    rows = matrix[order]
    rows[order < 0] = 0
    return rows


def _finish(model: Model, made: _Sum) -> None:
    """Load what takes the place of the matrix, or the factors of its rows."""
    changes, weight = made.changes, made.linear.weight
    if made.whole is not None:
        assert made.factors is not None
        matrix = made.whole
        if made.factors.any():
            matrix = matrix + made.factors[:, None] * model.stored(weight)
        changes.weight = _load(model, "adapter", matrix)
    elif made.factors is not None:
        zeros = np.zeros((weight.shape[0], 1), np.float32)
        changes.factors = _load(model, "adapter", zeros), made.factors


def _checked(model: Model, adapter: Adapter) -> Mapping[str, Slot]:
    """The slots of the adapter's modules. Raises `BadSetting` if it does not fit the model."""
    slots = model.slots
    if adapter.architecture:
        assert model.gguf_slots is not None
        slots = model.gguf_slots(adapter)
    elif not slots:
        raise BadSetting(
            _(
                "The adapter {path} does not fit this GGUF file, whose weights are scaled; load "
                "the model's safetensors folder instead.",
                path=adapter.path.name,
            )
        )
    for module, change in adapter.modules.items():
        slot = _slot(model, slots, adapter, module)
        if slot.is_embedding != change.of_table:
            raise _missing(adapter, module)
        _check_shape(adapter, module, slot, *change.shape)
    for module, tensor in adapter.whole.items():
        _check_shape(adapter, module, _slot(model, slots, adapter, module), *tensor.shape)
    for module, tensor in adapter.biases.items():
        slot = _slot(model, slots, adapter, module)
        if slot.is_embedding:
            raise _missing(adapter, module)
        _check_shape(adapter, module, slot, tensor.shape[0], slot.columns)
    for module, (numbers, tensor) in adapter.tokens.items():
        slot = _slot(model, slots, adapter, module)
        if not slot.is_embedding and slot.linears[0][0] is not model.parts.head:
            raise _missing(adapter, module)
        _check_shape(adapter, module, slot, max(slot.rows, *(n + 1 for n in numbers)), tensor.shape[1])
    return slots


def _slot(model: Model, slots: Mapping[str, Slot], adapter: Adapter, module: str) -> Slot:
    slot = slots.get(module)
    if slot is None and model.config.latent is not None and module.endswith(LATENT_HF.up):
        raise BadSetting(
            _(
                "The adapter {path} changes {module}, the matrix of latent attention that "
                "makes keys and values, which adapters cannot change; remove the adapter from "
                "the list.",
                path=adapter.path.name,
                module=module,
            )
        )
    if slot is None:
        raise _missing(adapter, module)
    return slot


def _missing(adapter: Adapter, module: str) -> BadSetting:
    return BadSetting(
        _(
            "The adapter {path} changes {module}, which this model does not have; remove "
            "the adapter from the list.",
            path=adapter.path.name,
            module=module,
        )
    )


def _check_shape(adapter: Adapter, module: str, slot: Slot, rows: int, columns: int) -> None:
    if (rows, columns) != (slot.rows, slot.columns):
        raise BadSetting(
            _(
                "The adapter {path} changes {module} as a matrix of {shape} x {shape_2}, but "
                "it has {rows} x {columns} in this model; choose an adapter that was made for "
                "it.",
                path=adapter.path.name,
                module=module,
                shape=rows,
                shape_2=columns,
                rows=slot.rows,
                columns=slot.columns,
            )
        )


def _load(model: Model, name: str, values: Floats) -> Weight:
    raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return model.backend.load_weight(FileTensor(name, "F32", values.shape, raw))
