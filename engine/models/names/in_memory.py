"""The names that transformers 5 has in memory where it saves others: those of folders whose tensors were
saved as they are, for example by a trainer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.names.tensors import RecurrentNames, TensorNames
from engine.models.names.usual import with_experts
from engine.tensors import RawTensor


def experts_in_mlp(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """Of mixtures whose makers call the module of the experts `block_sparse_moe`."""
    if not any(name.endswith(".mlp.experts.gate_up_proj") for name in tensors):
        return names
    router = "mlp.router" if any(".mlp.router." in name for name in tensors) else "mlp.gate"
    correction = names.correction.replace("block_sparse_moe.", "mlp.")
    return replace(with_experts(names, "mlp.experts"), router=router, correction=correction)


def delta_in_memory(names: RecurrentNames, tensors: Mapping[str, RawTensor]) -> RecurrentNames:
    """Of delta nets: one convolution of queries, keys and values; what makes decays is a module."""
    at = names.query.rpartition(".")[0] + "."
    if any(name.endswith(f".{at}conv1d.weight") for name in tensors):
        names = replace(names, convolutions=(at + "conv1d",))
    if not any(f".{at}forget_gate." in name for name in tensors):
        return names
    moved = {part: getattr(names, part) for part in ("rate", "shift", "decay", "decay_up")}
    return replace(names, **{part: name.replace(at, at + "forget_gate.") for part, name in moved.items()})
