"""Rows of `tests.bench.bench_cpu`: decode, shapes, depth, prefill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median

from engine.cli.bench import Runner
from tests.bench.bench_cache_types import TYPES, decode_seconds
from tests.bench.cpu_kit import (
    BANDWIDTH,
    NEWER,
    RECURRENT,
    SHAPES,
    Line,
    Options,
    in_turn,
    opened,
    random_ids,
    ratio,
    share,
    timed,
    warm,
    with_bandwidth,
)
from tests.tools.rivals import open_rivals

LLAMA = "llama.cpp"
IK = ("ik_llama.cpp", "ik_llama.cpp repacked")
DEPTH = 4096
DECODE_BARS = {"starter": 2.2, "gemma": 1.8, **dict.fromkeys(NEWER, 1.5)}
SHAPE_PREFILL_BARS = {LLAMA: 1.5, **dict.fromkeys(IK, 1.1)}
DEPTH_BARS = {"starter": 4.0, "gemma": 1.8}
PREFILL_RIVALS = (
    LLAMA, *IK, "transformers float32", "transformers bfloat16", "openvino", "openvino float32",
)  # fmt: skip


def decode(options: Options, work: str) -> Iterator[Line]:
    """One token at a time from an empty cache, compared with llama.cpp and with the read bandwidth."""
    written = work in (*SHAPES, *NEWER)
    count = 24 if written else 64
    with ExitStack() as stack:
        ours, cache = stack.enter_context(opened(options.model(work), options.threads, 1024))
        runners: list[Runner] = [
            ours,
            *open_rivals(
                stack, (LLAMA, *IK), options.model(work), options.threads, 1024, options.interpreters
            ),
        ]
        ids = random_ids(cache, 1024)
        warm(runners, ids)
        times = in_turn(
            with_bandwidth(timed(runners, ids[:count], 0, one_by_one=True), options.threads), options.repeat
        )
        ours_rate = count / median(times[ours.name])
        read = share(times[ours.name], count, cache, times[BANDWIDTH])
        row = "newer" if work in NEWER else "shapes" if work in SHAPES else "decode"
        if LLAMA in times:
            theirs = count / median(times[LLAMA])
            factor = ratio(times[LLAMA], times[ours.name])
            yield Line(
                row,
                work,
                ours_rate,
                "tok/s",
                factor,
                bar=DECODE_BARS.get(work),
                rival=LLAMA,
                theirs=theirs,
                share=read,
            )
            yield Line(
                row,
                f"{work} {LLAMA}'s own",
                theirs,
                "tok/s",
                share(times[LLAMA], count, cache, times[BANDWIDTH]),
                "%",
            )
        for name in IK:
            if name in times:
                yield Line(
                    row, work, ours_rate, "tok/s", ratio(times[name], times[ours.name]), rival=name,
                    theirs=count / median(times[name]),
                )  # fmt: skip
        if work != "gemma":
            bar = 0.7 if work == "starter" else 0.85 if work in NEWER else 0.9
            yield Line(
                row,
                f"{work} of bandwidth",
                ours_rate,
                "tok/s",
                read,
                "%",
                bar,
                rival="GB/s",
                theirs=median(times[BANDWIDTH]) / 1e9,
            )
        if written:
            yield from _shape_prefill(options, work, runners, ids)


def _shape_prefill(options: Options, work: str, runners: list[Runner], ids: list[int]) -> Iterator[Line]:
    times = in_turn(timed(runners, ids[:512], 0, one_by_one=False), min(options.repeat, 3))
    ours, row = times[runners[0].name], "newer" if work in NEWER else "shapes"
    for name, bar in SHAPE_PREFILL_BARS.items():
        if name in times:
            yield Line(
                row, f"{work} prefill 512", 512 / median(ours), "tok/s", ratio(times[name], ours), bar=bar,
                rival=name, theirs=512 / median(times[name]),
            )  # fmt: skip


def depth(options: Options, work: str) -> Iterator[Line]:
    """Decoding after 4,096 tokens, compared with llama.cpp; "MODEL caches": each of our cache types compared
    with fp16.
    """
    name, _, caches = work.partition(" ")
    path, count = options.model(name), 32
    with ExitStack() as stack:
        ours, cache = stack.enter_context(opened(path, options.threads, DEPTH + 2 * count))
        ids = random_ids(cache, DEPTH + 2 * count)
        if caches:
            ours.close()
            types = TYPES.split(",")
            seconds = decode_seconds(cache.model, types, DEPTH, ids, 8 * options.repeat)
            for dtype in types:
                bar = 1.0 if dtype.startswith(("q", "fp8")) else None
                factor, plain = seconds["fp16"] / seconds[dtype], 1 / seconds["fp16"]
                yield Line(
                    "depth",
                    f"{work} {dtype}",
                    1 / seconds[dtype],
                    "tok/s",
                    factor,
                    bar=bar,
                    rival="our fp16",
                    theirs=plain,
                )
            return
        runners: list[Runner] = [
            ours,
            *open_rivals(stack, (LLAMA,), path, options.threads, DEPTH + 2 * count, options.interpreters),
        ]
        warm(runners, ids)
        in_turn(timed(runners, ids[:DEPTH], 0, one_by_one=False), 1)
        times = in_turn(
            with_bandwidth(
                timed(runners, ids[DEPTH : DEPTH + count], DEPTH, one_by_one=True), options.threads
            ),
            options.repeat,
        )
        if LLAMA in times:
            yield Line(
                "depth", f"{work} at {DEPTH}", count / median(times[ours.name]), "tok/s",
                ratio(times[LLAMA], times[ours.name]), bar=DEPTH_BARS[name], rival=LLAMA,
                theirs=count / median(times[LLAMA]),
            )  # fmt: skip


def newer(options: Options, work: str) -> Iterator[Line]:
    """`decode`, then for a model with recurrent layers our decoding after 8,192 tokens compared with that
    from an empty cache.
    """
    yield from decode(options, work)
    if work not in RECURRENT:
        return
    count, deep = 24, 2 * DEPTH
    with opened(options.model(work), options.threads, deep + 2 * count) as (ours, cache):
        ids = random_ids(cache, deep + count)
        warm([ours], ids)
        empty, full = list[float](), list[float]()
        for _ in range(options.repeat):
            empty.append(ours.run(ids[:count], 0, one_by_one=True))
        ours.run(ids[:deep], 0, one_by_one=False)
        for _ in range(options.repeat):
            full.append(ours.run(ids[deep:], deep, one_by_one=True))
        yield Line(
            "newer", f"{work} at {deep}", count / median(full), "tok/s", median(empty) / median(full),
            "%", 0.9, rival="our empty cache", theirs=count / median(empty),
        )  # fmt: skip


def prefill(options: Options, work: str) -> Iterator[Line]:
    """512 and 2,048 tokens compared with every rival, the best of which is the bar; and our 2,048 compared
    with our 512.
    """
    path = options.model(work)
    with ExitStack() as stack:
        ours, cache = stack.enter_context(
            opened(path, options.threads, 2304, prompt_bits=options.prompt_bits)
        )
        runners: list[Runner] = [
            ours,
            *open_rivals(stack, PREFILL_RIVALS, path, options.threads, 2304, options.interpreters),
        ]
        ids = random_ids(cache, 2304)
        warm(runners, ids)
        per_token: dict[int, list[float]] = {}
        for tokens in (512, 2048):
            times = in_turn(
                timed(runners, ids[:tokens], 0, one_by_one=False),
                options.repeat if tokens == 512 else min(options.repeat, 3),
            )
            mine = times.pop(ours.name)
            per_token[tokens] = [seconds / tokens for seconds in mine]
            best = min(times, key=lambda name: median(times[name]), default="")
            for name, theirs in times.items():
                bar = 1.15 if tokens == 512 and name == best else None
                yield Line(
                    "prefill", f"{work} {tokens}" + (", the best rival" if name == best else ""),
                    tokens / median(mine), "tok/s", ratio(theirs, mine), bar=bar, rival=name,
                    theirs=tokens / median(theirs),
                )  # fmt: skip
        # not in one repetition: a long run follows the short ones
        short, long = 1 / median(per_token[512]), 1 / median(per_token[2048])
        yield Line(
            "prefill",
            f"{work} 2048 of 512",
            long,
            "tok/s",
            long / short,
            "%",
            0.75,
            rival="our 512",
            theirs=short,
        )
