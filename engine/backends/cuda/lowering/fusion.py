"""Neighbouring operations of a pass as one: norms of heads with their turn, columns that are turned, sums
with the norms around them.

What an operation made is left out only where nothing else reads it. Fewer launches: between two a GPU idles
for about a microsecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.backends.cuda.kernels.fused import RowNorm, sum_norm_call
from engine.backends.cuda.kernels.norm import MOST_KEPT
from engine.backends.cuda.lowering.call import Call
from engine.backends.cuda.lowering.nodes import (
    Build,
    Cut,
    ExpertProduct,
    HeadsNormed,
    Maker,
    Node,
    Product,
    RowNormed,
    Sum,
    Turn,
)
from engine.backends.graph.buffers import Buffer


def fused(nodes: Sequence[Node], result: Buffer) -> list[Node]:
    """The same pass with fewer operations; `result` is what it is made for."""
    return _Fusion(nodes, result).run()


class _Fusion:
    """`_makers` are the nodes that may be left out, by what they make; `_readers` how many nodes read a
    buffer.
    """

    def __init__(self, nodes: Sequence[Node], result: Buffer) -> None:
        self._nodes = list(nodes)
        self._makers = {node.y: node for node in nodes if isinstance(node, HeadsNormed | Cut | RowNormed)}
        self._readers: dict[Buffer, int] = {result: 1}
        for node in nodes:
            inputs = {*node.reads, *((node.x,) if isinstance(node, Product | ExpertProduct) else ())}
            for buffer in inputs:
                self._readers[buffer] = self._readers.get(buffer, 0) + 1
        self._left_out: set[Node] = set()

    def run(self) -> list[Node]:
        """The nodes that are left, in order."""
        out: list[Node] = []
        for at, node in enumerate(self._nodes):
            if node in self._left_out:
                continue
            if isinstance(node, Turn):
                out.append(self._turn(node))
            elif isinstance(node, Sum):
                out.append(self._sum(node, self._nodes[at + 1] if at + 1 < len(self._nodes) else None))
            else:
                out.append(node)
        return [node for node in out if node not in self._left_out]

    def _only_for(self, buffer: Buffer, kind: type[Node]) -> Node | None:
        """The node of this kind that made a buffer which one node alone reads."""
        maker = self._makers.get(buffer)
        return maker if isinstance(maker, kind) and self._readers[buffer] == 1 else None

    def _turn(self, node: Turn) -> Turn:
        normed = self._only_for(node.x, HeadsNormed)
        if isinstance(normed, HeadsNormed) and normed.heads == node.heads:
            self._left_out.add(normed)
            node = replace(node, x=normed.x, reads=normed.reads, norm=normed.norm)
        cut = self._only_for(node.x, Cut)
        if isinstance(cut, Cut):
            self._left_out.add(cut)
            node = replace(node, x=cut.x, reads=cut.reads, first=cut.start)
        return node

    def _sum(self, node: Sum, after: Node | None) -> Node:
        if not isinstance(after, RowNormed) or after.x is not node.y or node.y.width > MOST_KEPT:
            return node
        post, z = None, node.z
        before = self._only_for(z, RowNormed)
        if isinstance(before, RowNormed) and (before.norm.kind, before.norm.bias) == ("rms", 0):
            self._left_out.add(before)
            post, z = before.norm, before.x
        self._left_out.add(after)
        build = _sum_norm(node, z, post, after.norm)
        return Maker(device=node.device, reads=(z, node.x), y=after.y, build=build)


def _sum_norm(node: Sum, z: Buffer, post: RowNorm | None, norm: RowNorm) -> Build:
    def build(y: Buffer | None, kind: str, record: Buffer | None) -> tuple[Call, ...]:
        return (sum_norm_call(z, post, node.x, node.scale, node.y, norm, y, kind, record),)

    return build
