"""Lowers a model's forward function to the kernel calls that a program replays."""

from __future__ import annotations

from engine.backends.base import Forward
from engine.backends.cpu.kernels import (
    balance,
    generalised_delta,
    moe,
    ngrams,
    norm,
    pointwise,
    pool,
    recurrent,
    rope,
    rows,
    weighted_mean,
)
from engine.backends.cpu.kernels.linear import heads
from engine.backends.cpu.kernels.sample import add_sampling
from engine.backends.cpu.lowering import attention, linear
from engine.backends.cpu.lowering.call import Calls, Table
from engine.backends.cpu.lowering.constants import Constants
from engine.backends.graph.attention import CrossAttention
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.cache import StateAddresses
from engine.backends.graph.fusion import columns_kv_write, fuse, group_linears
from engine.backends.graph.packing import pack_inputs
from engine.backends.graph.recorder import Recorder
from engine.backends.graph.rows import Given

PATTERNS = (columns_kv_write,)
"""The fusions that the CPU has kernels for."""
LOWER: Table = {
    **norm.LOWER,
    **pointwise.LOWER,
    **rows.LOWER,
    **ngrams.LOWER,
    **rope.LOWER,
    **moe.LOWER,
    **recurrent.LOWER,
    **generalised_delta.LOWER,
    **pool.LOWER,
    **balance.LOWER,
    **weighted_mean.LOWER,
    **linear.LOWER,
    **heads.LOWER,
    **attention.LOWER,
}
"""The function that adds the calls of each type of node."""


class LoweredPass:
    """A pass as kernel calls: `operations`, the buffer of the logits, the positions of its tables, and the
    block by which it samples, or None.
    """

    def __init__(
        self,
        forward: Forward,
        cache: StateAddresses,
        prompt_bits: int = 16,
        constants: Constants | None = None,
        threads: int = 1,
    ) -> None:
        recorder = Recorder()
        self.logits: Buffer = forward(recorder)
        self.positions, self.rope_positions = recorder.positions, recorder.rope_positions
        self.takes_rows = any(isinstance(node, Given) for node in recorder.nodes)
        """Whether steps read rows of the host (`Ops.given`)."""
        self.crosses = any(isinstance(node, CrossAttention) for node in recorder.nodes)
        """Whether rows attend to what `Step.cross` says."""
        graph = fuse(recorder.nodes, self.logits, PATTERNS)
        graph = group_linears(
            pack_inputs(graph, linear.form_of(prompt_bits), keep_floats=True), any_layout=True
        )
        calls = Calls(cache, prompt_bits, constants or Constants(), threads)
        for node in graph:
            LOWER[type(node)](calls, node)
        self.sampling = add_sampling(calls, self.logits)
        self.operations, self.scratch, self.constants = calls.operations, calls.scratch, calls.constants
        self.constants.kept.append(graph)  # calls hold addresses of its weights

    @property
    def kernels(self) -> list[str]:
        """The names of the kernels that the pass calls."""
        return [operation.kernel for operation in self.operations]
