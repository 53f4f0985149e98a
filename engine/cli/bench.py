"""Command `bench`: prefill and decode speed next to the read bandwidth and, on request, other engines.

The tokens are fixed random ids and nothing is sampled, as in llama.cpp's own bench, so every engine does the
same work. A machine's speed drifts, so only figures of one run are comparable: each repetition measures every
engine once, and the medians are reported.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Protocol

import numpy as np

from engine.cli.command import Answer, Command, Console
from engine.cli.flags import add_device, add_settings, model_path, read_settings
from engine.cli.opening import load
from engine.cli.peers import PEERS, LlamaCpp
from engine.cli.profile import check_profile, show_profile, step_profiles
from engine.errors import BenchmarkError
from engine.lazy_dataclass import dataclass
from engine.platform.terminal import padded, width_of
from engine.settings import CacheSettings, LoadSettings
from engine.units import number_text
from engine.words import N_, _, ngettext

if TYPE_CHECKING:
    from engine.backends.base import Backend
    from engine.models.paged import PagedCache


class Runner(Protocol):
    """An engine under test."""

    name: str

    def run(self, ids: Sequence[int], start: int, *, one_by_one: bool) -> float:
        """Run `ids` after the first `start` tokens, which were run before; returns seconds."""
        ...


class Ours:
    """This engine, on one lease that is truncated before each run."""

    name = "inglenook"

    def __init__(self, cache: PagedCache) -> None:
        self._cache = cache
        self._lease = cache.table.open(())

    def run(self, ids: Sequence[int], start: int, *, one_by_one: bool) -> float:
        self._cache.rewind(self._lease, start)
        rows = 1 if one_by_one else self._cache.rows
        begun = time.perf_counter()
        for at in range(0, len(ids), rows):
            self._cache.run(self._lease, ids[at : at + rows])
        return time.perf_counter() - begun

    def close(self) -> None:
        """Release the pages."""
        self._lease.close()


@dataclass
class Times:
    """Seconds of each repetition of one engine."""

    prefill: list[float]
    decode: list[float]


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=model_path, help=_("a GGUF file or a model folder"))
    parser.add_argument(
        "--prompt-tokens",
        metavar="N",
        type=int,
        default=512,
        help=_("tokens to prefill; default: %(default)s"),
    )
    parser.add_argument(
        "--new-tokens", metavar="N", type=int, default=128, help=_("tokens to decode; default: %(default)s")
    )
    parser.add_argument(
        "--depth",
        metavar="D",
        type=int,
        default=0,
        help=_("tokens in the cache before the decode starts; default: %(default)s"),
    )
    parser.add_argument(
        "--repeat",
        metavar="R",
        type=int,
        default=3,
        help=_("repetitions, whose median is reported; default: %(default)s"),
    )
    add_device(parser)
    parser.add_argument(
        "--vs",
        metavar="PEER",
        action="append",
        default=[],
        choices=PEERS,
        help=_("another engine on the same file"),
    )
    parser.add_argument("--profile", action="store_true", help=_("also show time and bytes by operation"))
    add_settings(parser, LoadSettings, without=("backend", "gpus"))
    add_settings(parser, CacheSettings, without=("context_length",))


def _answer(options: argparse.Namespace, console: Console) -> Answer:
    from engine.backends.cpu.backend import default_threads
    from engine.vision.describe import describe

    _check(options)
    path = Path(describe(options.model).path)
    threads = options.threads or default_threads()
    settings = replace(read_settings(LoadSettings, options), threads=threads)
    context = max(options.prompt_tokens, options.depth + options.new_tokens)
    with ExitStack() as stack:
        peers = [_opened(stack, LlamaCpp(path, threads, context)) for _peer in dict.fromkeys(options.vs)]
        chat = load(
            options.model,
            settings,
            replace(read_settings(CacheSettings, options), context_length=context),
            console,
        )
        stack.callback(chat.close)
        cache = chat.generator.cache
        if options.profile:
            check_profile(cache)
        runners: list[Runner] = [Ours(cache), *peers]
        ids = [
            int(token)
            for token in np.random.default_rng(0).integers(0, cache.model.config.vocab_size, context)
        ]
        bandwidths: list[float] = []
        times = {runner.name: Times([], []) for runner in runners}
        for runner in runners:
            # warm up memory and threads
            runner.run(ids[: min(32, context)], 0, one_by_one=False)
        for repetition in range(options.repeat):
            console.progress(_("Measuring, {number} of {total}", number=repetition + 1, total=options.repeat))
            bandwidths.append(_bandwidth(cache.model.backend, threads))
            _measure(runners, times, ids, options)
        console.clear()
        rates = {name: _rates(found, options) for name, found in times.items()}
        report = _report(cache, threads, median(bandwidths), rates, peers)
        if options.profile:
            report["profile"] = step_profiles(
                cache, ids, options.prompt_tokens, options.depth, median(bandwidths)
            )
        return report


def _bandwidth(backend: Backend, threads: int) -> float:
    """Bytes/s: the threads' read bandwidth from main memory, or reads and writes of a copy within the GPU."""
    if backend.name == "cuda":
        from engine.backends.cuda.backend import CudaBackend
        from engine.backends.cuda.runtime.rates import copy_bandwidth

        assert isinstance(backend, CudaBackend)
        return copy_bandwidth(backend.devices[0])
    from engine.backends.cpu.runtime.bandwidth import read_bandwidth

    return read_bandwidth(threads)


def _check(options: argparse.Namespace) -> None:
    for name, low in (("prompt_tokens", 1), ("new_tokens", 1), ("depth", 0), ("repeat", 1)):
        if getattr(options, name) < low:
            raise BenchmarkError(
                _(
                    "{flag} is {value}, but it must be at least {low}.",
                    flag=f"--{name.replace('_', '-')}",
                    value=getattr(options, name),
                    low=low,
                )
            )


def _opened(stack: ExitStack, peer: LlamaCpp) -> LlamaCpp:
    stack.callback(peer.close)
    return peer


def _measure(
    runners: Sequence[Runner], times: dict[str, Times], ids: Sequence[int], options: argparse.Namespace
) -> None:
    """One repetition: every engine's prefill, then every engine's decode."""
    for runner in runners:
        times[runner.name].prefill.append(runner.run(ids[: options.prompt_tokens], 0, one_by_one=False))
    depth = options.depth
    for runner in runners:
        if depth:
            runner.run(ids[:depth], 0, one_by_one=False)
        times[runner.name].decode.append(
            runner.run(ids[depth : depth + options.new_tokens], depth, one_by_one=True)
        )


def _rates(times: Times, options: argparse.Namespace) -> Answer:
    return {
        "prefill_tokens_per_second": options.prompt_tokens / median(times.prefill),
        "decode_tokens_per_second": options.new_tokens / median(times.decode),
    }


def _report(
    cache: PagedCache, threads: int, bandwidth: float, rates: dict[str, Answer], peers: Sequence[LlamaCpp]
) -> Answer:
    ours, weight_bytes = rates[Ours.name], cache.model.weight_bytes_per_token
    return {
        "device": cache.model.backend.name,
        "where": cache.model.backend.where,
        "threads": threads,
        **ours,
        "weight_bytes_per_token": weight_bytes,
        "read_bandwidth_bytes_per_second": bandwidth,
        "bandwidth_fraction": ours["decode_tokens_per_second"] * weight_bytes / bandwidth,
        "peers": [
            {"name": peer.name, "version": peer.version, **_beside(ours, rates[peer.name])} for peer in peers
        ],
    }


def _beside(ours: Answer, theirs: Answer) -> Answer:
    """A peer's rates, and ours as multiples of them."""
    return {
        **theirs,
        "prefill_ratio": ours["prefill_tokens_per_second"] / theirs["prefill_tokens_per_second"],
        "decode_ratio": ours["decode_tokens_per_second"] / theirs["decode_tokens_per_second"],
    }


def _show(answer: Answer) -> str:
    where = answer["where"] or ngettext("{n} thread", "{n} threads", answer["threads"])
    labels = (_("prefill"), _("decode"))
    width = max(map(width_of, labels)) + 1
    prefill, decode = (padded(label, width) for label in labels)
    lines = [
        f"{answer['device']}, {where}",
        f"{prefill} {_speed(answer['prefill_tokens_per_second'])}",
        f"{decode} {_speed(answer['decode_tokens_per_second'])}, {_bandwidth_text(answer)}",
        *map(_peer_text, answer["peers"]),
    ]
    return "\n".join([*lines, *show_profile(answer.get("profile", {}))])


def _speed(rate: float) -> str:
    return _("{number} tokens/s", number=padded(number_text(rate, ".1f"), 10, right=True))


def _bandwidth_text(answer: Answer) -> str:
    values = {
        "percent": 100 * answer["bandwidth_fraction"],
        "rate": answer["read_bandwidth_bytes_per_second"] / 1e9,
        "size": answer["weight_bytes_per_token"] / 1e6,
    }
    if answer["where"]:
        return _("{percent:.0f} % of the copy bandwidth of {rate:.1f} GB/s ({size:.1f} MB a token)", **values)
    return _("{percent:.0f} % of the read bandwidth of {rate:.1f} GB/s ({size:.1f} MB a token)", **values)


def _peer_text(peer: Answer) -> str:
    return _(
        "{name} {version}: prefill {prefill:.1f} tokens/s (here {prefill_ratio:.2f} times that), decode "
        "{decode:.1f} tokens/s (here {decode_ratio:.2f} times that)",
        name=peer["name"],
        version=peer["version"],
        prefill=peer["prefill_tokens_per_second"],
        prefill_ratio=peer["prefill_ratio"],
        decode=peer["decode_tokens_per_second"],
        decode_ratio=peer["decode_ratio"],
    )


BENCH = Command("bench", N_("measure the speed"), _arguments, _answer, _show)
