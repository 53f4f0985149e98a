"""Steps of keys and values written into a `CudaCache` on the fake device, as a recorded pass would do it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from engine.backends.base import AttentionShape
from engine.backends.cuda.kernels.kv_write.gather import gather_call
from engine.backends.cuda.kernels.kv_write.kv_write import kv_write_calls
from engine.backends.cuda.kv_cache import KEYS, VALUES, CudaCache
from engine.backends.cuda.lowering.call import SMALL_BATCH, Call, Runtime, TorchCall
from engine.backends.graph.buffers import Buffer
from engine.backends.kv_formats import CacheType, cache_type
from tests.simt.fake import FakeDevice


class KvWriteSteps:
    """One layer's store and the sequence in it; `engine.backends.cuda.lowering.call.Bound` for the
    operation of a step.
    """

    def __init__(self, kind: str, shape: AttentionShape, pages: list[int]) -> None:
        self.device = FakeDevice()
        self.kind: CacheType = cache_type(kind)
        self.shape, self.pages = shape, np.array(pages, np.int32)
        self.cache = CudaCache([self.device], [shape], max(pages) + 1, self.kind)
        widths = [shape.heads * shape.head_dim, *[shape.kv_heads * shape.head_dim] * 2]
        self._buffers = [Buffer(width) for width in widths]
        self._rows: dict[Any, torch.Tensor] = {}
        self._table = self.device.upload(self.pages)
        self._positions = self.device.upload(np.zeros(1, np.int32))
        self.rows = self.position = 0
        self.launches = 0

    def write(self, position: int, rows: tuple[Any, Any, Any], *, many: bool | None = None) -> None:
        """q, k, v (T, width) at positions from `position` on; the way of steps of many rows where `many`,
        else by their number.
        """
        self.rows, self.position = len(rows[0]), position
        for buffer, x in zip(self._buffers, rows, strict=True):
            padded = np.full((self.rows, buffer.stride // 4), np.nan, np.float32)
            padded[:, : buffer.width] = x
            self._rows[buffer] = self.device.upload(padded)
        self._positions = self.device.upload(np.arange(position, position + self.rows, dtype=np.int32))
        operation = kv_write_calls(self.kind, self.cache.addresses(0), *self._buffers, self.shape)
        for call in (
            operation.small
            if operation.large is None or not (many or self.rows > SMALL_BATCH)
            else operation.large
        ):
            if isinstance(call, TorchCall):
                list(self.device.prepare(call.kernels))
                call.run(self)
            else:
                list(self.device.prepare([call.kernel]))
                self.launch(call)
        self.device.synchronize()

    def address(self, argument: Any) -> int | float:
        if isinstance(argument, Buffer):
            return self._rows[argument].data_ptr()
        if isinstance(argument, Runtime):
            if argument is Runtime.RUNS:
                return 0
            return {Runtime.POSITIONS: self._positions, Runtime.PAGES: self._table}[argument].data_ptr()
        assert isinstance(argument, int | float)
        return argument

    def launch(self, call: Call) -> None:
        self.launches += 1
        self.device.launch(
            call.kernel, call.blocks(self.rows), [self.address(argument) for argument in call.arguments]
        )

    def tensor(self, buffer: Buffer) -> torch.Tensor:
        return self._rows[buffer].view(torch.float32).reshape(self.rows, -1)

    def scratch(self, size: int, place: int = 0) -> torch.Tensor:
        return self.device.empty(size)

    def read(self, first: int, count: int) -> tuple[Any, Any]:
        """Keys and values (count, G, D) float32."""
        out = []
        for side, name, address in zip(
            (KEYS, VALUES), (self.kind.keys, self.kind.values), self.cache.addresses(0), strict=True
        ):
            target = self.device.empty(4 * count * self.shape.kv_heads * self.shape.head_dim)
            call = gather_call(side, name, address, target.data_ptr(), self.shape, first, count, fp16=False)
            list(self.device.prepare([call.kernel]))
            self.launch(call)
            numbers = self.device.read(target).view(np.float32)
            out.append(numbers.reshape(count, self.shape.kv_heads, self.shape.head_dim))
        return out[0], out[1]

    def bytes(self) -> Any:
        """All that lies in the store."""
        return np.concatenate([self.cache.read_page(page) for page in range(self.cache.page_count)])


def sequence(seed: int, length: int, shape: AttentionShape) -> tuple[Any, Any, Any]:
    """q, k, v (T, width): keys around a mean with a few dimensions of large numbers, queries with much in
    common.
    """
    rng = np.random.default_rng(seed)
    q, k, v = (
        rng.standard_normal((length, heads, shape.head_dim))
        for heads in (shape.heads, shape.kv_heads, shape.kv_heads)
    )
    q += rng.standard_normal((1, shape.heads, shape.head_dim))
    k += 2 * rng.standard_normal((1, shape.kv_heads, shape.head_dim))
    k[..., :: max(1, shape.head_dim // 3)] *= 5
    return tuple(x.reshape(length, -1).astype(np.float32) for x in (q, k, v))  # type: ignore[return-value]
