"""Applies LoRA adapters to a loaded model and removes them.

The weights stay unchanged: adapters are added to the pass, which must then be recorded again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

import numpy as np

from engine.backends.base import Weight
from engine.lazy_dataclass import dataclass
from engine.models.layers.parts import Changes, Linear, Order, Slot
from engine.models.lora.checks import checked_slots, common_vocabulary, tied_to
from engine.tensors import Floats
from engine.weights.adapter import Adapter, LowRank
from engine.weights.tensor import FileTensor

if TYPE_CHECKING:
    from engine.models.base import Model


@dataclass(slots=True)
class _Sum:
    """The changes of one matrix (N, K) by all adapters, before the backend has them.

    `factors` (N,) multiply its rows, `whole` (N, K) is added then; None: no change. N are the `rows` that the
    matrix has with the adapters.
    """

    linear: Linear
    rows: int
    factors: Floats | None = None
    whole: Floats | None = None
    changes: Changes = field(default_factory=Changes)

    def scale(self, factors: Floats | np.float32) -> None:
        """Add `factors` - 1 to the factors."""
        if self.factors is None:
            self.factors = np.ones(self.rows, np.float32)
        self.factors = self.factors + (factors - np.float32(1))

    def add_bias(self, bias: Floats) -> None:
        self.changes.bias = bias if self.changes.bias is None else self.changes.bias + bias

    def add_whole(self, matrix: Floats) -> None:
        matrix = resized(matrix, self.rows)
        self.whole = matrix if self.whole is None else self.whole + matrix

    def replace(self, matrix: Floats, strength: float) -> None:
        """Put `matrix` in the place of the model's, so far as `strength` says."""
        self.scale(np.float32(1 - strength))
        self.add_whole(np.float32(strength) * matrix)


class _Sums:
    """The changes of a model's matrices; its table of embeddings and its head get `vocabulary` rows."""

    def __init__(self, model: Model, vocabulary: int) -> None:
        self.made: dict[int, _Sum] = {}
        self._changes = {id(model.parts.changes), id(model.parts.head.adapters)}
        self._vocabulary = vocabulary

    def of(self, linear: Linear) -> _Sum:
        """The changes of one linear."""
        key = id(linear.adapters)
        rows = self._vocabulary if key in self._changes else linear.weight.shape[0]
        return self.made.setdefault(key, _Sum(linear, rows))


def apply_adapters(model: Model, adapters: Sequence[tuple[Adapter, float]]) -> Callable[[], None]:
    """Replace the model's adapters by these, each scaled by its strength: what an adapter changes of a matrix
    or of a bias is multiplied by it. Returns what puts the adapters back that it had before.

    Programs that are already recorded do not change. Raises `BadSetting` for an adapter of another model, and
    the errors of `open_checkpoint` where the model's weights must be read again and cannot; leaves the model
    unchanged then.
    """
    vocabulary = common_vocabulary(model, [adapter for adapter, _strength in adapters])
    sums = _Sums(model, vocabulary)
    for adapter, strength in adapters:
        slots = checked_slots(model, adapter, vocabulary)
        for module, change in adapter.modules.items():
            add = _add_to_table if change.of_table else _add_low_rank
            add(model, slots[module], change, strength, sums)
        for module, tensor in adapter.whole.items():
            values = tensor.dequantise()
            for linear, order in _ordered(slots[module]):
                sums.of(linear).replace(values if order is None else values[order], strength)
            if (other := tied_to(model, adapter, module)) is not None:
                sums.of(other).replace(values, strength)
        for module, tensor in adapter.biases.items():
            bias = tensor.dequantise()
            for linear, order in slots[module].linears:
                mine = bias if order is None else bias[order]
                old = np.float32(0) if linear.bias is None else linear.bias
                sums.of(linear).add_bias(np.float32(strength) * (mine - old))
        for module in adapter.tokens:
            _add_tokens(model, slots, adapter, module, strength, sums)
    for made in sums.made.values():
        _finish(model, made)
    put_back = _kept(model)
    for old_changes in model.adapted:
        old_changes.clear()
    model.adapted = [made.linear.adapters for made in sums.made.values()]
    model.config = replace(model.config, vocab_size=vocabulary)
    for made in sums.made.values():
        changes = made.linear.adapters
        changes.weight, changes.factors = made.changes.weight, made.changes.factors
        changes.bias = made.changes.bias
        changes.pairs += made.changes.pairs
    return put_back


def _kept(model: Model) -> Callable[[], None]:
    """What puts back the changes and the vocabulary that the model has now."""
    adapted, config = model.adapted, model.config
    before = [replace(changes, pairs=[*changes.pairs]) for changes in adapted]

    def put_back() -> None:
        for changes in model.adapted:
            changes.clear()
        for changes, old in zip(adapted, before, strict=True):
            changes.weight, changes.factors, changes.bias = old.weight, old.factors, old.bias
            changes.pairs += old.pairs
        model.adapted, model.config = adapted, config

    return put_back


def _ordered(slot: Slot) -> Iterator[tuple[Linear, Order | tuple[Order | slice, Order] | None]]:
    """The linears, each with what picks its matrix out of the module's."""
    for linear, order in slot.linears:
        if slot.inputs is None:
            yield linear, order
        else:
            yield linear, (slice(None) if order is None else order[:, None], slot.inputs)


def _add_low_rank(model: Model, slot: Slot, change: LowRank, strength: float, sums: _Sums) -> None:
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
        made = sums.of(linear)
        rows = resized(up if order is None else _rows(up, order), made.rows)
        if magnitude is not None:
            norms = np.linalg.norm(model.stored(linear.weight) + rows @ inputs, axis=1)
            mine = magnitude if order is None else magnitude[order]
            factors = np.divide(mine, norms, out=np.zeros_like(mine), where=norms != 0)
            made.scale(1 + np.float32(strength) * (factors - 1))
            rows = factors[:, None] * rows
        if bias is not None:
            made.add_bias(bias if order is None else bias[order])
        made.changes.pairs.append((down, _load(model, change.up.name, rows * np.float32(strength))))


def _add_to_table(model: Model, slot: Slot, change: LowRank, strength: float, sums: _Sums) -> None:
    """Add a low-rank product to a table of embeddings, which takes the place of the model's."""
    up = change.up.dequantise() * np.float32(change.scale * strength)
    down = change.down.dequantise()
    for linear, order in slot.linears:
        made = sums.of(linear)
        rows: Floats = up if order is None else _rows(up, order)
        product = np.matmul(rows, down.T, dtype=np.float32)
        made.scale(np.float32(1))
        made.add_whole(product)


def _add_tokens(
    model: Model, slots: Mapping[str, Slot], adapter: Adapter, module: str, strength: float, sums: _Sums
) -> None:
    """Put an adapter's rows in the place of those of some tokens; with tied tables in the head, too, unless
    the adapter has rows for that, as PEFT does. Of a head, that is a product of low rank: for each token,
    where it is and what is added there.
    """
    numbers, rows = list(adapter.tokens[module][0]), adapter.tokens[module][1].dequantise()
    ((table, _order),) = slots[module].linears
    added = np.float32(strength) * (rows - model.stored(table.weight)[numbers])
    heads = [] if slots[module].is_embedding else [table]
    if slots[module].is_embedding:
        made = sums.of(table)
        made.scale(np.float32(1))
        change = np.zeros(table.weight.shape, np.float32)
        change[numbers] = added
        made.add_whole(change)
        own = any(slots[other].linears[0][0] is model.parts.head for other in adapter.tokens)
        heads = [model.parts.head] if model.config.tied and not own else []
    for head in heads:
        places = np.zeros((sums.of(head).rows, len(numbers)), np.float32)
        places[numbers, np.arange(len(numbers))] = 1
        pair = _load(model, "tokens", added), _load(model, "tokens", places)
        sums.of(head).changes.pairs.append(pair)


def resized(matrix: Floats, rows: int) -> Floats:
    """The first `rows` rows of a matrix (N, K); zeros where it has fewer."""
    if len(matrix) >= rows:
        return matrix[:rows]
    return np.concatenate([matrix, np.zeros((rows - len(matrix), matrix.shape[1]), np.float32)])


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
            matrix = matrix + made.factors[:, None] * resized(model.stored(weight), made.rows)
        changes.weight = _load(model, "adapter", matrix)
    elif made.factors is not None:
        zeros = np.zeros((made.rows, 1), np.float32)
        changes.factors = _load(model, "adapter", zeros), made.factors


def _load(model: Model, name: str, values: Floats) -> Weight:
    raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return model.backend.load_weight(FileTensor(name, "F32", values.shape, raw))
