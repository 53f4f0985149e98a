"""The places of LoRA adapters in a model, by the names of Hugging Face's modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from engine.lazy_dataclass import dataclass
from engine.models.building.decoder import QUERY_PARTS
from engine.models.building.source import PARTS
from engine.models.layers.attention.row_orders import fused_order, half_of_queries
from engine.models.layers.parts import Linear, Order, Slot
from engine.models.names import RecurrentNames, TensorNames

if TYPE_CHECKING:
    from engine.models.architecture import Architecture
    from engine.models.config import ModelConfig

_LINEARS = (
    "query", "key", "value", "output", "gate", "up", "down", "query_key_value", "gate_up", "router",
    "shared_router", "shared_gate", "shared_up", "shared_down", "shared_gate_up",
)  # fmt: skip


def whole_slot(linear: Linear, is_embedding: bool = False) -> Slot:
    """The slot of a module that is one linear, with its rows in the same order."""
    return Slot(((linear, None),), linear.weight.shape[0], is_embedding=is_embedding)


def adapter_slots(
    architecture: Architecture, config: ModelConfig, names: TensorNames, linears: Mapping[str, Linear]
) -> dict[str, Slot]:
    """The slots by the names of Hugging Face's modules, of a model whose file has these `names`; none where
    adapters do not fit it.
    """
    whole = architecture.hf_names
    slots: dict[str, Slot] = {}
    if architecture.gguf_scaled and names is architecture.gguf_names:
        return {}
    for number in range(config.layers):
        slots |= _Layer(architecture, config, names, linears, number).slots()
    if architecture.layers is not None:  # what these have besides, under the names of folders
        for module in (name for name in linears if " " not in name and name not in (names.head, names.embed)):
            slots.setdefault(module, whole_slot(linears[module]))
    if (head := linears.get(names.head)) is not None:
        slots[whole.head] = whole_slot(head)
    if (table := linears.get(names.embed)) is not None:
        slots[whole.embed] = whole_slot(table, is_embedding=True)
    # An adapter was trained on the whole model, on its text part, or on the model without its head.
    inner = {name.partition(".")[2]: slot for name, slot in slots.items() if name != whole.head}
    named = {prefix + name: slot for name, slot in slots.items() for prefix in ("", "model.")}
    for prefix in architecture.prefixes:
        replaced = prefix.startswith("-")
        names_there = inner if replaced else slots
        named |= {prefix.removeprefix("-") + name: slot for name, slot in names_there.items()}
    return inner | named


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer of a model whose file has these `names`; slots are by the names of Hugging Face's modules."""

    architecture: Architecture
    config: ModelConfig
    names: TensorNames
    linears: Mapping[str, Linear]
    number: int

    def slots(self) -> dict[str, Slot]:
        """The slots of all modules of the layer that the model has."""
        folder, own = self.architecture.hf_names.of(self.number), self.names.of(self.number)
        stack = self.config.cycles.first if self.config.cycles else 0
        slots: dict[str, Slot] = {}
        for field in (*_LINEARS, "output_gate") if self.config.output_gate == "row" else _LINEARS:
            module = getattr(folder, field)
            slot = self._slot(own, own.at(self.number, stack), field) if module else None
            if slot is not None:
                slots[folder.at(self.number, stack) + module] = slot
        if folder.compressed is not None and own.compressed is not None:
            linear = self.linears.get(own.at(self.number) + own.compressed.query_down)
            if linear is not None:
                slots[folder.at(self.number) + folder.compressed.query_down] = whole_slot(linear)
        if self.config.latent is not None:
            slots |= self._latent(folder, own)
        if self.number in self.config.recurrent_layers and self.names.recurrent is not None:
            slots |= self._recurrent(self.names.recurrent)
        return slots

    def _slot(self, names: TensorNames, at: str, field: str) -> Slot | None:
        """The slot of one module of this layer, whose `names` begin with `at`; None if the model has none."""
        config, linears = self.config, self.linears
        own = getattr(names, field)
        linear = linears.get(at + own) if own else None
        interleaved = self.architecture.interleaved_rows and self.from_gguf
        if linear is not None:
            rows = linear.weight.shape[0]
            if field == "query_key_value":
                return Slot(((linear, fused_order(config, self.architecture.hf_names)),), rows)
            order = _interleaved(config, rows) if interleaved and field in ("query", "key") else None
            return Slot(((linear, order),), rows)
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
        return self._split(names, at, interleaved) if field == "query_key_value" else None

    def _split(self, names: TensorNames, at: str, interleaved: bool) -> Slot | None:
        """The slot of queries, keys and values: one matrix in the folder, three in the GGUF file."""
        found = [self.linears.get(at + name) for name in (names.query, names.key, names.value)]
        parts = [part for part in found if part is not None]
        if len(parts) < 3:
            return None
        order = fused_order(self.config, self.architecture.hf_names)
        places = np.arange(sum(part.weight.shape[0] for part in parts)) if order is None else order
        start, pairs = 0, []
        for part, name in zip(parts, "qkv", strict=True):
            rows = part.weight.shape[0]
            mine = places[start : start + rows]
            if interleaved and name != "v":
                mine = mine[_interleaved(self.config, rows)]
            pairs.append((part, mine))
            start += rows
        return Slot(tuple(pairs), start)

    def _latent(self, folder: TensorNames, own: TensorNames) -> dict[str, Slot]:
        """The slots of latent attention. The matrix that makes keys and values of latents has none, since the
        pass does not have it in that form.
        """
        from engine.models.layers.attention.latent import latent_orders

        assert folder.latent is not None
        assert own.latent is not None
        orders, found = latent_orders(self.config, self.number), {}
        for field in ("query_down", "query_up", "down", "query"):
            of, mine = (folder, own) if field == "query" else (folder.latent, own.latent)
            at = own.layer.format(self.number) + getattr(mine, field)
            rows_of = dict(zip(PARTS, orders[field], strict=False)) if field in orders else {"": None}
            pairs = [(self.linears.get(at + end), order) for end, order in rows_of.items()]
            there = tuple((linear, order) for linear, order in pairs if linear is not None)
            if there:
                rows = sum(linear.weight.shape[0] for linear, _unused in there)
                found[folder.layer.format(self.number) + getattr(of, field)] = Slot(there, rows)
        return found

    def _recurrent(self, own: RecurrentNames) -> dict[str, Slot]:
        """The slots of a recurrent layer."""
        from engine.models.layers.recurrent.mixers import fused_orders, tiled_orders

        folder = self.architecture.hf_names.recurrent
        assert folder is not None
        orders = tiled_orders(self.config.recurrent) if self.from_gguf else {}
        prefix = self.architecture.hf_names.layer.format(self.number)
        at = self.names.layer.format(self.number)
        found = {}
        for field in ("input", "gate", "decay", "beta", "output"):
            module, mine = getattr(folder, field), getattr(own, field)
            linear = self.linears.get(at + mine) if mine else None
            if module and linear is not None:
                rows, inputs = (None, orders.get(field)) if field == "output" else (orders.get(field), None)
                found[prefix + module] = Slot(((linear, rows),), linear.weight.shape[0], inputs)
        # What a folder has in one matrix and the pass in two.
        parts = {
            "input": (own.input, own.gate) if own.gate else tuple(own.input + part for part in PARTS[:2]),
            "decay_beta": tuple(own.decay_beta + part for part in PARTS[:2]),
        }
        for field, of_parts in fused_orders(self.config.recurrent).items():
            module = getattr(folder, field)
            if not module or (field == "input" and folder.gate):
                continue
            held = [self.linears.get(at + name) for name in parts[field]]
            pairs = zip(held, of_parts, strict=True)
            there = tuple((linear, order) for linear, order in pairs if linear is not None)
            if there:
                found[prefix + module] = Slot(there, sum(map(len, of_parts)))
        return found

    @property
    def from_gguf(self) -> bool:
        """Whether the model is of a GGUF file, so that rows are in the order of llama.cpp's converter."""
        return self.names is self.architecture.gguf_names


def _interleaved(config: ModelConfig, rows: int) -> Order:
    """The row order in which llama.cpp's converter interleaves both halves of each head."""
    return np.ascontiguousarray(
        np.arange(rows).reshape(-1, 2, config.head_dim // 2).transpose(0, 2, 1)
    ).reshape(-1)
