"""Checks the kernels that a model needs against the reference, on the first use of a GPU.

This takes a few seconds, once for each device, driver and version of the program. If a kernel is wrong or
does not run, torch's operations replace the kernels.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from engine.backends.base import Array, Backend, Forward, Ops
from engine.backends.kv_formats import cache_type
from engine.core import Loading
from engine.errors import DeviceLost, EngineError, NotEnoughMemory
from engine.models.base import Model
from engine.models.config import ModelConfig
from engine.models.config.relative import ClippedHeads, RelativeHeads
from engine.models.proof.case import Case, Outcome, difference, outcome, run_case
from engine.models.proof.cases import (
    INNER,
    LONG,
    attention_case,
    embed_case,
    expert_case,
    layer_norm_case,
    linear_case,
)
from engine.models.proof.provable import Provable
from engine.models.proof.random_tensors import BLOCKS, Builder, builder
from engine.tensors import Floats, RawTensor

STAGE = "Checking the GPU kernels"
SECONDS = 5.0
"""The time limit of a check; what is left is checked when a model is next loaded."""
NARROWED = (0, 1, 1 << 12)
"""Numbers of multiprocessors that kernels are chosen for (0: the device's own), so that the variants for
small and for large matrices both run.
"""
_HEADS, _WINDOW, _PROFILES = 16, 100, 3
"""Maximum number of query heads of a key/value head in checks of attention, and of positions in a chunk; and
the profiles of biases there.
"""
PLAIN = ("F16", "F32")
"""The types that others without a weight layout are converted to, and those of adapters."""

_FAILURES = (EngineError, AssertionError, RuntimeError, ValueError, LookupError)
"""The errors of a kernel that does not run or leaves unusable results."""

log = logging.getLogger(__name__)


def cases_for(
    kinds: tuple[Sequence[str], Sequence[str]], small: Sequence[Case], config: ModelConfig, cache_dtype: str
) -> tuple[Case, ...]:
    """The cases of one model: products and embeddings of each type in `kinds` (`kinds_of`), its attention,
    the `small` models, and experts with many features and norms of wide gates, which the small models lack.
    """
    kind = str(cache_type(cache_dtype, automatic="fp16"))
    known, experts = (
        [(name, build) for name in names if (build := builder(name)) and _fits(build)]
        for names in (dict.fromkeys((*kinds[0], *PLAIN)), kinds[1])
    )
    return (
        *(linear_case(name, build) for name, build in known),
        *(embed_case(name, build) for name, build in known if name in BLOCKS),
        *_attention(config, kind),
        *small,
        *(expert_case(name, build, LONG) for name, build in experts),
        *((layer_norm_case(config.ffn_width),) if config.altup is not None else ()),
    )


def _fits(build: Builder) -> bool:
    """Whether the units of a type add up to the columns of the cases; those of a few packed ones do not."""
    try:
        for columns in (INNER, LONG):
            build(np.random.default_rng(0), 1, columns)
    except ValueError:
        return False
    return True


def _attention(config: ModelConfig, kind: str) -> Iterator[Case]:
    """Attention with a few heads of each of the model's shapes, and a few profiles of each extent."""
    relative = config.recurrent
    extents = relative.extents if isinstance(relative, RelativeHeads) else (0,) * len(config.cache_shapes)
    shapes = dict.fromkeys(
        (replace(shape, window=min(shape.window, _WINDOW) if shape.chunked else 0, soft_cap=0.0), extent)
        for shape, extent in zip(config.cache_shapes, extents, strict=True)
    )
    for number, (shape, extent) in enumerate(shapes):
        groups = min(shape.kv_heads, 2)
        heads = min(shape.heads // shape.kv_heads, _HEADS) * groups
        few = replace(shape, heads=heads, kv_heads=groups, slopes=shape.slopes[:heads])
        further = f", heads of {shape.head_dim}" if number else ""
        further += f", biases up to {extent}" if extent else ""
        profiles = np.random.default_rng(extent).standard_normal((_PROFILES, extent)).astype(np.float32)
        yield attention_case(
            f"attention, {kind} cache{further}", few, kind, profiles=profiles if extent else None,
            row_sinks=isinstance(relative, ClippedHeads),
        )  # fmt: skip


def prove(backend: Provable, cases: Sequence[Case], cache_dtype: str, forward: Forward) -> Iterator[Loading]:
    """Run the cases of all kernels that are not checked yet; yields progress.

    Raises `DeviceLost`; a kernel that crashed the device is remembered.
    """
    from engine.backends.cuda.proof.trial import DRAW

    for trial in backend.to_prove(forward, cache_dtype):
        found: list[Outcome] = []
        deadline, total = time.monotonic() + SECONDS, len(cases) + 1
        for number, case in enumerate(cases):
            yield Loading(STAGE, number, total)
            found += _tried(trial, case, deadline)
        if trial.draws & trial.left and time.monotonic() < deadline:
            yield Loading(STAGE, total - 1, total)
            device = trial.narrowed()
            found += _outcome(trial, device, "drawing tokens", DRAW, partial(trial.drawn, device))
        yield Loading(STAGE, total, total)
        wrong = [row for row in found if not row["passed"]]
        if wrong:
            trial.wrong([name for row in wrong for name in row["kernels"].split(", ")])
            first = wrong[0]["name"]
            why = (
                f"{len(wrong)} of {len(found)} checks of the kernels that this model needs failed (the "
                f"first: {first})"
            )
            backend.replace(why, _report(trial, found))
            return
        if trial.left:
            log.info(
                "kernels that were not checked on %s: %s", trial.device.name, ", ".join(sorted(trial.left))
            )
            if (
                time.monotonic() < deadline and not trial.short
            ):  # otherwise they are checked at the next loading
                trial.untried()


def _tried(trial: Any, case: Case, deadline: float) -> Iterator[Outcome]:
    """The outcomes of a case, one for each variant that is not yet checked, until the deadline."""
    from engine.backends.cuda.backend import CudaBackend
    from engine.backends.reference.backend import ReferenceBackend

    if not trial.left:
        return
    tensors, expected, tried = case.tensors(), None, frozenset[str]()
    for sm_count in NARROWED:
        device = trial.narrowed(sm_count)
        backend = CudaBackend([device])
        names = trial.kernels(_over(case, backend, tensors), case.cache, sm_count)
        if not names & trial.left - tried:
            continue
        if time.monotonic() > deadline:
            return
        tried |= names
        if expected is None:
            expected = run_case(case, ReferenceBackend(), tensors)
        compare = partial(_difference, case, backend, tensors, expected)
        yield from _outcome(trial, device, case.name, case.tolerance, compare)
        if trial.short:
            return


def _difference(case: Case, backend: Backend, tensors: Sequence[RawTensor], expected: Floats) -> float:
    return difference(run_case(case, backend, tensors), expected)


def _outcome(
    trial: Any, device: Any, name: str, tolerance: float, compare: Callable[[], float]
) -> Iterator[Outcome]:
    """The outcome of `compare`, which runs kernels on a device of the trial; none if memory was short."""
    try:
        result = outcome(name, compare(), tolerance)
    except NotEnoughMemory:
        log.info("not enough memory to check %s", name)
        trial.short = True
        return
    except DeviceLost:
        trial.crashed(device.ran)
        raise
    except _FAILURES as error:
        result = {**outcome(name, float("inf"), tolerance), "error": f"{type(error).__name__}: {error}"}
    if result["passed"]:
        trial.passed(device.ran)
    yield {**result, "kernels": ", ".join(sorted(device.ran))}


def prove_again(model: Model) -> Iterator[Loading]:
    """Check the remaining kernels of a loaded model. Raises `DeviceLost` if one is wrong, since programs that
    run it are already recorded.
    """
    backend = model.backend
    if model.proof is None or not isinstance(backend, Provable) or backend.notice:
        return
    yield from model.proof(model.forward)
    if backend.notice:
        raise DeviceLost(
            "Some GPU kernels now give wrong results. Reload the model: if they are still wrong, "
            "PyTorch's own operations are used instead.",
            backend.report,
        )


def _over(case: Case, backend: Backend, tensors: Sequence[RawTensor]) -> Forward:
    weights = [backend.weight_spec(tensor) for tensor in tensors]

    def forward(ops: Ops) -> Array:
        return case.forward(ops, weights)

    return forward


def _report(trial: Any, found: Sequence[Outcome]) -> str:
    """For a bug report: the device, and every check with its kernels."""
    lines = [
        f"Kernels on {trial.device.identity}, {trial.device.sm_count} multiprocessors, against the reference:"
    ]
    for row in found:
        off = "no number" if row["difference"] is None else f"{row['difference']:.2e}"
        verdict = "ok" if row["passed"] else f"FAILED {row.get('error', '')}".rstrip()
        lines.append(f"{row['name']}: {off} of at most {row['tolerance']:.0e}, {verdict} [{row['kernels']}]")
    return "\n".join(lines)
