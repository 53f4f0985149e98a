"""Decodes on the device, one step ahead of the host: pass, draw and next token are one graph.

The host writes the random number of a place to pinned memory, launches the graph, and then reads the result
of the previous step. All other state (position, token, penalties, number of draws) stays in device memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.kernels.sampling import layout, sampling
from engine.backends.cuda.kernels.sampling.layout import OTHERS_AT, RESULT_WORDS, SLOTS, STATE_WORDS, TOPS_AT
from engine.backends.cuda.runtime.device import Device, Graph, Mark
from engine.backends.cuda.runtime.state import set_states
from engine.backends.cuda.runtime.uploads import Uploads
from engine.backends.decode_loop import KEPT_LOGITS, SamplingPlan
from engine.errors import NotEnoughMemory
from engine.lazy_dataclass import dataclass
from engine.sampling.sampler import Sampled
from engine.tensors import Floats, Ints

if TYPE_CHECKING:
    import torch

assert KEPT_LOGITS == SLOTS


@dataclass(frozen=True)
class OneRow:
    """A program's step of one row, which a decode loop extends.

    The tensors are uint8 on the device. `launch` launches the step's kernels (inside `Device.record`): the
    token in `tokens` (int32) at `position` and `rope_position` (one int32 each), with the block table `pages`
    (int32, for the whole context) and the `states` (`Runtime.STATES` of one row), into `logits` (V,) float32.
    `kernels` are those that it launches, for `Device.prepare`.
    """

    launch: Callable[[], None]
    tokens: torch.Tensor
    position: torch.Tensor
    rope_position: torch.Tensor
    pages: torch.Tensor
    states: torch.Tensor
    logits: torch.Tensor
    context: int
    kernels: Sequence[Kernel] = ()


def decode_loop_kernels(vocabulary: int) -> list[Kernel]:
    """All kernels that decode loops over this vocabulary may launch in addition to those of the step."""
    return sampling.all_variants(sampling.Shape.of(vocabulary))


def decode_loop_bytes(vocabulary: int) -> int:
    """Device memory of a decode loop over this vocabulary, without penalties and biases."""
    shape = sampling.Shape.of(vocabulary)
    return 4 * (layout.PLAN_WORDS + STATE_WORDS) + sampling.Work.starts(shape)[-1] + SLOTS * shape.stride


@dataclass
class _Penalties:
    """Device memory that only plans with a bias or penalties need."""

    scores: torch.Tensor
    bias: torch.Tensor
    amounts: torch.Tensor
    latest: torch.Tensor
    history: torch.Tensor


class DecodeLoops:
    """The decode loops of one program, one at a time (`HasDecodeLoop`).

    Device memory is allocated for the first one and kept.
    """

    def __init__(self, device: Device, row: OneRow) -> None:
        self._device, self._row = device, row
        self._decode_loop: DeviceDecodeLoop | None = None

    def decode_loop(self, plan: SamplingPlan) -> DeviceDecodeLoop | None:
        """As `HasDecodeLoop.decode_loop`; the previous decode loop ends.

        Also returns None if the device does not have enough memory.
        """
        if not layout.takes(plan):
            return None
        try:
            if self._decode_loop is None:
                self._decode_loop = DeviceDecodeLoop(self._device, self._row)
            self._decode_loop.follow(plan)
        except NotEnoughMemory:
            return None
        return self._decode_loop

    def close(self) -> None:
        """Wait for the last step and free the memory, even if someone still holds the decode loop."""
        decode_loop, self._decode_loop = self._decode_loop, None
        if decode_loop is not None:
            decode_loop.end()


class DeviceDecodeLoop:
    """See `engine.backends.base.DecodeLoop`; `follow` sets another plan."""

    def __init__(self, device: Device, row: OneRow) -> None:
        self._device, self._row = device, row
        size = self._size = row.logits.nbytes // 4
        self._shape = sampling.Shape.of(size)
        self._uploads = Uploads(device)
        self._plan_words = device.zeros(4 * layout.PLAN_WORDS)
        self._state = device.zeros(4 * STATE_WORDS)
        self._work = sampling.Work.on(device, self._shape)
        self._kept = device.zeros(SLOTS * self._shape.stride)
        self._uniforms, self._results = device.pinned(4 * SLOTS), device.pinned(4 * SLOTS * RESULT_WORDS)
        self._numbers: Floats = self._uniforms.numpy().view(np.float32)
        self._result_words = self._results.numpy().view(np.int32).reshape(SLOTS, RESULT_WORDS)
        self._penalties: _Penalties | None = None
        self._graphs: dict[tuple[bool, bool], Graph] = {}
        self._plan = SamplingPlan(0)
        self._bias: Floats | None = None
        self._states: Ints = np.full(8, -1, np.int32)
        self._edits = self._separate = self._ended = False
        self._uniform: Callable[[int], float] = lambda place: 0.0
        self._begun = 0  # steps launched in all; the device counts along
        self._place = 0  # the place of the token that the latest step samples
        self._latest: Mark | None = None  # after everything that was launched
        self._waiting: list[tuple[int, Mark]] = []  # steps whose results have not been read: number and mark

    # -- as in the protocol

    def follow(self, plan: SamplingPlan) -> None:
        """Sample by this plan from the next `start` on."""
        self.settle()
        self._plan = plan
        self._edits = plan.bias is not None or plan.penalises
        self._separate = self._edits and plan.alternatives > 0
        if self._edits:
            self._send_bias(plan.bias)
        self._uploads.send(layout.plan_words(plan, self._separate, self._shape.requested), self._plan_words)
        self._graph()  # captured now, before a reply waits for a token

    def start(
        self,
        ids: Sequence[int],
        pages: Ints,
        uniform: Callable[[int], float],
        states: tuple[int, int] | None = None,
        shift: int = 0,
    ) -> None:
        self.settle()
        if self._plan.penalises:
            self._send_history(ids)
        self._uploads.send(np.array([ids[-1]], np.int32), self._row.tokens)
        self._uploads.send(np.array([len(ids) - 1], np.int32), self._row.position)
        self._uploads.send(np.array([len(ids) - 1 - shift], np.int32), self._row.rope_position)
        self.set_pages(pages)
        if states is not None:
            set_states(self._states, len(ids) - 1, 1, states)
            self._states[len(ids) % 4] = states[1]
            self._uploads.send(self._states, self._row.states)
        self._uniform, self._place = uniform, len(ids) - 1
        self._begin()

    def set_pages(self, pages: Ints) -> None:
        self._uploads.send(pages, self._row.pages)

    def set_state(self, length: int, number: int) -> None:
        """As in the protocol. Numbers mostly come again every four tokens, and then nothing is sent."""
        places = [length % 4, 4 + length % 4]
        if (self._states[places] != number).any():
            self._states[places] = number
            self._uploads.send(self._states, self._row.states)

    @property
    def ahead(self) -> int:
        return 1

    @property
    def under_way(self) -> int:
        return len(self._waiting)

    def next(self, further: int) -> Sampled | None:
        """As in the protocol. Raises `ValueError` if no step is running."""
        if not self._waiting:
            raise ValueError("no step is under way: start the loop")
        if further:
            self._begin()
        number, mark = self._waiting.pop(0)
        mark.wait()
        return self._read(number)

    def logits(self, place: int) -> Floats:
        """As in the protocol. Raises `ValueError` for logits that are overwritten or not computed yet."""
        back = self._place - place
        if not 0 <= back < min(SLOTS, self._begun):
            raise ValueError(
                f"the logits at {place} are not among those of the latest {SLOTS} steps, which end at "
                f"{self._place}"
            )
        slot = (self._begun - 1 - back) % SLOTS
        start = slot * self._shape.stride
        kept: Floats = self._device.read(self._kept[start : start + 4 * self._size]).view(np.float32)
        return kept

    def close(self) -> None:
        self._waiting.clear()

    def settle(self) -> None:
        """Wait until no step is running, including abandoned ones."""
        self.close()
        if self._latest is not None:
            self._latest.wait()
            self._latest = None

    def end(self) -> None:
        """Settle for good: the graphs hold addresses of memory that is freed with the program."""
        try:
            self.settle()
        finally:
            self._graphs, self._ended = {}, True

    # -- inside

    def _begin(self) -> None:
        """Launch a step."""
        assert not self._ended, "the loop's program is closed"
        self._place += 1
        self._numbers[self._begun % SLOTS] = 0.0 if self._plan.greedy else self._uniform(self._place)
        self._graph().launch()
        self._latest = self._device.mark()
        self._waiting.append((self._begun, self._latest))
        self._begun += 1

    def _graph(self) -> Graph:
        form = self._edits, self._separate
        if form not in self._graphs:
            calls = self._calls(*form)
            for _ in self._device.prepare([*self._row.kernels, *(kernel for kernel, _, _ in calls)]):
                pass  # most were prepared with the program's kernels

            def launches() -> None:
                self._row.launch()
                for call in calls:
                    self._device.launch(*call)

            self._graphs[form] = self._device.record(launches)
        return self._graphs[form]

    def _calls(self, edits: bool, separate: bool) -> list[sampling.Launch]:
        row = self._row
        addresses = sampling.Addresses(
            logits=row.logits.data_ptr(), kept=self._kept.data_ptr(), plan=self._plan_words.data_ptr(),
            state=self._state.data_ptr(), tokens=row.tokens.data_ptr(), position=row.position.data_ptr(),
            rope_position=row.rope_position.data_ptr(), uniforms=self._uniforms.data_ptr(),
            results=self._results.data_ptr(), work=self._work.addresses,
        )  # fmt: skip
        if edits:
            more = self._more()
            names = ("scores", "bias", "amounts", "latest", "history")
            addresses = addresses.with_edits(*(getattr(more, name).data_ptr() for name in names))
        return sampling.launches(self._shape, addresses, separate=separate)

    def _read(self, number: int) -> Sampled | None:
        """The result of a step, or None if the device could not sample it."""
        whole = self._result_words[number % SLOTS]
        assert int(whole[layout.STAMP]) == number + 1, "the device and the host count different steps"
        if whole[layout.FLAG]:
            return None
        real = whole.view(np.float32)
        head = real[layout.FINAL : layout.ENTROPY + 1].tolist()
        token, others, tops = (int(whole[i]) for i in (layout.TOKEN, layout.OTHERS, layout.TOPS))
        alternatives = tuple(
            (int(whole[at]), float(real[at + 1]), float(real[at + 2]))
            for at in range(OTHERS_AT, OTHERS_AT + 3 * others, 3)
        )
        top = tuple((int(whole[at]), float(real[at + 1])) for at in range(TOPS_AT, TOPS_AT + 2 * tops, 2))
        return Sampled(token, head[0], head[1], top, alternatives, head[2])

    # -- history, for penalties

    def _more(self) -> _Penalties:
        if self._penalties is None:
            size, device = self._shape.stride, self._device
            room = max(256, -(-4 * (self._row.context + 2) // 256) * 256)
            self._penalties = _Penalties(*(device.zeros(n) for n in (size, size, size, size, room)))
        return self._penalties

    def _send_bias(self, bias: Floats | None) -> None:
        if bias is self._bias and self._penalties is not None:
            return
        more = self._more()
        padded = np.zeros(self._shape.stride // 4, np.float32)
        if bias is not None:
            padded[: self._size] = np.maximum(bias[: self._size], layout.NOTHING)
        self._uploads.send(padded, more.bias)
        self._bias = bias

    def _send_history(self, ids: Sequence[int]) -> None:
        more, plan = self._more(), self._plan
        text: Any = np.asarray(ids, np.int64)
        amounts, latest = sampling.occurrences(text, self._shape.stride // 4, plan.reach, plan.fade)
        self._uploads.send(amounts, more.amounts)
        self._uploads.send(latest, more.latest)
        if plan.reach > 0:
            self._uploads.send(text.astype(np.int32), more.history)
