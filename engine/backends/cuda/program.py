"""A lowered pass as it runs: small batches as CUDA graphs, large ones call by call."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.backends.base import Step
from engine.backends.cuda.kv_cache import CudaCache
from engine.backends.cuda.lowering.arena import Arena
from engine.backends.cuda.lowering.call import SMALL_BATCH, Argument, Call, Runtime
from engine.backends.cuda.lowering.lower import LoweredPass
from engine.backends.cuda.runtime.decode_loop import DecodeLoops, OneRow
from engine.backends.cuda.runtime.device import Device, Graph
from engine.backends.cuda.runtime.state import State
from engine.backends.decode_loop import DecodeLoop, SamplingPlan
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.nodes import PeerCopy
from engine.errors import DeviceLost
from engine.lazy_dataclass import dataclass
from engine.tensors import Floats

if TYPE_CHECKING:
    import torch


class _Key(NamedTuple):
    """What the graphs of a small batch depend on; `several` says whether it is over several sequences."""

    rows: int
    logit_rows: int
    several: bool = False


_ONE_ROW = _Key(1, 1)


@dataclass
class _Replay:
    """A small batch: graphs, and rows copied between devices."""

    parts: list[tuple[int, Graph | PeerCopy]]
    result: torch.Tensor
    logits: Floats


class CudaProgram:
    """A `Program` on one GPU or several; device i of the pass is `devices[i]`."""

    def __init__(
        self, lowered: LoweredPass, cache: CudaCache, max_rows: int, devices: Sequence[Device]
    ) -> None:
        self.max_rows, self.batch_rows = max_rows, 1 if lowered.whole_only else SMALL_BATCH
        self._lowered, self._cache, self._devices = lowered, cache, list(devices)
        for number, device in enumerate(devices):
            for _ in device.prepare(lowered.kernels(number)):
                pass
        self._small = [
            Arena(device, i, lowered.small, lowered.logits, SMALL_BATCH) for i, device in enumerate(devices)
        ]
        # Allocated now, so that a reply does not run out of memory halfway.
        self._large = [
            Arena(device, i, lowered.large, lowered.logits, max_rows) for i, device in enumerate(devices)
        ]
        crossed = cache.crossed.page_count if lowered.crosses else 0
        self._states = [State(device, max_rows, cache.page_count, crossed) for device in devices]
        self._replays: dict[_Key, _Replay] = {}
        self._scratch: dict[tuple[int, int], torch.Tensor] = {
            (number, place): device.empty(max(size.bytes(max_rows, lowered.positions) for size in sizes))
            for number, device in enumerate(devices)
            for place, sizes in lowered.scratch_sizes(number).items()
        }
        self._decode_loops: DecodeLoops | None = None
        self._closed = False
        if not lowered.whole_only:
            # Captured now, not in a reply: the step of one row, with sampling and without.
            self._replays[_ONE_ROW] = self._capture(_ONE_ROW)
            self.decode_loop(SamplingPlan(lowered.logits.width, greedy=True))

    def run(self, step: Step) -> Floats:
        assert not self._closed, "the program is closed"
        key = _Key(len(step.token_ids), step.logit_rows, len(step.runs) > 1)
        assert 0 < key.logit_rows <= key.rows <= (self.batch_rows if key.several else self.max_rows)
        most = step.positions.max()
        assert most < self._lowered.positions, "a position past the end of a table"
        most = most if step.rope_positions is None else step.rope_positions.max()
        assert most < self._lowered.rope_positions, "a rope position past the end of a table"
        for state in self._states:
            state.write(step)
        for given in self._lowered.gives:
            given.pinned[: key.rows] = given.rows[: key.rows]
        for table in self._lowered.given_tables:
            self._devices[table.device].copy(*table.filled(key.rows))
        small = key.rows <= SMALL_BATCH and not self._lowered.whole_only
        logits = self._run_small(key) if small else self._run_large(step)
        for kept in self._lowered.keeps:
            kept.rows[step.kept : step.kept + key.rows] = kept.pinned[: key.rows]
        return logits

    # -- small batches

    def _run_small(self, key: _Key) -> Floats:
        if key not in self._replays:
            self._replays[key] = self._capture(key)
        replay, last = self._replays[key], self._devices[self._lowered.logits.device]
        for number, part in replay.parts:
            if isinstance(part, PeerCopy):
                self._copy_over(number, part, self._small, key.rows)
            else:
                part.launch()
        last.mark().wait()
        return replay.logits

    def _capture(self, key: _Key) -> _Replay:
        """Capture the graphs of such steps: first they copy the state, last the logits."""
        last, logits = self._lowered.logits.device, self._lowered.logits
        size = key.logit_rows * logits.stride
        target = self._devices[last].pinned(size)
        parts: list[tuple[int, list[Call]] | tuple[int, PeerCopy]] = []
        for number, step in self._lowered.small:
            if isinstance(step, PeerCopy):
                parts.append((number, step))
            else:
                assert isinstance(step, Call)
                before = parts[-1] if parts else None
                if before is None or before[0] != number or isinstance(before[1], PeerCopy):
                    parts.append((number, []))
                calls = parts[-1][1]
                assert isinstance(calls, list)
                calls.append(step)
        fresh, out = set(range(len(self._devices))), list[tuple[int, Graph | PeerCopy]]()
        for at, (number, part) in enumerate(parts):
            if isinstance(part, PeerCopy):
                out.append((number, part))
                continue
            end = target if at == len(parts) - 1 else None
            out.append((number, self._graph(number, part, key, number in fresh, end)))
            fresh.discard(number)
        assert parts[-1][0] == last
        values: Floats = target.numpy().view(np.float32).reshape(key.logit_rows, -1)[:, : logits.width]
        return _Replay(out, target, values)

    def _graph(
        self, number: int, calls: list[Call], key: _Key, first: bool, target: torch.Tensor | None
    ) -> Graph:
        device = self._devices[number]

        def launches() -> None:
            if first:
                self._states[number].send(key.several)
            for call in calls:
                launch_small(device, self._small[number], self._states[number], call, key)
            if target is not None:
                device.copy(self._small[number].memory(self._lowered.logits)[: target.nbytes], target)

        return device.record(launches)

    def decode_loop(self, plan: SamplingPlan) -> DecodeLoop | None:
        """On one device only: there the sampled token is where the next step reads it. Not for passes that
        leave rows to the host, or read some, at each step.
        """
        assert not self._closed, "the program is closed"
        lowered = self._lowered
        host_rows = lowered.keeps or lowered.gives or lowered.given_tables or lowered.crosses
        if len(self._devices) > 1 or host_rows or lowered.whole_only:
            return None
        if self._decode_loops is None:
            logits = self._small[0].memory(lowered.logits)[: 4 * lowered.logits.width]
            calls = [call for _, call in lowered.small if isinstance(call, Call)]
            launch = partial(_launch_one, self._devices[0], self._small[0], self._states[0], calls)
            row = OneRow(launch, *self._states[0].one_row, logits, lowered.positions)
            self._decode_loops = DecodeLoops(self._devices[0], row)
        return self._decode_loops.decode_loop(plan)

    # -- large batches

    def _run_large(self, step: Step) -> Floats:
        rows, logit_rows = len(step.token_ids), step.logit_rows
        for arena, state in zip(self._large, self._states, strict=True):
            arena.make_room(logit_rows)
            state.send(several=False)
        for number, parts in groupby(self._lowered.large, key=itemgetter(0)):
            device = self._devices[number]
            with device.torch_work():  # entered once, since each entry costs the host time
                for _, part in parts:
                    if isinstance(part, PeerCopy):
                        self._copy_over(number, part, self._large, rows)
                        continue
                    count = (logit_rows if part.on_logit_rows else rows) * part.copies
                    bound = BoundStep(self, number, count, rows - logit_rows, step)
                    if isinstance(part, Call):
                        bound.launch(part)
                    else:
                        with device.torch_work():
                            part.run(bound)
        last, logits = self._lowered.logits.device, self._lowered.logits
        found = self._devices[last].read(self._large[last].memory(logits)[: logit_rows * logits.stride])
        values: Floats = found.view(np.float32).reshape(logit_rows, -1)[:, : logits.width]
        return values

    def scratch(self, number: int, size: int, place: int) -> torch.Tensor:
        memory = self._scratch[number, place]
        assert size <= memory.nbytes, "more scratch memory than the call said"
        return memory[:size]

    # -- both

    def _copy_over(self, number: int, copy: PeerCopy, arenas: list[Arena], rows: int) -> None:
        """Copy rows from another device, once it has computed them."""
        source, target = self._devices[copy.x.device], self._devices[number]
        target.wait_for(source.mark())
        size = rows * copy.x.row_bytes
        target.copy(arenas[copy.x.device].memory(copy.x)[:size], arenas[number].memory(copy.y)[:size])
        source.wait_for(target.mark())  # before it computes anything else in that memory

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        decode_loops, self._decode_loops = self._decode_loops, None
        try:
            if decode_loops is not None:
                with suppress(DeviceLost):  # nothing runs on a lost device
                    decode_loops.close()
            for device in self._devices:
                with suppress(DeviceLost):
                    device.synchronize()
        finally:
            self._replays, self._small, self._large, self._scratch, self._states = {}, [], [], {}, []
            self._lowered.small, self._lowered.large, self._lowered.kept = [], [], []
            self._lowered.keeps, self._lowered.gives, self._lowered.given_tables = [], [], []


def _runtime_arguments(state: State, rows: int, first_row: int, several: bool = False) -> dict[Runtime, int]:
    """The runtime arguments of a call over `rows` rows."""
    return {
        Runtime.ROWS: rows,
        Runtime.FIRST_ROW: first_row,
        Runtime.POSITIONS: state.positions,
        Runtime.ROPE_POSITIONS: state.rope_positions,
        Runtime.TOKENS: state.tokens,
        Runtime.PAGES: state.pages,
        Runtime.RUNS: state.runs if several else 0,
        Runtime.STATES: state.states,
        Runtime.CROSS_POSITIONS: state.cross_positions,
        Runtime.CROSS_PAGES: state.cross_pages,
        Runtime.CROSS_RUNS: state.cross_runs,
    }


def _value(argument: Argument, arena: Arena, runtime: dict[Runtime, int]) -> int | float:
    if isinstance(argument, Buffer):
        return arena.address(argument)
    return runtime[argument] if isinstance(argument, Runtime) else argument


def launch_small(device: Device, arena: Arena, state: State, call: Call, key: _Key) -> None:
    """Launch a call of a small batch."""
    if key.several and call.several is not None:
        call = call.several
    count = (key.logit_rows if call.on_logit_rows else key.rows) * call.copies
    runtime = _runtime_arguments(state, count, key.rows - key.logit_rows, key.several)
    arguments = [_value(argument, arena, runtime) for argument in call.arguments]
    device.launch(call.kernel, call.blocks(count), arguments)


def _launch_one(device: Device, arena: Arena, state: State, calls: Sequence[Call]) -> None:
    """A step of one row, without copying its state or logits.

    A decode loop holds this and not its program, which holds the decode loop: that would be a cycle, whose
    device memory is not freed before the garbage collector runs.
    """
    for call in calls:
        launch_small(device, arena, state, call, _ONE_ROW)


class BoundStep:
    """A large batch while it runs: what a `TorchCall` gets."""

    def __init__(self, program: CudaProgram, number: int, rows: int, first_row: int, step: Step) -> None:
        self._program, self._number, self.rows, self._step = program, number, rows, step
        self._arena = program._large[number]
        self._runtime = _runtime_arguments(program._states[number], rows, first_row)

    @property
    def device(self) -> Device:
        return self._program._devices[self._number]

    @property
    def position(self) -> int:
        return int(self._step.positions[0])

    @property
    def cross_length(self) -> int:
        return self._step.cross[0].length

    @property
    def pages(self) -> npt.NDArray[np.int32]:
        return self._step.pages

    def tensor(self, buffer: Buffer) -> torch.Tensor:
        rows = self._step.logit_rows if buffer.on_logit_rows else len(self._step.token_ids)
        return self._arena.tensor(buffer, rows * buffer.copies)

    def address(self, argument: Argument) -> int | float:
        return _value(argument, self._arena, self._runtime)

    def launch(self, call: Call) -> None:
        arguments = [self.address(argument) for argument in call.arguments]
        self.device.launch(call.kernel, call.blocks(self.rows), arguments)

    def scratch(self, size: int, place: int = 0) -> torch.Tensor:
        return self._program.scratch(self._number, size, place)
