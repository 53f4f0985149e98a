"""Checks that an adapter fits a model, and how large the vocabulary is with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from engine.errors import BadSetting
from engine.models.layers.parts import Linear, Slot
from engine.models.names import LATENT_HF
from engine.weights.adapter import Adapter
from engine.words import _

if TYPE_CHECKING:
    from engine.models.base import Model


def checked_slots(model: Model, adapter: Adapter, vocabulary: int) -> Mapping[str, Slot]:
    """The slots of the adapter's modules, in a model that has this `vocabulary` with its adapters.

    Raises `BadSetting` if it does not fit the model.
    """
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
        resized = of_vocabulary(model, slot) and change.shape[0] == vocabulary != slot.rows
        if resized and (change.magnitude is not None or change.bias is not None):
            raise _missing(adapter, module)
        _check_shape(adapter, module, slot, *change.shape, vocabulary if resized else slot.rows)
    for module, tensor in adapter.whole.items():
        slot = _slot(model, slots, adapter, module)
        resized = of_vocabulary(model, slot) and tensor.shape[0] == vocabulary
        rows, columns = tensor.shape
        _check_shape(adapter, module, slot, rows, columns, vocabulary if resized else slot.rows)
    for module, tensor in adapter.biases.items():
        slot = _slot(model, slots, adapter, module)
        if slot.is_embedding:
            raise _missing(adapter, module)
        rows = vocabulary if of_vocabulary(model, slot) else slot.rows
        _check_shape(adapter, module, slot, tensor.shape[0], slot.columns, rows)
    for module, (numbers, tensor) in adapter.tokens.items():
        slot = _slot(model, slots, adapter, module)
        if not slot.is_embedding and slot.linears[0][0] is not model.parts.head:
            raise _missing(adapter, module)
        rows = max(slot.rows, *(n + 1 for n in numbers))
        _check_shape(adapter, module, slot, rows, tensor.shape[1], slot.rows)
    if adapter.tied_tokens and not model.config.tied:
        raise _missing(adapter, min(adapter.tied_tokens) + ".token_adapter")
    return slots


def common_vocabulary(model: Model, adapters: Sequence[Adapter]) -> int:
    """The size of the vocabulary with these adapters. Raises `BadSetting` where they give it different ones,
    or leave the table of embeddings or the head as it was, and for a model that can have no other.
    """
    sizes: dict[int, Adapter] = {}
    for adapter in adapters:
        for module, tensor in adapter.whole.items():
            slot = model.slots.get(module)
            if slot is not None and slot.rows != tensor.shape[0] and of_vocabulary(model, slot):
                sizes[tensor.shape[0]] = adapter
    if not sizes:
        return model.own_vocabulary
    (rows, adapter), *others = sizes.items()
    partly = next((each for each in adapters if _is_partial(model, rows, each)), None)
    if not _can_resize(model):
        raise _not_resized(adapter, rows, model.own_vocabulary)
    if others and others[0][1] is not adapter:
        raise _two_sizes(adapter, rows, others[0][1], others[0][0])
    if others or partly is not None:
        raise _half_resized(partly or adapter, rows)
    return rows


def _can_resize(model: Model) -> bool:
    """Whether nothing but the table of embeddings and the head depends on the size of the vocabulary."""
    parts = model.parts
    of_head = parts.head.bias is None and parts.head_factors is None
    return of_head and model.config.per_layer is None and not parts.stack.lookups


def of_vocabulary(model: Model, slot: Slot) -> bool:
    """Whether it is the table of embeddings, or the head."""
    return slot.is_embedding or slot.linears[0][0] is model.parts.head


def _is_partial(model: Model, rows: int, adapter: Adapter) -> bool:
    """Whether an adapter gives new rows to only one of the table of embeddings and the head."""
    given = [name for name, tensor in adapter.whole.items() if tensor.shape[0] == rows]
    slots = [slot for slot in map(model.slots.get, given) if slot is not None and of_vocabulary(model, slot)]
    kinds = {slot.is_embedding for slot in slots}
    return len(kinds) == 1 and not any(tied_to(model, adapter, name) for name in given)


def tied_to(model: Model, adapter: Adapter, module: str) -> Linear | None:
    """What has this matrix of an adapter, too: the table of embeddings and the head, where they are tied."""
    slot = model.slots.get(module)
    table = next((found for found in model.slots.values() if found.is_embedding), None)
    if slot is None or table is None or not model.config.tied or module not in adapter.shared:
        return None
    if not of_vocabulary(model, slot):
        return None
    given = [model.slots.get(other) for other in adapter.whole]
    other = model.parts.head if slot.is_embedding else table.linears[0][0]
    return None if any(slot is not None and slot.linears[0][0] is other for slot in given) else other


def _not_resized(adapter: Adapter, rows: int, own: int) -> BadSetting:
    return BadSetting(
        _(
            "The adapter {path} has a vocabulary of {rows} tokens, but the vocabulary of this model must "
            "keep its {own} tokens; choose an adapter that does not change it.",
            path=adapter.path.name,
            rows=rows,
            own=own,
        )
    )


def _two_sizes(adapter: Adapter, rows: int, other: Adapter, other_rows: int) -> BadSetting:
    return BadSetting(
        _(
            "The adapter {path} has a vocabulary of {rows} tokens and the adapter {other} one of "
            "{other_rows}, so they cannot be used together; remove one of them from the list.",
            path=adapter.path.name,
            rows=rows,
            other=other.path.name,
            other_rows=other_rows,
        )
    )


def _half_resized(adapter: Adapter, rows: int) -> BadSetting:
    return BadSetting(
        _(
            "The adapter {path} has a vocabulary of {rows} tokens, but not both the embeddings and the "
            "output layer that belong to it; save the adapter with both, or choose another one.",
            path=adapter.path.name,
            rows=rows,
        )
    )


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


def _check_shape(adapter: Adapter, module: str, slot: Slot, rows: int, columns: int, expected: int) -> None:
    if (rows, columns) != (expected, slot.columns):
        raise BadSetting(
            _(
                "The adapter {path} changes {module} as a matrix of {shape} x {shape_2}, but "
                "it has {rows} x {columns} in this model; choose an adapter that was made for "
                "it.",
                path=adapter.path.name,
                module=module,
                shape=rows,
                shape_2=columns,
                rows=expected,
                columns=slot.columns,
            )
        )
