"""A lowered pass as it runs: small batches as CUDA graphs, large ones call by call."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.backends.base import DecodeLoop, SamplingPlan, Step
from engine.backends.cuda.kv_cache import CudaCache
from engine.backends.cuda.lowering.arena import Arena
from engine.backends.cuda.lowering.call import SMALL_BATCH, Argument, Call, Runtime
from engine.backends.cuda.lowering.lower import LoweredPass
from engine.backends.cuda.runtime.decode_loop import DecodeLoops, OneRow
from engine.backends.cuda.runtime.device import Device, Graph
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.nodes import PeerCopy
from engine.core import PAGE_TOKENS
from engine.errors import DeviceLost
from engine.tensors import Floats

if TYPE_CHECKING:
    import torch

_HEAD = 64
"""Bytes before the tokens in a device's block of state: the position, and room."""


class State:
    """What tells a device about a step: the position of its first row, its token ids, its block table.

    One for each device.

    `staging` is the same in the host's memory; `send` copies it over. `parts` are the memory of position,
    tokens, and block table.
    """

    def __init__(self, device: Device, rows: int, pages: int) -> None:
        self._device = device
        tokens = -(-4 * rows // 64) * 64
        size = _HEAD + tokens + 4 * pages
        self.memory, self.staging = device.zeros(size), device.pinned(size)
        self.parts = self.memory[:4], self.memory[_HEAD : _HEAD + tokens], self.memory[_HEAD + tokens :]
        self.position = int(self.memory.data_ptr())
        self.tokens, self.pages = self.position + _HEAD, self.position + _HEAD + tokens
        words: npt.NDArray[np.int32] = self.staging.numpy().view(np.int32)
        self._position, self._tokens, self._pages = (
            words[:1],
            words[_HEAD // 4 : (_HEAD + tokens) // 4],
            words[(_HEAD + tokens) // 4 :],
        )

    def write(self, step: Step) -> None:
        """Put a step into the staging memory, which no copy may be reading."""
        self._position[0] = step.positions[0]
        self._tokens[: len(step.token_ids)] = step.token_ids
        self._pages[: len(step.pages)] = step.pages

    def send(self) -> None:
        """Copy the staging memory to the device, in order with its work."""
        self._device.copy(self.staging, self.memory)

    @property
    def room(self) -> int:
        """Pages that the block table holds."""
        return len(self._pages)


@dataclass
class _Replay:
    """A step of few rows: graphs, and rows moved between devices."""

    parts: list[tuple[int, Graph | PeerCopy]]
    result: torch.Tensor
    logits: Floats


class CudaProgram:
    """See `engine.backends.base.Program`. `devices` are those that the recording's numbers mean."""

    def __init__(
        self, lowered: LoweredPass, cache: CudaCache, max_rows: int, devices: Sequence[Device]
    ) -> None:
        self.max_rows = max_rows
        self._lowered, self._cache, self._devices = lowered, cache, list(devices)
        for number, device in enumerate(devices):
            for _ in device.prepare(lowered.kernels(number)):
                pass
        self._small = [
            Arena(device, i, lowered.small, lowered.logits, SMALL_BATCH) for i, device in enumerate(devices)
        ]
        # Taken now, so that a reply that has begun does not run out of memory.
        self._large = [
            Arena(device, i, lowered.large, lowered.logits, max_rows) for i, device in enumerate(devices)
        ]
        self._states = [State(device, max_rows, cache.page_count) for device in devices]
        self._replays: dict[tuple[int, int], _Replay] = {}
        reach = min(lowered.positions, cache.page_count * PAGE_TOKENS)
        self._scratch: dict[tuple[int, int], torch.Tensor] = {
            (number, place): device.empty(max(room.bytes(max_rows, reach) for room in rooms))
            for number, device in enumerate(devices)
            for place, rooms in lowered.rooms(number).items()
        }
        self._decode_loops: DecodeLoops | None = None
        self._closed = False
        # Now, not in a reply: what a step of one row replays, with its draw and without.
        self._replays[1, 1] = self._record(1, 1)
        self.decode_loop(SamplingPlan(lowered.logits.width, greedy=True))

    def run(self, step: Step) -> Floats:
        assert not self._closed, "the program is closed"
        rows, logit_rows = len(step.token_ids), step.logit_rows
        assert 0 < logit_rows <= rows <= self.max_rows
        assert step.positions[-1] < self._lowered.positions, "a position past the end of a table"
        assert len(step.pages) <= self._states[0].room
        for state in self._states:
            state.write(step)
        return self._run_small(rows, logit_rows) if rows <= SMALL_BATCH else self._run_large(step)

    # -- few rows

    def _run_small(self, rows: int, logit_rows: int) -> Floats:
        key = rows, logit_rows
        if key not in self._replays:
            self._replays[key] = self._record(rows, logit_rows)
        replay, last = self._replays[key], self._devices[self._lowered.logits.device]
        for number, part in replay.parts:
            if isinstance(part, PeerCopy):
                self._copy_over(number, part, self._small, rows)
            else:
                part.launch()
        last.mark().wait()
        return replay.logits

    def _record(self, rows: int, logit_rows: int) -> _Replay:
        """Record the graphs of steps of so many rows: a step's state first, its logits last."""
        last, logits = self._lowered.logits.device, self._lowered.logits
        size = logit_rows * logits.stride
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
            out.append(
                (
                    number,
                    self._graph(
                        number,
                        part,
                        rows,
                        logit_rows,
                        number in fresh,
                        target if at == len(parts) - 1 else None,
                    ),
                )
            )
            fresh.discard(number)
        assert parts[-1][0] == last
        values: Floats = target.numpy().view(np.float32).reshape(logit_rows, -1)[:, : logits.width]
        return _Replay(out, target, values)

    def _graph(
        self,
        number: int,
        calls: list[Call],
        rows: int,
        logit_rows: int,
        first: bool,
        target: torch.Tensor | None,
    ) -> Graph:
        device = self._devices[number]

        def launches() -> None:
            if first:
                self._states[number].send()
            for call in calls:
                launch_small(device, self._small[number], self._states[number], call, rows, logit_rows)
            if target is not None:
                device.copy(self._small[number].memory(self._lowered.logits)[: target.nbytes], target)

        return device.record(launches)

    def decode_loop(self, plan: SamplingPlan) -> DecodeLoop | None:
        """See `HasDecodeLoop.decode_loop`: on one device only, where the token that is drawn is where the
        next step begins.
        """
        assert not self._closed, "the program is closed"
        if len(self._devices) > 1:
            return None
        if self._decode_loops is None:
            position, tokens, pages = self._states[0].parts
            logits = self._small[0].memory(self._lowered.logits)[: 4 * self._lowered.logits.width]
            calls = [call for _, call in self._lowered.small if isinstance(call, Call)]
            launch = partial(_launch_one, self._devices[0], self._small[0], self._states[0], calls)
            row = OneRow(launch, tokens[:4], position, pages, logits, self._lowered.positions)
            self._decode_loops = DecodeLoops(self._devices[0], row)
        return self._decode_loops.decode_loop(plan)

    # -- many rows

    def _run_large(self, step: Step) -> Floats:
        rows, logit_rows = len(step.token_ids), step.logit_rows
        for arena, state in zip(self._large, self._states, strict=True):
            arena.make_room(logit_rows)
            state.send()
        for number, part in self._lowered.large:
            if isinstance(part, PeerCopy):
                self._copy_over(number, part, self._large, rows)
                continue
            count = (logit_rows if part.on_logit_rows else rows) * part.copies
            bound = BoundStep(self, number, count, rows - logit_rows, step)
            if isinstance(part, Call):
                bound.launch(part)
            else:
                with self._devices[number].torch_work():
                    part.run(bound)
        last, logits = self._lowered.logits.device, self._lowered.logits
        found = self._devices[last].read(self._large[last].memory(logits)[: logit_rows * logits.stride])
        values: Floats = found.view(np.float32).reshape(logit_rows, -1)[:, : logits.width]
        return values

    def scratch(self, number: int, size: int, place: int) -> torch.Tensor:
        room = self._scratch[number, place]
        assert size <= room.nbytes, "more scratch memory than the call said"
        return room[:size]

    # -- both

    def _copy_over(self, number: int, copy: PeerCopy, arenas: list[Arena], rows: int) -> None:
        """Bring rows over from another device, when it has made them."""
        source, target = self._devices[copy.x.device], self._devices[number]
        target.wait_for(source.mark())
        size = rows * copy.x.row_bytes
        target.copy(arenas[copy.x.device].memory(copy.x)[:size], arenas[number].memory(copy.y)[:size])

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        decode_loops, self._decode_loops = self._decode_loops, None
        try:
            if decode_loops is not None:
                with suppress(DeviceLost):  # on a device that is gone nothing is under way
                    decode_loops.close()
            for device in self._devices:
                with suppress(DeviceLost):
                    device.synchronize()
        finally:
            self._replays, self._small, self._large, self._scratch, self._states = {}, [], [], {}, []
            self._lowered.small, self._lowered.large, self._lowered.kept = [], [], []


def _given(state: State, rows: int, first_row: int) -> dict[Runtime, int]:
    """What is known when an operation of so many rows runs."""
    return {
        Runtime.ROWS: rows,
        Runtime.FIRST_ROW: first_row,
        Runtime.POSITION: state.position,
        Runtime.TOKENS: state.tokens,
        Runtime.PAGES: state.pages,
    }


def _value(argument: Argument, arena: Arena, given: dict[Runtime, int]) -> int | float:
    if isinstance(argument, Buffer):
        return arena.address(argument)
    return given[argument] if isinstance(argument, Runtime) else argument


def launch_small(device: Device, arena: Arena, state: State, call: Call, rows: int, logit_rows: int) -> None:
    """Launch a call of a step of few rows."""
    count = (logit_rows if call.on_logit_rows else rows) * call.copies
    given = _given(state, count, rows - logit_rows)
    arguments = [_value(argument, arena, given) for argument in call.arguments]
    device.launch(call.kernel, call.blocks(count), arguments)


def _launch_one(device: Device, arena: Arena, state: State, calls: Sequence[Call]) -> None:
    """A step of one row, without its state and without telling its logits.

    A decode loop keeps this and not its program, which keeps the decode loop: they would be a cycle, whose
    memory on the device stays until somebody looks for cycles.
    """
    for call in calls:
        launch_small(device, arena, state, call, 1, 1)


class BoundStep:
    """See `engine.backends.cuda.lowering.call.Bound`."""

    def __init__(self, program: CudaProgram, number: int, rows: int, first_row: int, step: Step) -> None:
        self._program, self._number, self.rows, self._step = program, number, rows, step
        self._first_row = first_row

    @property
    def device(self) -> Device:
        return self._program._devices[self._number]

    @property
    def position(self) -> int:
        return int(self._step.positions[0])

    @property
    def pages(self) -> npt.NDArray[np.int32]:
        return self._step.pages

    def tensor(self, buffer: Buffer) -> torch.Tensor:
        rows = self._step.logit_rows if buffer.on_logit_rows else len(self._step.token_ids)
        return self._program._large[self._number].tensor(buffer, rows * buffer.copies)

    def address(self, argument: Argument) -> int | float:
        given = _given(self._program._states[self._number], self.rows, self._first_row)
        return _value(argument, self._program._large[self._number], given)

    def launch(self, call: Call) -> None:
        arguments = [self.address(argument) for argument in call.arguments]
        self.device.launch(call.kernel, call.blocks(self.rows), arguments)

    def scratch(self, size: int, place: int = 0) -> torch.Tensor:
        return self._program.scratch(self._number, size, place)
