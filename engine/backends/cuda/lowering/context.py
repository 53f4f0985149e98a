"""How a node becomes calls: the tables of lowering, and what they need to know besides the node.

The lowering of a kernel is in the kernel's file, which ends with the rows of the table (`LOWER`); that of
products and attention, which have several kernels, is in this package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.backends.cuda.lowering.call import Call, TorchCall
from engine.backends.cuda.lowering.constants import Constants
from engine.backends.graph.cache import StateAddresses
from engine.backends.graph.nodes import Node
from engine.lazy_dataclass import dataclass
from engine.tensors import Floats

Calls = Sequence[Call | TorchCall]


@dataclass(frozen=True)
class Context:
    """What calls need to know in addition to their node."""

    cache: StateAddresses
    constants: Constants
    positions: int = 0
    """Of the longest text."""

    def vector(self, values: Floats | None, device: int) -> int:
        """The address of an array on a device, 0 for None."""
        return 0 if values is None else self.constants.array(values, device)


Table = Mapping[type[Node], Callable[[Context, Any], Calls]]
"""Lowers types of node to their calls."""
