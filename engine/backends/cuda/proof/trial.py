"""Tests kernels on one GPU: backends to run them with, and a comparison of sampling with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from engine.backends.base import Forward
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.lowering.estimate import dry_pass
from engine.backends.cuda.proof import proven
from engine.backends.cuda.runtime.decode_loop import DecodeLoops, OneRow, decode_loop_kernels
from engine.backends.cuda.runtime.device import Device, Graph
from engine.backends.decode_loop import SamplingPlan
from engine.lazy_dataclass import dataclass
from engine.sampling import passes

DRAW = 1e-3
"""The maximum relative error of a probability; exponentials are approximate."""


class Narrowed:
    """A device that reports another number of multiprocessors, which selects other variants of kernels.

    It collects the names of the kernels that `ran`; capturing does not count as running.
    """

    identity = ""  # no tests are started during a test

    def __init__(self, device: Device, sm_count: int) -> None:
        self._device, self.sm_count, self.ran = device, sm_count, set[str]()

    def launch(self, kernel: Kernel, blocks: tuple[int, int, int], arguments: Sequence[int | float]) -> None:
        self.ran.add(kernel.name)
        self._device.launch(kernel, blocks, arguments)

    def record(self, launches: Callable[[], None]) -> Graph:
        """See `Device.record`. If it fails, its kernels count as run, since one of them may be the cause."""
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
    """A graph that adds its kernels to `ran` when it is launched."""

    graph: Graph
    names: set[str]
    ran: set[str]

    def launch(self) -> None:
        self.ran.update(self.names)
        self.graph.launch()


class Trial:
    """The kernels of a model that have not been tested yet on one device: `left`, by name.

    `short` is set if a test case did not have enough memory.
    """

    def __init__(self, device: Device, left: frozenset[str], vocabulary: int) -> None:
        self.device, self.left, self._vocabulary = device, left, vocabulary
        self.short = False

    def narrowed(self, sm_count: int = 0) -> Narrowed:
        """The device with this number of multiprocessors, 0 for its own."""
        return Narrowed(self.device, sm_count or self.device.sm_count)

    def kernels(self, forward: Forward, cache_dtype: str, sm_count: int = 0) -> frozenset[str]:
        """Names of the kernels that a pass may run."""
        lowered = dry_pass(forward, cache_dtype, cast(Device, self.narrowed(sm_count)))
        return frozenset(kernel.name for kernel in lowered.kernels(0))

    def passed(self, names: Iterable[str]) -> None:
        """Store that these kernels passed."""
        self.left -= frozenset(names)
        proven.remember(self.device.identity, passed=names)

    def wrong(self, names: Iterable[str]) -> None:
        """Forget these kernels, which ran in a case that failed, even if they passed others."""
        proven.forget(self.device.identity, names)

    def untried(self) -> None:
        """Store that no test case runs the remaining kernels."""
        proven.remember(self.device.identity, untried=self.left)

    def crashed(self, names: Iterable[str]) -> None:
        """Store that one of these kernels crashed the device."""
        proven.remember(self.device.identity, crashed=names)

    @property
    def draws(self) -> frozenset[str]:
        """Names of the sampling kernels."""
        return frozenset(kernel.name for kernel in decode_loop_kernels(self._vocabulary))

    def drawn(self, on: Narrowed) -> float:
        """The largest relative error of probabilities against NumPy; infinity for a wrong token.

        `on` is a device from `narrowed`.
        """
        size, device = self._vocabulary, cast(Device, on)
        for _ in device.prepare(decode_loop_kernels(size)):
            pass
        rng = np.random.default_rng(7)
        logits = (4 * rng.standard_normal(size)).astype(np.float32)
        padded = np.zeros(-(-size // 64) * 64, np.float32)
        padded[:size] = logits
        memory, state = device.upload(padded), device.zeros(1024)
        row = OneRow(
            lambda: None, state[:4], state[256:260], state[384:388], state[512:516], state[768:800],
            memory[: 4 * size], 64,
        )  # fmt: skip
        decode_loops = DecodeLoops(device, row)
        try:
            return max(self._one(decode_loops, plan, logits) for plan in _plans(size, int(logits.argmax())))
        finally:
            decode_loops.close()

    def _one(self, decode_loops: DecodeLoops, plan: SamplingPlan, logits: Any) -> float:
        decode_loop = decode_loops.decode_loop(plan)
        assert decode_loop is not None, "memory for the draw was there before"
        decode_loop.start([0], np.zeros(1, np.int32), lambda place: 0.3)
        found = decode_loop.next(0)
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
    """Plans for the most likely token, for one of forty, and with a bias against the most likely one, which
    runs the other variant of the scan, without and with alternatives.
    """
    plain = SamplingPlan(size, greedy=True)
    yield plain
    yield SamplingPlan(size, ((passes.KEEP_TOP, float(min(40, size))),))
    bias = np.zeros(size, np.float32)
    bias[likeliest] = -100.0
    yield replace(plain, bias=bias)
    yield replace(plain, bias=bias, alternatives=3)
