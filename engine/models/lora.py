"""Putting LoRA adapters on a loaded model and taking them off: its weights stay as they are, the passes are recorded anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.backends.base import Weight
from engine.errors import BadSetting
from engine.models.decoder import ungrouped_rows
from engine.models.layers import Linear
from engine.models.names import TensorNames
from engine.weights.adapter import Adapter
from engine.weights.tensor import FileTensor

if TYPE_CHECKING:
    from engine.models.base import Model
    from engine.models.config import ModelConfig
    from engine.models.family import Family

_LINEARS = (
    "query", "key", "value", "output", "gate", "up", "down", "query_key_value", "gate_up",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """A linear that an adapter can change; `order`: the file has the module's rows in this order."""

    linear: Linear
    order: npt.NDArray[np.int64] | None = None


def adapter_slots(family: Family, config: ModelConfig, names: TensorNames, linears: Mapping[str, Linear]) -> dict[str, Slot]:
    """{module's name in a Hugging Face folder: slot} of a model whose file has these `names`."""
    folder, slots = family.hf_names, {}
    foreign = names is family.gguf_names
    for layer in range(config.layers):
        for field in fields(TensorNames):
            if field.name not in _LINEARS:
                continue
            own, module = getattr(names, field.name), getattr(folder, field.name)
            linear = linears.get(names.layer.format(layer) + own) if own and module else None
            if linear is not None:
                order = _order(family, config, names, field.name, linear) if foreign or names.grouped else None
                slots[folder.layer.format(layer) + module] = Slot(linear, order)
    head = linears.get(names.head)
    if head is not None:
        slots[folder.head] = Slot(head)
    prefixes = [*family.prefixes, "model.", "-"]
    return {prefix + name: slot for name, slot in slots.items() for prefix in dict.fromkeys(p for p in prefixes if p != "-")} | {
        name.removeprefix("model."): slot for name, slot in slots.items()
    }


def _order(family: Family, config: ModelConfig, names: TensorNames, field: str, linear: Linear) -> npt.NDArray[np.int64] | None:
    """Where the rows of the loaded matrix lie in the module's."""
    if field == "query_key_value" and family.hf_names.grouped:
        return ungrouped_rows(config)
    if field in ("query", "key") and family.turned_rows and names is family.gguf_names:
        # Each head's first and second half are interleaved (llama.cpp's conversion of Llama's files).
        rows = np.arange(linear.weight.shape[0]).reshape(-1, 2, config.head_dim // 2)
        return np.ascontiguousarray(rows.transpose(0, 2, 1)).reshape(-1)
    return None


def put_on(model: Model, adapters: Sequence[tuple[Adapter, float]]) -> None:
    """Have exactly these adapters on the model, each times its strength; programs recorded before do not see it.

    Raises `BadSetting`, with the model unchanged, for an adapter of another model.
    """
    made: list[tuple[Linear, tuple[Weight, Weight]]] = []
    for adapter, strength in adapters:
        made += _pairs(model, adapter, strength)
    for slot in model.slots.values():
        slot.linear.adapters.clear()
    for linear, pair in made:
        linear.adapters.append(pair)


def _pairs(model: Model, adapter: Adapter, strength: float) -> Iterable[tuple[Linear, tuple[Weight, Weight]]]:
    for module, change in adapter.modules.items():
        slot = model.slots.get(module)
        if slot is None:
            raise BadSetting(f"The adapter {adapter.path.name} changes {module}, which this model does not have; take it off the list.")
        rows, columns = slot.linear.weight.shape
        if (change.up.shape[0], change.down.shape[1]) != (rows, columns):
            raise BadSetting(
                f"The adapter {adapter.path.name} changes {module} as a matrix of {change.up.shape[0]} x {change.down.shape[1]}, "
                f"but it has {rows} x {columns} in this model; choose an adapter that was made for it."
            )
        up = change.up.dequantise() * np.float32(change.scale * strength)
        if slot.order is not None:
            up = up[slot.order]
        yield slot.linear, (_load(model, change.down.name, change.down.dequantise()), _load(model, change.up.name, up))


def _load(model: Model, name: str, values: npt.NDArray[np.float32]) -> Weight:
    raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return model.backend.load_weight(FileTensor(name, "F32", values.shape, raw))
