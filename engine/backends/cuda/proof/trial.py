"""The proof of kernels on one GPU: backends to try them with, and the draw of tokens beside what NumPy
says of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from engine.backends.base import Forward, SamplingPlan
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.lowering.estimate import dry_pass
from engine.backends.cuda.proof import proven
from engine.backends.cuda.runtime.decode_loop import DecodeLoops, OneRow, decode_loop_kernels
from engine.backends.cuda.runtime.device import Device, Graph
from engine.sampling import passes

DRAW = 1e-3
"""How far a probability may be off, of itself: exponentials are approximate."""


class Narrowed:
    """A device that says it has another number of multiprocessors: kernels have other forms for small and for
    large matrices. It notes the names of those that `ran`; being recorded is not running.
    """

    identity = ""  # nothing is proved while something is proved

    def __init__(self, device: Device, sm_count: int) -> None:
        self._device, self.sm_count, self.ran = device, sm_count, set[str]()

    def launch(self, kernel: Kernel, blocks: tuple[int, int, int], arguments: Sequence[int | float]) -> None:
        self.ran.add(kernel.name)
        self._device.launch(kernel, blocks, arguments)

    def record(self, launches: Callable[[], None]) -> Graph:
        """See `Device.record`; where that fails, one of these is to blame."""
        ran, self.ran = self.ran, set()
        try:
            return _Replayed(self._device.record(launches), self.ran, ran)
        except BaseException:
            ran.update(self.ran)
            raise
        finally:
            self.ran = ran

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)


@dataclass(frozen=True)
class _Replayed:
    """A graph that says, when it is launched, that its kernels `ran`."""

    graph: Graph
    names: set[str]
    ran: set[str]

    def launch(self) -> None:
        self.ran.update(self.names)
        self.graph.launch()


class Trial:
    """What is still to be proved of a model's kernels on one device: `left`, their names.

    `short`: a case had no memory there.
    """

    def __init__(self, device: Device, left: frozenset[str], vocabulary: int) -> None:
        self.device, self.left, self._vocabulary = device, left, vocabulary
        self.short = False

    def narrowed(self, sm_count: int = 0) -> Narrowed:
        """The device with so many multiprocessors, 0: as many as it has."""
        return Narrowed(self.device, sm_count or self.device.sm_count)

    def kernels(self, forward: Forward, cache_dtype: str, sm_count: int = 0) -> frozenset[str]:
        """Names of the kernels that a pass may run."""
        lowered = dry_pass(forward, cache_dtype, cast(Device, self.narrowed(sm_count)))
        return frozenset(kernel.name for kernel in lowered.kernels(0))

    def passed(self, names: Iterable[str]) -> None:
        """These proved themselves."""
        self.left -= frozenset(names)
        proven.remember(self.device.identity, passed=names)

    def wrong(self, names: Iterable[str]) -> None:
        """A case failed in which these ran, whatever others said of them."""
        proven.forget(self.device.identity, names)

    def untried(self) -> None:
        """No case runs those that are left."""
        proven.remember(self.device.identity, untried=self.left)

    def crashed(self, names: Iterable[str]) -> None:
        """One of these stopped the device."""
        proven.remember(self.device.identity, crashed=names)

    @property
    def draws(self) -> frozenset[str]:
        """Names of the kernels that draw tokens."""
        return frozenset(kernel.name for kernel in decode_loop_kernels(self._vocabulary))

    def drawn(self, on: Narrowed) -> float:
        """How far draws over the model's vocabulary, on a device of `narrowed`, are from what NumPy says: the
        largest share that a probability is off, infinite for a wrong token.
        """
        size, device = self._vocabulary, cast(Device, on)
        for _ in device.prepare(decode_loop_kernels(size)):
            pass
        rng = np.random.default_rng(7)
        logits = (4 * rng.standard_normal(size)).astype(np.float32)
        padded = np.zeros(-(-size // 64) * 64, np.float32)
        padded[:size] = logits
        memory, state = device.upload(padded), device.zeros(1024)
        row = OneRow(lambda: None, state[:4], state[256:260], state[512:516], memory[: 4 * size], 64)
        decode_loops = DecodeLoops(device, row)
        try:
            return max(self._one(decode_loops, plan, logits) for plan in _plans(size, int(logits.argmax())))
        finally:
            decode_loops.close()

    def _one(self, decode_loops: DecodeLoops, plan: SamplingPlan, logits: Any) -> float:
        decode_loop = decode_loops.decode_loop(plan)
        assert decode_loop is not None, "memory for the draw was there before"
        decode_loop.start([0], np.zeros(1, np.int32), lambda place: 0.3)
        found = decode_loop.next(False)
        decode_loop.settle()
        exact = logits.astype(np.float64)
        raw = np.exp(exact - exact.max())
        raw /= raw.sum()
        scores = exact if plan.bias is None else exact + plan.bias
        order = np.argsort(-scores, kind="stable")
        allowed = order[:1] if plan.greedy else order[: int(plan.steps[0][1])]
        if found is None or found.id not in allowed:
            return float("inf")
        final = np.exp(scores[allowed] - scores[allowed].max())
        expected = 1.0 if plan.greedy else final[list(allowed).index(found.id)] / final.sum()
        off = abs(found.probability / expected - 1), abs(found.raw_probability / raw[found.id] - 1)
        return float(max(off))


def _plans(size: int, likeliest: int) -> Iterator[SamplingPlan]:
    """The likeliest; one of forty; and with a bias against the likeliest, which runs the other form of the
    search.
    """
    plain = SamplingPlan(size, greedy=True)
    yield plain
    yield SamplingPlan(size, ((passes.KEEP_TOP, float(min(40, size))),))
    bias = np.zeros(size, np.float32)
    bias[likeliest] = -100.0
    yield replace(plain, bias=bias)
    yield replace(plain, bias=bias, alternatives=3)
