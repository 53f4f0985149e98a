"""Compiled passes over large vocabularies; in NumPy alone they take a tenth of a small model's decode step.

Each is compiled at its first use, which takes half a second once on each machine: the machine code is kept in
the user's cache. Small vocabularies use NumPy, so nothing is compiled for them. The choice depends only on
the size, so results are reproducible.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.lazy_dataclass import dataclass
from engine.platform.folders import code_folder
from engine.sampling import passes

MIN_COMPILED = 1 << 16
"""The smallest vocabulary for which `softmax_sums`, `moments` and `allow` are used."""
MIN_SCANNED = 1 << 14
"""The smallest vocabulary for which `top_k_scan` and `Pick` are used."""
LONGEST_HEAD = passes.LONGEST_HEAD
"""The largest number of likeliest tokens that a scan finds."""

_SCALED = ("contract", "nsz")
_SUMMED = ("contract", "nsz", "reassoc")


@dataclass(slots=True)
class TopKScan:
    """The result of one pass over logits (V,), valid until the next scan into the same `ScanBuffers`.

    `total` and `inner` are the `softmax_sums`. `ids` (n,) int64 are the likeliest tokens, likeliest
    first, ties by lowest id, and `scores` (n,) float64 their logits: as many as requested, or, with
    `complete`, all those above -inf because there are fewer. `maxima` (4096,) float32 are the
    `column_maxima` of `engine.sampling.selection`.
    """

    largest: float
    total: float
    inner: float
    ids: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]
    complete: bool
    maxima: npt.NDArray[np.float32]


class ScanBuffers:
    """Reusable output of scans and picks: one array and views of its parts."""

    def __init__(self) -> None:
        self.block = np.zeros(passes.ROOM, np.float64)
        self.sums, self.alternatives = self.block[:3], self.block[passes.ALTERNATIVES : passes.IDS]
        self.ids, self.scores = (
            self.block[passes.IDS : passes.SCORES].view(np.int64),
            self.block[passes.SCORES : passes.WEIGHTS],
        )
        self.maxima = self.block[passes.MAXIMA : passes.LANES].view(np.float32)
        self.lanes = self.block[passes.LANES :].view(np.float32)
        self.kernel: Any = None


def top_k_scan(logits: npt.NDArray[np.float32], count: int, room: ScanBuffers) -> TopKScan | None:
    """The `count` (at most `LONGEST_HEAD`) likeliest of logits (V,) in one pass.

    None if the logits hold NaN or +inf or are all -inf.
    """
    if room.kernel is None:
        room.kernel = _pick_entry()
    found = room.kernel(
        np.ascontiguousarray(logits), 0.0, ~count, room.block, room.ids, room.maxima, room.lanes
    )[0]
    if found < 0:
        return None
    largest, total, inner = room.sums.tolist()
    return TopKScan(largest, total, inner, room.ids[:found], room.scores[:found], found < count, room.maxima)


PickedToken = tuple[int, float, float, float, list[float]]
"""What `Pick` found."""


class Pick:
    """The usual way to sample, in one compiled call: top-k, steps that depend only on likelihood, sampling.

    The result equals that of the steps in `engine.sampling.sampler` bit for bit. Between two passes of a
    model the caches are cold, so the cost for each token is the amount of code and objects touched.
    """

    def __init__(self, room: ScanBuffers, head: int, steps: Sequence[tuple[int, float]] | None) -> None:
        """Scan the `head` likeliest into `room`, then apply `steps`, pairs (code, value) as in `passes`.

        With `steps` None, take the likeliest token.
        """
        self._kernel = _pick_entry()
        self._whole, self._reported, self._some = room.alternatives, 0, room.alternatives[:0]
        # Views of the block as other types are made here: a kernel that makes them holds the errors that they
        # can raise, whose text names the folder of Numba, so that its bytes would differ from place to place.
        self._block, self._ids, self._maxima, self._lanes = room.block, room.ids, room.maxima, room.lanes
        set_steps(room.block, head, steps)

    def __call__(self, logits: npt.NDArray[np.float32], uniform: float, alternatives: int) -> PickedToken:
        """Sample from logits (V,), float32 and contiguous, with the random number `uniform`.

        Returns the token, its final and its raw probability, the entropy (0 without alternatives), and the
        id, raw and final probability of each of the `alternatives` (at most `head`) likeliest, flat. The
        token is -1 if the logits hold NaN or +inf or are all -inf.
        """
        token, final, raw, entropy, reported = self._kernel(
            logits, uniform, alternatives, self._block, self._ids, self._maxima, self._lanes
        )
        if reported != self._reported:
            self._reported, self._some = reported, self._whole[: 3 * reported]
        return token, final, raw, entropy, self._some.tolist() if reported else []


def set_steps(block: npt.NDArray[np.float64], head: int, steps: Sequence[tuple[int, float]] | None) -> None:
    """Write to the block (ROOM,) of `passes` what `Pick` is given."""
    block[passes.HEAD], block[passes.STEPS] = head, -1 if steps is None else len(steps)
    flat = [number for step in steps or () for number in step]
    block[passes.PROGRAM : passes.PROGRAM + len(flat)] = flat


def softmax_sums(logits: npt.NDArray[np.float32], largest: np.float32) -> tuple[float, float]:
    """Sums over logits (V,) of w = exp(l - largest) and w * (l - largest), with l - largest at least -87."""
    lanes = np.empty(2 * passes.SUM_LANES, np.float32)
    total, inner = _softmax_kernel()(np.ascontiguousarray(logits), largest, lanes)
    return float(total), float(inner)


def moments(
    scores: npt.NDArray[np.float32], pivot: float
) -> tuple[int, float, float, npt.NDArray[np.float32]]:
    """Of the scores (V,) above -inf: the number, the sums of l - pivot and of (l - pivot)^2.

    The fourth result is the column maxima.
    """
    maxima = np.empty(passes.BLOCK, np.float32)
    count, total, squares = _moments_kernel()(np.ascontiguousarray(scores), np.float32(pivot), maxima)
    return int(count), float(total), float(squares), maxima


def allow(
    scores: npt.NDArray[np.float32], words: npt.NDArray[np.uint32], out: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Write scores (V,) to `out`, -inf where the bit in words (ceil(V / 32),) is clear.

    Returns the column maxima (4096,).
    """
    maxima = np.empty(passes.BLOCK, np.float32)
    _allow_kernel()(np.ascontiguousarray(scores), words, out, maxima)
    return maxima


def prepare(vocabulary: int) -> None:
    """Load or compile the passes that usual settings need for a vocabulary of this size."""
    if vocabulary >= MIN_SCANNED:
        _pick_entry()


# Each kernel is built separately, so that startup pays only for those in use. Inputs may be read-only arrays.


@functools.cache
def _softmax_kernel() -> Any:
    return _compiled(passes._softmax_sums, _softmax_signature(), _SCALED)


@functools.cache
def _pick_entry() -> Any:
    """`passes._pick` as machine code: Numba's dispatcher would check every argument's type at each call."""
    # No contraction or reordering of sums: the results must equal those of the Python steps.
    return next(iter(_compiled(passes._pick, _pick_signature(), ()).overloads.values())).entry_point


def _scan_signature() -> Any:
    from numba import types

    f32, f64 = types.float32[::1], types.float64[::1]
    return types.int64(_read(types.float32), types.int64, f32, types.int64[::1], f64, f64, f32)


def _softmax_signature() -> Any:
    from numba import types

    return types.UniTuple(types.float64, 2)(_read(types.float32), types.float32, types.float32[::1])


def _pick_signature() -> Any:
    from numba import types

    f64, whole = types.float64, types.int64
    parts = types.float64[::1], types.int64[::1], types.float32[::1], types.float32[::1]
    return types.Tuple((whole, f64, f64, f64, whole))(_read(types.float32), f64, whole, *parts)


class Parts:
    """The functions that those of `passes` call, each made when something first needs it.

    `jit(function, signature, flags)` makes a function for others to call, with these flags for its arithmetic
    with floats. `_survey_pick` is `_pick` with `_finish_scan` in place of `_scan`.
    """

    def __init__(self, jit: Callable[[Any, Any, tuple[str, ...]], Any]) -> None:
        self._jit, self._made = jit, {"_from_bits": _bits_to_float()}

    def __getitem__(self, name: str) -> Any:
        """The part of this name. Raises KeyError."""
        if name not in self._made:
            template, flags = _TEMPLATES[name]
            self._made[name] = self._jit(self.joined(template), _signatures()[name], flags)
        return self._made[name]

    def joined(self, template: Any) -> Any:
        """The function with the parts that it names among its globals."""
        names = dict.fromkeys(template.__code__.co_names)  # in order: it decides how code is named
        known = [name for name in names if name in _TEMPLATES or name == "_from_bits"]
        return _with_names(template, {name: self[name] for name in known})


@functools.cache
def parts_of(jit: Callable[[Any, Any, tuple[str, ...]], Any]) -> Parts:
    """The parts of what the process makes with `jit`, each made once."""
    return Parts(jit)


def _survey_pick() -> Any:
    """`passes._pick` after a scan whose first part is done."""
    code = passes._pick.__code__
    names = tuple("_finish_scan" if name == "_scan" else name for name in code.co_names)
    return FunctionType(code.replace(co_names=names), vars(passes), "_pick")


_TEMPLATES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "_exponential": (passes._exponential, _SCALED), "_softmax_lanes": (passes._softmax_lanes, _SCALED),
    "_add_lanes": (passes._add_lanes, _SCALED), "_softmax_sums": (passes._softmax_sums, _SCALED),
    "_column_maxima": (passes._column_maxima, _SCALED), "_largest": (passes._largest, _SCALED),
    "_reaching": (passes._reaching, _SCALED), "_bound": (passes._bound, _SCALED),
    "_likeliest": (passes._likeliest, _SCALED), "_scan": (passes._scan, _SCALED),
    "_finish_scan": (passes._finish_scan, _SCALED), "_weigh": (passes._weigh, ()),
    "_survey_pick": (_survey_pick(), ()),
}  # fmt: skip
"""For each part what it is made of, and the flags for its arithmetic."""


@functools.cache
def _signatures() -> dict[str, Any]:
    """The type of each part."""
    from numba import types

    f32, f64, whole, row = types.float32, types.float64, types.int64, types.float32[::1]
    logits, void, pair = _read(f32), types.void, types.UniTuple
    scores = types.float64[::1]
    return {
        "_exponential": pair(f32, 2)(f32, f32), "_softmax_lanes": void(logits, f32, row),
        "_add_lanes": pair(f64, 2)(row, f64, f64), "_softmax_sums": _softmax_signature(),
        "_column_maxima": void(logits, whole, whole, row), "_largest": f32(row, row),
        "_reaching": whole(row, f32), "_bound": f64(row, f32, whole),
        "_likeliest": whole(logits, whole, f32, row, types.int64[::1], scores), "_scan": _scan_signature(),
        "_finish_scan": _scan_signature(), "_weigh": f64(scores, whole, scores),
        "_survey_pick": _pick_signature(),
    }  # fmt: skip


def _bits_to_float() -> Any:
    """An intrinsic that reinterprets 32 bits as float32; a view of an array would need a pass of its own."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    def make(context: Any, bits: Any) -> Any:
        return types.float32(types.int32), lambda context, builder, signature, arguments: builder.bitcast(
            arguments[0], ir.FloatType()
        )

    return intrinsic(make)


@functools.cache
def _moments_kernel() -> Any:
    from numba import types

    return _compiled(
        passes._moments,
        types.UniTuple(types.float64, 3)(_read(types.float32), types.float32, types.float32[::1]),
        _SUMMED,
    )


@functools.cache
def _allow_kernel() -> Any:
    from numba import types

    written = types.float32[::1]
    return _compiled(
        passes._allow, types.void(_read(types.float32), _read(types.uint32), written, written), _SCALED
    )


def _read(kind: Any) -> Any:
    """The type of a contiguous read-only array."""
    from numba import types

    return types.Array(kind, 1, "C", readonly=True)


@functools.cache
def _sources_hash() -> str:
    from engine.platform import compiled

    return compiled.sources_hash(sorted(Path(__file__).parent.glob("*.py")))


def _compiled(function: Any, signature: Any, flags: tuple[str, ...]) -> Any:
    """The compiled function, brought by the program or kept in the user's cache if that is writable."""
    from engine.platform import compiled

    name, options = f"sampling-{_sources_hash()}", {"nogil": True, **_options(flags)}
    folder = None
    for folder in _folders(name):
        with compiled.cached_in(folder):
            found = compiled.cached_function(function, signature, options) if folder is not None else None
        if found is not None:
            return found
    made = parts_of(compiled.numpy_part).joined(function)
    with compiled.cached_in(folder):
        return compiled.function(made, signature, options, cache=folder is not None)


def _folders(name: str) -> Iterator[Path | None]:
    """Where compiled code may be; the last is where it is kept."""
    from engine.platform import levels

    yield levels.prebuilt(name)
    yield code_folder(name)


def _options(flags: tuple[str, ...]) -> dict[str, Any]:
    return {"error_model": "numpy", "fastmath": set(flags)}


def _with_names(function: Any, names: dict[str, Any]) -> Any:
    """A function whose globals include `names`."""
    return FunctionType(function.__code__, {**vars(passes), **names}, function.__name__)
