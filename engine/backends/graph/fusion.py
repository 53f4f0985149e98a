"""Fewer operations for the same pass: patterns of nodes that become one.

A backend's lowering names the patterns that it has kernels for. What a node makes is left out only where
nothing else reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

from engine.backends.graph.attention import KvWrite, Rope, RopeGroup
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.linear import Linear, LinearGroup
from engine.backends.graph.nodes import Node, Value
from engine.backends.graph.rows import Add, AddNorm, Columns, Norm

NodeT = TypeVar("NodeT", bound=Value)


class Graph:
    """The nodes of a pass that makes `result`: what makes a buffer, how many nodes read it, what follows."""

    def __init__(self, nodes: Sequence[Node], result: Buffer) -> None:
        self._makers = {node.y: node for node in nodes if isinstance(node, Value)}
        self._readers = Counter([result])
        for node in nodes:
            self._readers.update(set(node.reads))
        self._after = dict(pairwise(nodes))

    def only_for_this(self, buffer: Buffer, kind: type[NodeT]) -> NodeT | None:
        """The node of this kind that makes a buffer which one node alone reads."""
        maker = self._makers.get(buffer)
        return maker if isinstance(maker, kind) and self._readers[buffer] == 1 else None

    def after(self, node: Node) -> Node | None:
        """The node recorded right after this one."""
        return self._after.get(node)


Pattern = Callable[[Graph, Node], tuple[Node, Sequence[Node]] | None]
"""Gives what replaces a node, and the nodes that the replacement makes superfluous; None where it does not
match.
"""


def fuse(nodes: Sequence[Node], result: Buffer, patterns: Sequence[Pattern]) -> list[Node]:
    """The same pass in fewer nodes; each pattern sees what those before it made of a node."""
    graph, out, absorbed = Graph(nodes, result), list[Node](), set[Node]()
    for node in nodes:
        if node in absorbed:
            continue
        for pattern in patterns:
            if (match := pattern(graph, node)) is not None:
                node = match[0]
                absorbed.update(match[1])
        out.append(node)
    return [node for node in out if node not in absorbed]


def norm_rope(graph: Graph, node: Node) -> tuple[Node, Sequence[Node]] | None:
    """The norm of each head, then their rotation."""
    norm = graph.only_for_this(node.x, Norm) if isinstance(node, Rope) and node.norm is None else None
    if norm is None or not isinstance(node, Rope) or not 1 < norm.heads == node.heads:
        return None
    return replace(node, x=norm.x, norm=norm.params), [norm]


def columns_rope(graph: Graph, node: Node) -> tuple[Node, Sequence[Node]] | None:
    """Columns of a wider row, rotated."""
    columns = graph.only_for_this(node.x, Columns) if isinstance(node, Rope) else None
    if columns is None or not isinstance(node, Rope):
        return None
    return replace(node, x=columns.x, first=columns.first), [columns]


def columns_kv_write(graph: Graph, node: Node) -> tuple[Node, Sequence[Node]] | None:
    """Keys and values that are columns of a wider row, written from there."""
    if not isinstance(node, KvWrite):
        return None
    k = graph.only_for_this(node.k, Columns)
    v = None if node.v is None else graph.only_for_this(node.v, Columns)
    if k is not None:
        node = replace(node, k=k.x, k_first=k.first)
    if v is not None:
        node = replace(node, v=v.x, v_first=v.first)
    return node, [each for each in (k, v) if each is not None]


def add_norm(most_width: int) -> Pattern:
    """A sum and the norm of its rows, of up to `most_width` columns, and the RMS norm of what is added."""

    def pattern(graph: Graph, node: Node) -> tuple[Node, Sequence[Node]] | None:
        norm = graph.after(node) if isinstance(node, Add) else None
        if not isinstance(norm, Norm) or not isinstance(node, Add) or norm.x is not node.y:
            return None
        if norm.heads > 1 or node.y.width > most_width:
            return None
        post = graph.only_for_this(node.z, Norm)
        if post is None or post.heads > 1 or post.params.kind != "rms":
            z, params, absorbed = node.z, None, [norm]
        else:
            z, params, absorbed = post.x, post.params, [norm, post]
        fused = AddNorm(
            x=node.x, z=z, scale=node.scale, post=params, total=node.y, params=norm.params, y=norm.y
        )
        return fused, absorbed

    return pattern


# -- neighbours


def group_linears(nodes: Sequence[Node], most: int = 0, any_layout: bool = False) -> list[Node]:
    """Each product as a group with those of the same input right after it: at most `most`, 0 for any number,
    and of one weight layout unless `any_layout`.
    """
    out: list[Node] = []
    for node in nodes:
        group = out[-1] if out else None
        if not isinstance(node, Linear):
            out.append(node)
        elif (
            isinstance(group, LinearGroup)
            and len(group.parts) != most
            and group.parts[0].x is node.x
            and node.residual not in {part.y for part in group.parts}
            and (any_layout or _layout(group.parts[0]) is _layout(node))
        ):
            out[-1] = LinearGroup(parts=(*group.parts, node))
        else:
            out.append(LinearGroup(parts=(node,)))
    return out


def _layout(node: Linear) -> object:
    return getattr(node.weight, "weight_layout", None)


def group_ropes(nodes: Sequence[Node]) -> list[Node]:
    """Each rotation as a group with the next one, if that has the same table, head size and kind of norm."""
    out: list[Node] = []
    for node in nodes:
        group = out[-1] if out else None
        if not isinstance(node, Rope):
            out.append(node)
        elif isinstance(group, RopeGroup) and len(group.parts) == 1 and _alike(group.parts[0], node):
            out[-1] = RopeGroup(parts=(*group.parts, node))
        else:
            out.append(RopeGroup(parts=(node,)))
    return out


def _alike(one: Rope, other: Rope) -> bool:
    kinds = {each.norm.kind if each.norm else "none" for each in (one, other)}
    sizes = {each.y.width // each.heads for each in (one, other)}
    return one.table is other.table and len(kinds) == len(sizes) == 1 and other.x is not one.y
