"""For `tests.bench.bench_cuda`: Llamas of a few random bytes that all layers share, and the timing of their
passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.backends.cuda.backend import CudaBackend
from engine.backends.cuda.runtime.device import Device
from engine.backends.decode_loop import HasDecodeLoop, SamplingPlan
from engine.drain import drain
from engine.models.load import read_model
from engine.models.paged import PagedCache
from engine.settings import CacheSettings
from engine.tensors import RawTensor
from engine.weights.packed.table import wrap_quantised
from engine.weights.tensor import FileTensor
from tests.synthetic import _pattern, llama_entries
from tests.tiny import Tiny, tiny_config

KINDS = {"bf16": "BF16", "4-bit": "gptq"}
"""What people call the weights, and what `tests.synthetic` calls them."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama, with a name."""

    name: str
    sizes: Tiny


@dataclass(frozen=True)
class Plan:
    """What is measured: tokens before a decode, prompts, tokens of a decode; bytes of the copy and size of
    the matrices.
    """

    depths: tuple[int, ...]
    prompts: tuple[int, ...]
    tokens: int
    repeat: int
    copied: int = 1 << 30
    side: int = 8192

    def but(self, repeat: int) -> Plan:
        """With another number of repetitions."""
        return replace(self, repeat=repeat)

    @property
    def context(self) -> int:
        """The tokens that the longest measurement needs."""
        return max(max(self.depths) + 2 * self.tokens + 8, *self.prompts)


def _llama(
    layers: int, width: int, heads: int, kv_heads: int, head_dim: int, inner: int, vocabulary: int
) -> Tiny:
    return Tiny(
        layers=layers, width=width, heads=heads, kv_heads=kv_heads, head_dim=head_dim, ffn_width=inner,
        vocab_size=vocabulary, context_length=1 << 16, tied=False,
    )  # fmt: skip


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("1B", _llama(16, 2048, 32, 8, 64, 8192, 128256)),
        Shape("8B", _llama(32, 4096, 32, 8, 128, 14336, 128256)),
        Shape("32B", _llama(64, 5120, 40, 8, 128, 27648, 152064)),
        Shape("toy", _llama(2, 128, 2, 1, 64, 256, 512)),
    )
}
"""The sizes of Llama 3.2 1B, Llama 3.1 8B and Qwen2.5 32B, and ones that measure nothing."""


class Made:
    """A `Checkpoint` in memory. Tensors of one shape share their bytes, so that a model takes the memory of
    one layer.
    """

    format = "safetensors"

    def __init__(self, shape: Shape, kind: str) -> None:
        self.path = Path(f"{shape.name}-{kind}")
        config: dict[str, Any] = dict(tiny_config(shape.sizes))
        if kind == "4-bit":
            config["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 128}
        self.metadata = {"config": config}
        self._bytes: dict[object, npt.NDArray[np.uint8]] = {}
        widths = {"BF16": 2, "F16": 2, "I32": 4}
        found = {}
        for name, entry in llama_entries(shape.sizes, KINDS[kind]).items():
            size = widths[entry.type] * int(np.prod(entry.shape))
            content = entry.content if entry.content is not None else _pattern(entry.type)
            data = self._bytes.setdefault(
                (entry.type, entry.shape, entry.content is None), np.resize(content, size)
            )
            found[name] = FileTensor(name, entry.type, entry.shape, data)
        self.tensors: dict[str, RawTensor] = wrap_quantised(found, config)

    def close(self) -> None:
        """Release the bytes."""
        self._bytes, self.tensors = {}, {}


class Subject:
    """A model on a device, and the seconds of its passes."""

    def __init__(self, shape: Shape, kind: str, plan: Plan, cache: PagedCache, device: Device) -> None:
        self.shape, self.kind, self._plan, self._cache, self._device = shape, kind, plan, cache, device
        self._ids = [
            int(i) for i in np.random.default_rng(0).integers(0, shape.sizes.vocab_size, plan.context)
        ]
        self._lease = cache.table.open(())

    def step_bytes(self, depth: int) -> float:
        """Bytes that the step of one token reads after `depth` others: weights, keys and values."""
        page = self._cache.model.page_bytes() / 256
        return self._cache.model.weight_bytes_per_token + depth * page

    def prompt_operations(self, tokens: int) -> float:
        """Floating-point operations of a prompt: two for each weight of the layers and token, and the two
        products of attention.
        """
        sizes = self.shape.sizes
        attention = sizes.width * sizes.head_dim * 2 * (sizes.heads + sizes.kv_heads)
        layer = attention + 3 * sizes.width * sizes.ffn_width
        scores = 4 * sizes.heads * sizes.head_dim * tokens * (tokens + 1) / 2
        return float(sizes.layers * (2 * layer * tokens + scores) + 2 * sizes.width * sizes.vocab_size)

    def prompt_seconds(self, tokens: int) -> float:
        """The median of reading this many tokens into an empty cache."""
        return self._median(lambda: self._read(0, tokens))

    def decode_seconds(self, depth: int) -> float:
        """The median of one token after `depth` others; in the device decode loop if there is one."""
        self._read(0, depth + 1)
        return self._median(lambda: self._write(depth + 1)) / self._plan.tokens

    def rows_seconds(self, rows: int) -> float:
        """The median of a pass of this many rows with all logits, after the middle depth."""
        depth = sorted(self._plan.depths)[len(self._plan.depths) // 2]
        self._read(0, depth + 1)

        def once() -> None:
            for _ in range(self._plan.tokens):
                self._lease.truncate(depth + 1)
                self._cache.run(self._lease, self._ids[depth + 1 : depth + 1 + rows], rows)

        return self._median(once) / self._plan.tokens

    def host_seconds(self) -> float:
        """The host's work for each decoded token, without waiting for the device."""
        self._read(0, 1)
        waited = _Waits(self._device)
        self._write(1)
        with waited:
            begun = time.perf_counter()
            self._write(1)
            whole = time.perf_counter() - begun
        return max(0.0, whole - waited.seconds) / self._plan.tokens

    def _median(self, work: Callable[[], None]) -> float:
        work()  # the first use of kernels and graphs is not measured
        found = []
        for _ in range(self._plan.repeat):
            self._device.synchronize()
            begun = time.perf_counter()
            work()
            self._device.synchronize()
            found.append(time.perf_counter() - begun)
        return median(found)

    def _read(self, start: int, stop: int) -> None:
        self._lease.truncate(start)
        for at in range(start, stop, self._cache.rows):
            self._cache.run(self._lease, self._ids[at : min(stop, at + self._cache.rows)])

    def _write(self, start: int) -> None:
        """Decode the plan's number of tokens after the first `start`."""
        self._lease.truncate(start)
        program, tokens = self._cache.program, self._plan.tokens
        greedy = SamplingPlan(self.shape.sizes.vocab_size, greedy=True)
        decode_loop = program.decode_loop(greedy) if isinstance(program, HasDecodeLoop) else None
        if decode_loop is None:
            for at in range(start, start + tokens):
                self._cache.run(self._lease, self._ids[at : at + 1])
            return
        try:
            self._lease.reserve(start + tokens + 2)
            self._cache.settle(self._lease)
            decode_loop.start(
                self._ids[: start + 1], np.array(self._lease.pages, np.int32), lambda place: 0.5
            )
            for number in range(tokens):
                assert decode_loop.next(number + 1 < tokens) is not None, "the device could not draw"
        finally:
            decode_loop.close()


class _Waits:
    """Counts the seconds that the host waits for the device."""

    def __init__(self, device: Device) -> None:
        self._device: Any = device
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._make = self._device.mark
        self._device.mark = self._mark

    def __exit__(self, *_: object) -> None:
        del self._device.mark  # the instance's own; the class has the method

    def _mark(self) -> Any:
        return _TimedMark(self._make(), self)


class _TimedMark:
    def __init__(self, mark: Any, waits: _Waits) -> None:
        self._mark, self._waits = mark, waits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mark, name)

    def wait(self) -> None:
        begun = time.perf_counter()
        self._mark.wait()
        self._waits.seconds += time.perf_counter() - begun


@contextmanager
def opened(device: Device, shape: Shape, kind: str, plan: Plan) -> Iterator[Subject]:
    """A model of this shape on the device, and its cache; both are released at the end."""
    checkpoint = Made(shape, kind)
    model = drain(read_model(checkpoint, CudaBackend([device])))
    checkpoint.close()
    cache = PagedCache(model, CacheSettings(context_length=plan.context, memory=1))
    try:
        yield Subject(shape, kind, plan, cache, device)
    finally:
        cache.close()
        model.close()
