"""Runs a model's passes on GPUs with torch operations only, if the kernels do not run right there.

It applies the reference's formulas to packed matrices, which are dequantised a piece at a time. It is slow
but correct. It replaces all kernels, not only those found wrong: a failed case shows that one of its kernels
is wrong, but not which, and a kernel that writes out of bounds can make others look wrong, or right. Little
would be gained anyway: graphs, sampling on the device, packed activations and the cache's layouts belong to
the kernels, so each would need a second version for a torch operation among them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
import torch

from engine.backends.base import Array, AttentionShape, Forward, KVCache, Routes, Step, Weight
from engine.backends.cuda.layouts.layout import ROWS
from engine.backends.cuda.proof.dequantised import dequantised, tiles_of
from engine.backends.cuda.runtime.device import Device
from engine.backends.cuda.weight import CudaWeight
from engine.backends.kv_formats import CacheType
from engine.backends.packing.composite import Composite
from engine.backends.reference.backend import ReferenceOps
from engine.backends.runs import run_singly
from engine.backends.states import NO_STATES, States
from engine.core import PAGE_TOKENS
from engine.tensors import Bytes, Floats

PIECE_BYTES = 64 << 20
"""The float32 bytes that a matrix is dequantised to at a time; temporaries take about ten times as much."""


def torch_cache_type(kind: CacheType) -> CacheType:
    """The cache type used here: fp32 if it was requested, otherwise fp16."""
    name = "fp32" if (kind.keys, kind.values) == ("fp32", "fp32") else "fp16"
    return CacheType(name, name)


class TorchCache:
    """Keys and values as plain numbers: for each layer (P, 256, G, D) on its device, without columns for the
    values of latent attention; `state_parts` are float32 (states, numbers).

    See `engine.backends.base.KVCache`.
    """

    cross: KVCache | None = None

    def __init__(
        self,
        devices: Sequence[Device],
        shapes: Sequence[AttentionShape],
        page_count: int,
        kind: CacheType,
        states: States = NO_STATES,
        part_devices: Sequence[Device] = (),
    ) -> None:
        self.kind = torch_cache_type(kind)
        self.dtype, self.page_count = str(self.kind), page_count
        self._devices = list(devices)
        number = torch.float32 if self.kind.keys == "fp32" else torch.float16
        widths = (
            [shape.head_dim for shape in shapes],
            [0 if shape.latent else shape.head_dim for shape in shapes],
        )
        sizes = [
            [
                (page_count, PAGE_TOKENS, shape.kv_heads, width)
                for shape, width in zip(shapes, each, strict=True)
            ]
            for each in widths
        ]
        self.keys, self.values = (
            [
                device.zeros(number.itemsize * math.prod(size)).view(number).view(size)
                for device, size in zip(devices, each, strict=True)
            ]
            for each in sizes
        )
        self.page_bytes = sum(number.itemsize * math.prod(size[1:]) for each in sizes for size in each)
        self.nbytes = page_count * self.page_bytes + states.count * states.state_bytes
        self.states = states
        self.state_parts = [
            device.zeros(states.count * 4 * part.floats).view(torch.float32).view(states.count, part.floats)
            for device, part in zip(part_devices, states.shapes, strict=True)
        ]
        self._every = {id(each): each for each in (*devices, *part_devices)}

    def close(self) -> None:
        self.keys, self.values, self.state_parts = [], [], []
        for device in self._every.values():
            device.trim()

    def copy_page(self, source: int, target: int) -> None:
        with on(self._devices):
            for part in (*self.keys, *self.values):
                part[target] = part[source]

    def read_page(self, page: int) -> Bytes:
        """See `KVCache.read_page`: the keys of all layers, then the values."""
        with on(self._devices):
            parts = [
                part[page].reshape(-1).view(torch.uint8).cpu().numpy() for part in (*self.keys, *self.values)
            ]
        return np.concatenate(parts)

    def write_page(self, page: int, data: Bytes) -> None:
        with on(self._devices):
            every, start = torch.from_numpy(data.copy()), 0
            for part in (*self.keys, *self.values):
                given = every[start : start + part[page].nbytes].to(part.device)
                part[page] = given.view(part.dtype).view(part[page].shape)
                start += part[page].nbytes

    def read_state(self, number: int) -> Bytes:
        """See `KVCache.read_state`: all parts one after the other."""
        with on(list(self._every.values())):
            parts = [part[number].view(torch.uint8).cpu().numpy() for part in self.state_parts]
        return np.concatenate(parts)

    def write_state(self, number: int, data: Bytes) -> None:
        with on(list(self._every.values())):
            every, start = torch.from_numpy(data.copy()), 0
            for part in self.state_parts:
                given = every[start : start + part[number].nbytes].to(part.device)
                part[number] = given.view(torch.float32)
                start += part[number].nbytes


class TorchProgram:
    """See `engine.backends.base.Program`: nothing is recorded, each step runs its operations directly."""

    def __init__(self, forward: Forward, cache: TorchCache, max_rows: int, devices: Sequence[Device]) -> None:
        self.max_rows = self.batch_rows = max_rows
        self._forward: Forward | None = forward
        self._cache, self._devices = cache, list(devices)

    def run(self, step: Step) -> Floats:
        if step.runs:
            return run_singly(self.run, step)
        assert self._forward is not None, "the program is closed"
        assert 0 < step.logit_rows <= len(step.token_ids) <= self.max_rows
        with torch.inference_mode(), on(self._devices):
            logits: Floats = self._forward(TorchOps(step, self._cache)).cpu().numpy()
        return logits

    def close(self) -> None:
        """Forget the forward function."""
        self._forward = None


def on(devices: Sequence[Device]) -> ExitStack:
    """A context for torch work in order with each of these devices' own work."""
    stack = ExitStack()
    for device in {id(each): each for each in devices}.values():
        stack.enter_context(device.torch_work())
    return stack


class TorchOps(ReferenceOps):
    """The reference's operations on packed matrices of a GPU."""

    def _looked_up(self, table: Weight, ids: torch.Tensor) -> torch.Tensor:
        assert isinstance(table, CudaWeight)
        tokens = ids.to(table.data.device)
        rows = dequantised(table, tiles_of(table)[tokens // ROWS]).view(len(tokens), ROWS, -1)
        return rows[torch.arange(len(tokens), device=tokens.device), tokens % ROWS]

    def _times(self, x: torch.Tensor, weight: Weight) -> torch.Tensor:
        if isinstance(weight, Composite):
            parts = [
                self._times(x[:, torch.from_numpy(order).long().to(x.device)], part)
                for part, order in zip(weight.parts, weight.orders, strict=True)
            ]
            return torch.stack([part.to(parts[0].device) for part in parts]).sum(0)
        assert isinstance(weight, CudaWeight)
        tiles, x = tiles_of(weight), x.to(weight.data.device)
        step = max(1, PIECE_BYTES // (4 * ROWS * weight.shape[1]))
        pieces = [x @ dequantised(weight, tiles[at : at + step]).T for at in range(0, len(tiles), step)]
        return torch.cat(pieces, 1)[:, : weight.shape[0]]

    def expert_linear(
        self, x: Array, weights: Sequence[Weight], routes: Routes, bias: Floats | None = None
    ) -> Array:
        """See `Ops.expert_linear`; each expert's matrix is dequantised once."""
        chosen = routes[0].reshape(-1).to(x.device)
        y = torch.empty(len(x), weights[0].shape[0], device=x.device)
        for expert in sorted(set(chosen.tolist())):
            places = (chosen == expert).nonzero()[:, 0]
            found = self._times(x[places], weights[expert]).to(y.device)
            y[places] = found if bias is None else found + torch.from_numpy(bias[expert]).to(y.device)
        return y
