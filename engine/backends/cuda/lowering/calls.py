"""From a pass's nodes to its calls: records where products want them, neighbours that are one call."""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.cuda.kernels import norm as norms
from engine.backends.cuda.kernels import packed_activations_write, pointwise, rope, rows
from engine.backends.cuda.kernels.linear import gemm, linear
from engine.backends.cuda.kernels.packed_activations import record_buffer
from engine.backends.cuda.lowering.call import Call, TorchCall
from engine.backends.cuda.lowering.fusion import fused
from engine.backends.cuda.lowering.nodes import (
    Cut,
    ExpertProduct,
    HeadsNormed,
    Maker,
    Move,
    Node,
    Product,
    Ready,
    Sum,
    Turn,
)
from engine.backends.cuda.lowering.recorder import Recorder
from engine.backends.cuda.lowering.recording import Recording, Step
from engine.backends.graph.buffers import Buffer

MOST_PARTS = 3
"""Products of one call."""


def finish(recorder: Recorder, logits: Buffer) -> Recording:
    """The recording of all that a recorder noted."""
    writer = _Writer(recorder, logits)
    few, many = writer.few(), writer.many()
    last = next(node.device for node in reversed(recorder.nodes) if not isinstance(node, Move))
    return Recording(few, many, logits, last, recorder.positions, recorder.kept)


class _Writer:
    """`wanted[x]` are the records of x that products read, by their kind."""

    def __init__(self, recorder: Recorder, logits: Buffer) -> None:
        self._nodes, self._processors = fused(recorder.nodes, logits), recorder.processors
        self._wanted: dict[Buffer, dict[str, Buffer]] = {}
        self._floats: set[Buffer] = {logits}
        for node in self._nodes:
            self._floats |= set(node.reads)
            if isinstance(node, Product | ExpertProduct):
                kind = node.weight.weight_layout.record
                if kind == "floats":
                    self._floats.add(node.x)
                else:
                    self._wanted.setdefault(node.x, {}).setdefault(kind, record_buffer(kind, node.x))

    # -- few rows

    def few(self) -> list[Step]:
        """Calls of steps of few rows."""
        out: list[Step] = []
        made: set[tuple[Buffer, str]] = set()
        at = 0
        while at < len(self._nodes):
            node = self._nodes[at]
            group = self._group(at)
            at += len(group)
            if isinstance(node, Product | ExpertProduct):
                self._record(out, node, made)
            out += [(node.device, call) for call in self._calls(node, group, made)]
        return out

    def _calls(
        self, node: Node, group: Sequence[Node], made: set[tuple[Buffer, str]]
    ) -> Sequence[Call | Move]:
        if isinstance(node, Ready):
            return node.operation.few
        if isinstance(node, Maker):
            wanted = self._wanted.get(node.y, {})
            # One kind of record is written at once; a second one, which is rare, is made of the floats.
            kind = next(iter(wanted), "none")
            if kind != "none":
                made.add((node.y, kind))
            floats = node.y in self._floats or len(wanted) > 1 or not wanted
            return node.build(node.y if floats else None, kind, wanted.get(kind))
        if isinstance(node, Product):
            parts = [_part(each) for each in group if isinstance(each, Product)]
            return (linear.linear_call(parts, self._input(node), self._processors[node.device]),)
        if isinstance(node, ExpertProduct):
            x, processors = self._input(node), self._processors[node.device]
            return (
                linear.expert_call(node.table, x, node.ids, node.y, processors, node.bias, node.bias_stride),
            )
        if isinstance(node, Turn):
            return (_turned(group),)
        assert isinstance(node, Move | HeadsNormed | Cut | Sum)
        return (node if isinstance(node, Move) else _simple(node),)

    def _input(self, node: Product | ExpertProduct) -> Buffer:
        kind = node.weight.weight_layout.record
        return node.x if kind == "floats" else self._wanted[node.x][kind]

    def _record(self, out: list[Step], node: Product | ExpertProduct, made: set[tuple[Buffer, str]]) -> None:
        """Make the record of a product's input, where nothing made it on the way."""
        kind = node.weight.weight_layout.record
        if kind != "floats" and (node.x, kind) not in made:
            made.add((node.x, kind))
            out.append(
                (node.device, packed_activations_write.record_call(kind, node.x, self._wanted[node.x][kind]))
            )

    def _group(self, at: int, weight_layouts: bool = False) -> list[Node]:
        """The node at `at`, with the neighbours that are one call with it; `weight_layouts`: products may
        be of several.
        """
        first, group = self._nodes[at], [self._nodes[at]]
        for other in self._nodes[at + 1 :]:
            if isinstance(first, Product) and isinstance(other, Product):
                alike = weight_layouts or (
                    other.weight.weight_layout is first.weight.weight_layout and len(group) < MOST_PARTS
                )
                made = {each.y for each in group if isinstance(each, Product)}
                if alike and other.x is first.x and other.residual not in made:
                    group.append(other)
                    continue
            if (
                isinstance(first, Turn)
                and isinstance(other, Turn)
                and len(group) < 2
                and _alike(first, other)
            ):
                group.append(other)
                continue
            break
        return group

    # -- many rows

    def many(self) -> list[Step]:
        """Calls of longer steps."""
        out: list[Step] = []
        at = 0
        while at < len(self._nodes):
            node, group = self._nodes[at], self._group(at, weight_layouts=True)
            at += len(group)
            out += [(node.device, step) for step in self._long(node, group)]
        return out

    def _long(self, node: Node, group: Sequence[Node]) -> Sequence[Call | TorchCall | Move]:
        if isinstance(node, Ready):
            return node.operation.few if node.operation.many is None else node.operation.many
        if isinstance(node, Maker):
            if node.long is not None:
                return node.long.many or node.long.few
            return node.build(node.y, "none", None)
        if isinstance(node, Product):
            parts = [_part(each) for each in group if isinstance(each, Product)]
            return (gemm.product_call(parts, node.x, self._processors[node.device]),)
        if isinstance(node, ExpertProduct):
            processors = self._processors[node.device]
            return (
                gemm.expert_product_call(
                    node.table, node.x, node.ids, node.y, processors, node.bias, node.bias_stride
                ),
            )
        if isinstance(node, Turn):
            return (_turned(group),)
        assert isinstance(node, Move | HeadsNormed | Cut | Sum)
        return (node if isinstance(node, Move) else _simple(node),)


def _simple(node: HeadsNormed | Cut | Sum) -> Call:
    """The call of a node that nothing else is one with."""
    if isinstance(node, HeadsNormed):
        norm = node.norm
        return norms.heads_norm_call(
            (norm.kind, norm.eps), node.x, norm.weight, norm.bias, node.y, node.heads, norm.shared
        )
    if isinstance(node, Cut):
        return rows.columns_call(node.x, node.start, node.y)
    return pointwise.add_call(node.x, node.z, node.y, node.scale)


def _alike(one: Turn, other: Turn) -> bool:
    """Whether two turns are one call."""
    kinds = {turn.norm.kind if turn.norm else "none" for turn in (one, other)}
    widths = {turn.y.width // turn.heads for turn in (one, other)}
    return one.table is other.table and len(kinds) == len(widths) == 1 and other.x is not one.y


def _part(node: Product) -> linear.Part:
    return linear.Part(node.weight, node.y, node.bias, node.residual)


def _turned(group: Sequence[Node]) -> Call:
    turns = [node for node in group if isinstance(node, Turn)]
    first = turns[0]
    parts = [rope.Turned(turn.x, turn.y, turn.heads, turn.norm, turn.first) for turn in turns]
    return rope.rope_call(parts, first.table, first.cos, first.sin)
