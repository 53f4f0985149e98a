"""Shared by all rows of `tests.bench.bench_cpu`: options, opened models, interleaved measurement, lines with
bars.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from engine.backends.cpu.runtime.bandwidth import read_bandwidth
from engine.cli.bench import Ours, Runner
from engine.cli.command import Console
from engine.cli.opening import load
from engine.generator.dynamic import DynamicGenerator
from engine.models.paged import PagedCache
from engine.settings import CacheSettings, LoadSettings
from tests.synthetic import write_large_gguf
from tests.tiny import Tiny
from tests.tools.rivals import RivalFailed
from tests.tools.shapes import write_shape

BANDWIDTH = "bandwidth"
SHAPE = Tiny(
    layers=22,
    width=2048,
    heads=32,
    kv_heads=4,
    head_dim=64,
    ffn_width=5632,
    vocab_size=32000,
    context_length=4096,
)
"""A Llama of 1.1 billion weights, far beyond any L3 cache."""
RECURRENT = ("lfm2-1.2b", "qwen3.5-0.8b", "qwen3.5-2b")
NEWER = (*RECURRENT, "gemma4-e2b", "qwen3-30b-a3b-6l")
"""Works of `tests.tools.shapes`, in Q4_K_M, and those with recurrent layers."""
SHAPES = {"Q4_0": 2, "Q4_K_M": 15, "Q8_0": 7, "F16": 1, "IQ3_S": 26}
"""Types of its files, and llama.h's numbers of them."""


@dataclass(frozen=True)
class Options:
    """The command line. `interpreters` are the Pythons of rivals that this one lacks, `prompt_bits` is our
    setting of that name.
    """

    starter: Path
    gemma: Path
    keep: Path
    interpreters: Mapping[str, str]
    repeat: int = 5
    threads: int = 2
    prompt_bits: str = "16"

    def model(self, work: str) -> Path:
        """The file of a work: "starter", "gemma", or one of `SHAPES` or `NEWER`, written if missing."""
        if work in NEWER:
            return write_shape(self.keep, work)
        if work in SHAPES:
            return shape_file(self.keep, work)
        return {"starter": self.starter, "gemma": self.gemma}[work]


@dataclass(frozen=True)
class Line:
    """One figure, a rival's next to it, and the judged `value`, which must be at least (or at most) `bar`, if
    any, and what the line is `about`. `unit` belongs to `ours` and `theirs`, `of` to value and bar: "x" for a
    ratio, "%" for a share of 1, otherwise a unit.
    """

    row: str
    work: str
    ours: float
    unit: str
    value: float
    of: str = "x"
    bar: float | None = None
    at_most: bool = False
    rival: str = ""
    theirs: float | None = None
    share: float | None = None
    about: str = ""

    @property
    def met(self) -> bool | None:
        """Judged as printed, with two decimals of a ratio."""
        if self.bar is None:
            return None
        value = round(self.value, 4 if self.of == "nats" else 2)
        return value <= self.bar if self.at_most else value >= self.bar

    def text(self) -> str:
        """The line to print."""
        parts = [f"{self.row:10} {self.work:29} {_figure(self.ours)} {self.unit:6}"]
        parts.append(f"{self.rival:22} {_figure(self.theirs)}" if self.theirs is not None else " " * 31)
        parts.append(_judged(self.value, self.of))
        if self.share is not None:
            parts.append(f"{100 * self.share:4.0f} % of read bandwidth")
        if self.bar is not None:
            sign = "<=" if self.at_most else ">="
            parts.append(
                f"bar {sign} {_judged(self.bar, self.of).strip()}: {'met' if self.met else 'MISSED'}"
            )
        return "  ".join([*parts, self.about]).rstrip()

    def data(self) -> dict[str, object]:
        """The line for JSON."""
        return dataclasses.asdict(self) | {"met": self.met}


def _figure(value: float) -> str:
    return f"{value:8.1f}" if abs(value) >= 10 else f"{value:8.3f}"


def _judged(value: float, of: str) -> str:
    if of == "%":
        return f"{100 * value:7.0f} %"
    decimals = {"nats": 4, "us": 0, "MB": 0}.get(of, 0 if of.startswith("above") else 2)
    return f"{value:7.{decimals}f} {of}"


def shape_file(folder: Path, kind: str) -> Path:
    """The 1.1B shape as `kind` of `SHAPES`, written once and quantised by llama.cpp."""
    path = folder / f"llama-1.1b-{kind}.gguf"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        print(f"    writing {path.name}", flush=True)
        unfinished = path.with_suffix(".part")
        if kind == "F16":
            write_large_gguf(unfinished, SHAPE, "F16", whole_vocabulary=True)
        else:
            from tests.tools.oracle_quants import quantise

            if not quantise(shape_file(folder, "F16"), unfinished, SHAPES[kind]):
                raise RuntimeError(f"llama.cpp could not write {path.name}")
        unfinished.rename(path)
    return path


@contextmanager
def opened(
    path: Path, threads: int, context: int, dtype: str = "auto", prompt_bits: str = "16"
) -> Iterator[tuple[Ours, PagedCache]]:
    """Our engine with a file as a runner, and its cache."""
    settings = LoadSettings(backend="cpu", threads=threads, prompt_bits=prompt_bits)
    chat = load(str(path), settings, CacheSettings(context_length=context, dtype=dtype), Console(True))
    try:
        runner = Ours(chat.generator.cache)
        yield runner, chat.generator.cache
        runner.close()
    finally:
        chat.close()


@contextmanager
def generating(path: Path, threads: int, context: int) -> Iterator[DynamicGenerator]:
    """Our engine with a file as a dynamic generator."""
    cache = CacheSettings(context_length=context)
    chat = load(str(path), LoadSettings(backend="cpu", threads=threads), cache, Console(True))
    try:
        yield chat.generator
    finally:
        chat.close()


def random_ids(cache: PagedCache, count: int) -> list[int]:
    """Fixed random tokens, without the first ones, which are special."""
    return [
        int(token) for token in np.random.default_rng(0).integers(100, cache.model.config.vocab_size, count)
    ]


def warm(runners: Sequence[Runner], ids: Sequence[int]) -> None:
    """Run everything once: first use of memory, threads and code is not measured."""
    for runner in runners:
        runner.run(ids[:32], 0, one_by_one=False)
        runner.run(ids[32:34], 32, one_by_one=True)


def in_turn(work: Mapping[str, Callable[[], float]], repeat: int) -> dict[str, list[float]]:
    """Call every function once in each repetition; returns lists of results. A rival that fails is reported
    and left out from then on.
    """
    found: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeat):
        for name in list(found):
            try:
                found[name].append(work[name]())
            except RivalFailed as error:
                print(f"    left out: {error}", flush=True)
                del found[name]
    return found


def timed(
    runners: Sequence[Runner], ids: Sequence[int], start: int, *, one_by_one: bool
) -> dict[str, Callable[[], float]]:
    """For `in_turn`: functions that give each runner's seconds for these tokens."""
    return {runner.name: partial(runner.run, ids, start, one_by_one=one_by_one) for runner in runners}


def with_bandwidth(work: Mapping[str, Callable[[], float]], threads: int) -> dict[str, Callable[[], float]]:
    """The same, with the read bandwidth measured in each repetition."""
    return {BANDWIDTH: partial(read_bandwidth, threads), **work}


def ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """The median of the ratios of the repetitions, which cancels drift of the machine."""
    return float(median(a / b for a, b in zip(above, below, strict=True)))


def share(seconds: Sequence[float], tokens: int, cache: PagedCache, bandwidth: Sequence[float]) -> float:
    """The median share of the bandwidth that reading the weights for each token uses."""
    read = tokens * cache.model.weight_bytes_per_token
    return float(median(read / s / rate for s, rate in zip(seconds, bandwidth, strict=True)))
