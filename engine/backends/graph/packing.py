"""Packed activations: products that read their input in a shorter form, made once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from engine.backends.base import Weight
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.linear import Linear, Pack
from engine.backends.graph.moe import ExpertLinear
from engine.backends.graph.nodes import Node, Producer

Form = Callable[[Weight], tuple[str, int] | None]
"""The form in which a product with a weight reads its input, and its 4-byte numbers a row; None: floats."""


def pack_inputs(nodes: Sequence[Node], form: Form, *, keep_floats: bool) -> list[Node]:
    """With a `Pack` before the first product that reads a packed input; the others share it.

    With `keep_floats` products read both their input and the packed one, otherwise the packed one only.
    """
    out: list[Node] = []
    packed: dict[tuple[Buffer, str, int], Buffer] = {}
    for node in nodes:
        found = form(node.weight) if isinstance(node, Linear | ExpertLinear) else None
        if found is not None and isinstance(node, Linear | ExpertLinear):
            key = node.x, *found
            if key not in packed:
                packed[key] = node.x.like(found[1])
                out.append(Pack(x=node.x, form=found[0], y=packed[key]))
            node = replace(node, packed=packed[key]) if keep_floats else replace(node, x=packed[key])
        out.append(node)
    return out


def pack_where_made(nodes: Sequence[Node], result: Buffer) -> list[Node]:
    """The nodes that make rows write them packed, in the first form that is needed; floats too, if something
    reads them.
    """
    producers = {node.y: node for node in nodes if isinstance(node, Producer) and _can_pack(node)}
    first: dict[Buffer, Pack] = {}
    for node in nodes:
        if isinstance(node, Pack) and node.x in producers:
            first.setdefault(node.x, node)
    folded = set(first.values())
    floats = {result}.union(*(node.reads for node in nodes if node not in folded))
    out: list[Node] = []
    for node in nodes:
        if isinstance(node, Producer) and (pack := first.get(node.y)) is not None:
            node = replace(node, packed=pack.y, form=pack.form, floats=node.y in floats)
        if node not in folded:
            out.append(node)
    return out


def _can_pack(node: Producer) -> bool:
    return getattr(node, "heads", 1) == 1
