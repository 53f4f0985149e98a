"""Which kernels the proof of a large model's kernels runs, and what it costs: counted on a device that
carries nothing out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest

from engine.backends.base import Array, Ops
from engine.backends.cuda import backend as cuda_backend
from engine.backends.cuda.backend import CudaBackend
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.lowering.estimate import dry_pass
from engine.backends.cuda.proof import proven
from engine.backends.cuda.runtime.decode_loop import decode_loop_kernels
from engine.backends.cuda.runtime.device import Device
from engine.backends.cuda.weight import CudaWeight, WeightSpec
from engine.backends.reference.backend import ReferenceBackend
from engine.drain import drain
from engine.models.base import rope_tables
from engine.models.building.source import Survey
from engine.models.layers.parts import Linear
from engine.models.load import find_architecture, read_config
from engine.models.proof import first_use
from engine.models.proof.case import Case, outcome, run_case
from engine.models.proof.miniature import kinds_of, miniatures
from engine.tensors import RawTensor
from tests.simt.fake import FakeDevice, Work
from tests.simt.real_models import REAL, Header, TypeOf, checkpoint

RUN = ("route", "sample")
"""The beginnings of names of kernels that are carried out: what they say decides what runs next."""


@dataclass(frozen=True)
class Large:
    """A model as people have it, on a GPU; `adapted` are words in the names of matrices that have an
    adapter, `config` changes.
    """

    name: str
    type_of: TypeOf
    cache: str = "auto"
    capability: int = 90
    sm_count: int = 132
    adapted: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reach:
    """What a proof came to: kernels that no case ran, kernels that the model itself would not run, and of all
    launches and of the reference's multiplications how many.
    """

    left: frozenset[str]
    besides: frozenset[str]
    launches: int
    multiplications: int


class _Blank(CudaWeight):
    """A matrix in a device's memory whose numbers are whatever lay there."""

    def __init__(self, device: Device, tensor: RawTensor) -> None:
        WeightSpec.__init__(self, tensor, device.capability)
        self._data = device.empty(max(self.nbytes, 16))


class _Opened:
    """A large model: its passes, and the cases that prove what they run."""

    def __init__(self, large: Large) -> None:
        self.device = FakeDevice(1 << 40, large.capability, large.sm_count)
        self.backend, self.cache = CudaBackend([cast(Device, self.device)]), large.cache
        opened = checkpoint({**REAL[large.name], **large.config}, large.type_of)
        weight_layout, config = find_architecture(opened), read_config(opened)
        names = weight_layout.names(opened.format, opened.tensors)
        self.seen, turn = Survey(opened.tensors, self.backend), rope_tables(config, 256, 256)
        self.seen.parts = drain(weight_layout.build(self.seen, config, names))
        small = miniatures(weight_layout, config, names, opened.tensors, None, large.cache)
        self.cases = first_use.cases_for(kinds_of(opened.tensors, None), small, config, large.cache)

        def forward(ops: Ops) -> Array:
            assert self.seen.parts is not None
            return self.seen.parts(ops, turn)

        self.forward = forward
        for name, linear in self.seen.linears.items():
            if any(word in name for word in large.adapted):
                linear.adapters.pairs.append(self._pair(linear))

    def _pair(self, linear: Linear) -> Any:
        rows, columns = linear.weight.shape
        return tuple(
            self.backend.weight_spec(Header("adapter", "F32", shape)) for shape in ((24, columns), (rows, 24))
        )


def needed(large: Large) -> set[Kernel]:
    """The kernels that a large model's passes and draws may run."""
    opened = _Opened(large)
    lowered = dry_pass(opened.forward, large.cache, cast(Device, opened.device))
    return {*lowered.kernels(0), *decode_loop_kernels(lowered.logits.width)}


def reach(large: Large, monkeypatch: pytest.MonkeyPatch) -> Reach:
    """Prove a large model's kernels on a device that takes every launch for done, and says that all is
    right.
    """
    launches, multiplications = 0, 0
    run: Callable[..., Any] = run_case

    def noted(work: Work) -> None:
        nonlocal launches
        launches += 1

    def done(work: Work) -> None:
        noted(work)
        work()

    def case(case: Case, backend: Any, tensors: Any) -> Any:
        nonlocal multiplications
        if not isinstance(backend, ReferenceBackend):
            return run(case, backend, tensors)
        rows = sum(case.steps) + sum(map(sum, case.batches))
        multiplications += rows * sum(int(np.prod(tensor.shape)) for tensor in tensors)
        return np.zeros(1, np.float32)

    opened = _Opened(large)
    device = opened.device
    device.identity, device.broken = f"fake for {large}", {**dict.fromkeys(RUN, done), "": noted}
    kept = {"passed": frozenset[str](), "untried": frozenset[str]()}

    def remember(identity: str, **names: Any) -> None:
        for what, more in names.items():
            kept[what] |= frozenset(more)

    monkeypatch.setattr(proven, "known", lambda identity: proven.Proven(kept["passed"]))
    monkeypatch.setattr(proven, "remember", remember)
    monkeypatch.setattr(cuda_backend, "CudaWeight", _Blank)
    monkeypatch.setattr(first_use, "SECONDS", 1e9)
    monkeypatch.setattr(first_use, "run_case", case)
    monkeypatch.setattr(first_use, "difference", lambda found, expected: 0.0)
    monkeypatch.setattr(first_use, "outcome", lambda name, off, most: outcome(name, 0.0, most))
    (trial,) = opened.backend.to_prove(opened.forward, large.cache)
    for _ in first_use.prove(opened.backend, opened.cases, large.cache, opened.forward):
        pass
    assert not opened.backend.notice, opened.backend.report
    besides = frozenset(kernel.name for kernel in device.prepared) - trial.left
    return Reach(kept["untried"], besides, launches, multiplications)
