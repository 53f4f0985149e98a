"""The places of LoRA adapters in a model, by the names of Hugging Face's modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from engine.models.building.decoder import QUERY_PARTS
from engine.models.building.source import PARTS
from engine.models.layers.attention.latent import latent_orders
from engine.models.layers.attention.row_orders import fused_order, half_of_queries
from engine.models.layers.parts import Linear, Order, Slot
from engine.models.layers.recurrent.mixers import fused_orders, tiled_orders
from engine.models.names import TensorNames

if TYPE_CHECKING:
    from engine.models.architecture import Architecture
    from engine.models.config import ModelConfig

_LINEARS = (
    "query", "key", "value", "output", "gate", "up", "down", "query_key_value", "gate_up", "router",
    "shared_router", "shared_gate", "shared_up", "shared_down", "shared_gate_up",
)  # fmt: skip


def adapter_slots(
    architecture: Architecture, config: ModelConfig, names: TensorNames, linears: Mapping[str, Linear]
) -> dict[str, Slot]:
    """The slots by the names of Hugging Face's modules, of a model whose file has these `names`; none where
    adapters do not fit it.
    """
    whole, slots = architecture.hf_names, {}
    if architecture.gguf_scaled and names is architecture.gguf_names:
        return {}
    stack = config.cycles.first if config.cycles else 0
    for layer in range(config.layers):
        folder, own = whole.of(layer), names.of(layer)
        for field in _LINEARS:
            module = getattr(folder, field)
            slot = _slot(architecture, config, own, own.at(layer, stack), field, linears) if module else None
            if slot is not None:
                slots[folder.at(layer, stack) + module] = slot
        if folder.compressed is not None and own.compressed is not None:
            linear = linears.get(own.at(layer) + own.compressed.query_down)
            if linear is not None:
                slots[folder.at(layer) + folder.compressed.query_down] = Slot(
                    ((linear, None),), linear.weight.shape[0]
                )
        if config.latent is not None:
            slots |= _latent_slots(architecture, config, names, layer, linears)
        if layer in config.recurrent_layers and names.recurrent is not None:
            slots |= _recurrent_slots(architecture, config, names, layer, linears)
    if architecture.layers is not None:  # what these have besides, under the names of folders
        for module in (name for name in linears if " " not in name and name not in (names.head, names.embed)):
            slots.setdefault(module, Slot(((linears[module], None),), linears[module].weight.shape[0]))
    head = linears.get(names.head)
    if head is not None:
        slots[whole.head] = Slot(((head, None),), head.weight.shape[0])
    table = linears.get(names.embed)
    if table is not None:
        slots[whole.embed] = Slot(((table, None),), table.weight.shape[0], is_embedding=True)
    # An adapter was trained on the whole model, on its text part, or on the model without its head.
    inner = {name.partition(".")[2]: slot for name, slot in slots.items() if name != whole.head}
    named = {prefix + name: slot for name, slot in slots.items() for prefix in ("", "model.")}
    for prefix in architecture.prefixes:
        replaced = prefix.startswith("-")
        names_there = inner if replaced else slots
        named |= {prefix.removeprefix("-") + name: slot for name, slot in names_there.items()}
    return inner | named


def _slot(
    architecture: Architecture,
    config: ModelConfig,
    names: TensorNames,
    at: str,
    field: str,
    linears: Mapping[str, Linear],
) -> Slot | None:
    """The slot of one module in the layer named `at`; None if the model has no such module."""
    own = getattr(names, field)
    linear = linears.get(at + own) if own else None
    interleaved = architecture.interleaved_rows and names is architecture.gguf_names
    if linear is not None:
        rows = linear.weight.shape[0]
        if field == "query_key_value":
            return Slot(((linear, fused_order(config, architecture.hf_names)),), rows)
        return Slot(
            ((linear, _interleaved(config, rows) if interleaved and field in ("query", "key") else None),),
            rows,
        )
    if config.output_gate == "queries" and field == "query":
        found = [linears.get(at + own + end) for end in QUERY_PARTS]
        pairs = [(part, half_of_queries(config, i)) for i, part in enumerate(found) if part is not None]
        return Slot(tuple(pairs), 2 * config.heads * config.head_dim) if pairs else None
    if field.endswith("gate_up"):
        pair = (names.gate, names.up) if field == "gate_up" else (names.shared_gate, names.shared_up)
        gate, up = (linears.get(at + name) for name in pair)
        if gate is None or up is None:
            return None
        width = gate.weight.shape[0]
        both = np.arange(2 * width)
        return Slot(((gate, both[:width]), (up, both[width:])), 2 * width)
    found = [linears.get(at + getattr(names, part)) for part in ("query", "key", "value")]
    parts = [part for part in found if part is not None]
    if field != "query_key_value" or len(parts) < 3:
        return None
    # One matrix in the folder, three in the GGUF file.
    order = fused_order(config, architecture.hf_names)
    places = np.arange(sum(part.weight.shape[0] for part in parts)) if order is None else order
    start, pairs = 0, []
    for part, name in zip(parts, "qkv", strict=True):
        rows = part.weight.shape[0]
        mine = places[start : start + rows]
        pairs.append((part, mine[_interleaved(config, rows)] if interleaved and name != "v" else mine))
        start += rows
    return Slot(tuple(pairs), start)


def _latent_slots(
    architecture: Architecture,
    config: ModelConfig,
    names: TensorNames,
    layer: int,
    linears: Mapping[str, Linear],
) -> dict[str, Slot]:
    """The slots of latent attention, by the names of Hugging Face's modules. The matrix that makes keys and
    values of latents has none, since the pass does not have it in that form.
    """
    folder, own = architecture.hf_names.of(layer), names.of(layer)
    assert folder.latent is not None
    assert own.latent is not None
    orders, found = latent_orders(config, layer), {}
    for field in ("query_down", "query_up", "down", "query"):
        of, mine = (folder, own) if field == "query" else (folder.latent, own.latent)
        at = own.layer.format(layer) + getattr(mine, field)
        rows_of = dict(zip(PARTS, orders[field], strict=False)) if field in orders else {"": None}
        pairs = [(linears.get(at + end), order) for end, order in rows_of.items()]
        there = tuple((linear, order) for linear, order in pairs if linear is not None)
        if there:
            rows = sum(linear.weight.shape[0] for linear, _unused in there)
            found[folder.layer.format(layer) + getattr(of, field)] = Slot(there, rows)
    return found


def _recurrent_slots(
    architecture: Architecture,
    config: ModelConfig,
    names: TensorNames,
    layer: int,
    linears: Mapping[str, Linear],
) -> dict[str, Slot]:
    """The slots of a recurrent layer, by the names of Hugging Face's modules."""
    folder, own = architecture.hf_names.recurrent, names.recurrent
    assert folder is not None
    assert own is not None
    orders = tiled_orders(config.recurrent) if names is architecture.gguf_names else {}
    found = {}
    for field in ("input", "gate", "decay", "beta", "output"):
        module, mine = getattr(folder, field), getattr(own, field)
        linear = linears.get(names.layer.format(layer) + mine) if mine else None
        if module and linear is not None:
            pair = linear, orders.get(field) if field != "output" else None
            slot = Slot((pair,), linear.weight.shape[0], orders.get("output") if field == "output" else None)
            found[architecture.hf_names.layer.format(layer) + module] = slot
    return found | _fused_slots(architecture, config, names, layer, linears)


def _fused_slots(
    architecture: Architecture,
    config: ModelConfig,
    names: TensorNames,
    layer: int,
    linears: Mapping[str, Linear],
) -> dict[str, Slot]:
    """The slots of what a folder has in one matrix for a recurrent layer and the pass in two."""
    folder, own = architecture.hf_names.recurrent, names.recurrent
    assert folder is not None
    assert own is not None
    at, found = names.layer.format(layer), {}
    pairs = {
        "input": (own.input, own.gate) if own.gate else tuple(own.input + part for part in PARTS[:2]),
        "decay_beta": tuple(own.decay_beta + part for part in PARTS[:2]),
    }
    for field, orders in fused_orders(config.recurrent).items():
        module = getattr(folder, field)
        held = [linears.get(at + name) for name in pairs[field]]
        if not module or (field == "input" and folder.gate):
            continue
        there = tuple((made, order) for made, order in zip(held, orders, strict=True) if made is not None)
        if there:
            found[architecture.hf_names.layer.format(layer) + module] = Slot(there, sum(map(len, orders)))
    return found


def _interleaved(config: ModelConfig, rows: int) -> Order:
    """The row order in which llama.cpp's converter interleaves both halves of each head."""
    return np.ascontiguousarray(
        np.arange(rows).reshape(-1, 2, config.head_dim // 2).transpose(0, 2, 1)
    ).reshape(-1)
