"""Rows of `tests.bench.bench_cpu`: host, busy, start, speculation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from statistics import median
from typing import Any
from unittest import mock

from engine.backends.cpu.runtime.thread_pool import ThreadPool
from engine.chat import finished, open_chat
from engine.core import Message, Text
from engine.generator.request import GenerationRequest
from engine.platform.folders import CACHE_VARIABLE
from engine.settings import CacheSettings, LoadSettings, OutputSettings, SamplerSettings, StopSettings
from engine.text.template.encoding import encode_chat
from tests.bench.bench_speculation import CHAT, measure_target
from tests.bench.cpu_kit import Line, Options

MB = 1e6


class Watch:
    """Replaces `ThreadPool.replay`, and records when each call began and ended: wall time, and CPU time of
    this thread.
    """

    def __init__(self) -> None:
        self._replay = ThreadPool.replay
        self.calls: list[tuple[float, float, float, float]] = []

    def method(self) -> Callable[..., None]:
        """The replacement function."""

        def replay(team: ThreadPool, *arguments: Any) -> None:
            worked, begun = time.thread_time(), time.perf_counter()
            self._replay(team, *arguments)
            self.calls.append((begun, time.perf_counter(), worked, time.thread_time()))

        return replay

    def between(self) -> tuple[list[float], list[float]]:
        """Wall and CPU seconds between the calls of a reply; the first call is the prefill."""
        pairs = list(zip(self.calls[1:], self.calls[2:], strict=False))
        return [later[0] - earlier[1] for earlier, later in pairs], [
            later[2] - earlier[3] for earlier, later in pairs
        ]


def host(options: Options, work: str) -> Iterator[Line]:
    """What the host does for a token of real replies, between two calls that run steps: detokenising, events,
    arguments; the token is sampled as the last part of a step. "greedy" takes the likeliest token, "sampled"
    uses the default settings. Both wall time, which is judged, and CPU time are shown, since on a busy
    machine the thread waits, too; they are means, since several tokens are handled at a time.
    """
    name, _, way = work.partition(" ")
    sampler = SamplerSettings(seed=1, temperature=0.0) if way == "greedy" else SamplerSettings(seed=1)
    settings = LoadSettings(backend="cpu", threads=options.threads)
    with closing(
        finished(open_chat(options.model(name), settings, CacheSettings(context_length=1024)))
    ) as chat:
        gaps, worked, passes, tokens = list[float](), list[float](), list[float](), 0
        for turn in range(options.repeat + 1):
            watch = Watch()
            _, ids = encode_chat(chat.tokenizer, chat.template, [Message("user", CHAT[turn % len(CHAT)])])
            with mock.patch.object(ThreadPool, "replay", watch.method()):
                stops, output = StopSettings(max_tokens=128), OutputSettings()
                request = GenerationRequest(ids, sampler, stops, output=output)
                found = [event for event in chat.generator.stream(request) if isinstance(event, Text)]
            if turn:  # the first one warms up
                tokens += sum(len(event.tokens) for event in found) - 1  # the first is of the prefill
                clock, cpu = watch.between()
                gaps, worked = gaps + clock, worked + cpu
                passes += [call[1] - call[0] for call in watch.calls[1:]]
    if not gaps:
        raise RuntimeError("the model ended every reply at once")
    cost = 1e6 * sum(gaps) / tokens
    steps = f"{work}, {tokens} steps"
    yield Line(
        "host",
        steps,
        cost,
        "us",
        cost,
        "us",
        60.0,
        at_most=True,
        rival="step, us",
        theirs=1e6 * sum(passes) / tokens,
    )
    cost = 1e6 * sum(worked) / tokens
    yield Line("host", f"{steps}, CPU", cost, "us", cost, "us")


@contextmanager
def _computing() -> Iterator[None]:
    """A thread of this process computes in Python, as a window does that is busy."""
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def busy(options: Options, work: str) -> Iterator[Line]:
    """Replies while another thread of the process keeps Python busy, as a share of the speed of replies
    alone, in turns.
    """
    settings = LoadSettings(backend="cpu", threads=options.threads)
    with closing(
        finished(open_chat(options.model(work), settings, CacheSettings(context_length=1024)))
    ) as chat:
        _, ids = encode_chat(chat.tokenizer, chat.template, [Message("user", CHAT[0])])
        request = GenerationRequest(ids, SamplerSettings(seed=1), StopSettings(max_tokens=65))

        def speed() -> float:
            times, tokens = list[float](), 0
            for event in chat.generator.stream(request):
                if isinstance(event, Text):
                    times.append(time.perf_counter())
                    tokens += len(event.tokens)
            return (tokens - 1) / (times[-1] - times[0])

        alone, beside = list[float](), list[float]()
        for _ in range(options.repeat + 1):
            alone.append(speed())
            with _computing():
                beside.append(speed())
    share = median(b / a for a, b in zip(alone[1:], beside[1:], strict=True))
    yield Line(
        "busy", work, median(beside[1:]), "tok/s", share, rival="alone, tok/s", theirs=median(alone[1:])
    )


def start(options: Options, work: str) -> Iterator[Line]:
    """A new process: seconds to its first text, and its memory then compared with weights and cache. The
    first run warms up. Memory is also shown for a context of 512 tokens, whose cache is nearly full then.
    Then the seconds that are added where nothing is compiled yet, the longest of three.
    """
    found = [_first_token(options, work, 0) for _ in range(min(options.repeat, 5) + 1)][1:]
    whole, loaded = (median(each[name] for each in found) for name in ("whole", "loaded"))
    yield Line(
        "start",
        f"{work}, first token",
        whole,
        "s",
        whole,
        "s",
        1.5,
        at_most=True,
        rival="s of it loading",
        theirs=loaded,
    )
    for name, each in (("own context", found[0]), ("context 512", _first_token(options, work, 512))):
        resident, beside = each["resident"] / MB, (each["resident"] - each["weights"] - each["cache"]) / MB
        yield Line(
            "start", f"{work}, memory, {name}", resident, "MB", beside, "MB", 350.0, at_most=True,
            rival="MB weights and cache", theirs=resident - beside,
        )  # fmt: skip
    fresh = max(_without_code(options, work) for _ in range(3))
    yield Line(
        "start", f"{work}, nothing compiled", fresh, "s", fresh - whole, "s", 6.0, at_most=True,
        rival="s with compiled code", theirs=whole,
    )  # fmt: skip


def _without_code(options: Options, work: str) -> float:
    """Seconds to the first text of a new process that finds no compiled code."""
    with tempfile.TemporaryDirectory() as folder:
        return _first_token(options, work, 0, {CACHE_VARIABLE: folder})["whole"]


def _first_token(
    options: Options, work: str, context: int, environment: Mapping[str, str] = {}
) -> dict[str, float]:
    """The report of `tests.bench.first_token`, and the `whole` seconds measured here; `environment` is added
    to that of this process.
    """
    command = [
        sys.executable,
        "-m",
        "tests.bench.first_token",
        str(options.model(work)),
        str(options.threads),
        str(context),
    ]
    begun = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as process:
        assert process.stdout is not None
        try:
            first = process.stdout.readline().strip()
            seconds = time.perf_counter() - begun
            if first != "first":
                raise RuntimeError("the process ended before its first token")
            said: dict[str, float] = json.loads(process.stdout.read())
            return {**said, "whole": seconds}
        finally:
            process.kill()


def speculation(options: Options, work: str) -> Iterator[Line]:
    """`tests.bench.bench_speculation`: "itself" with n-gram drafting; "twin": F16 matrices, for which the
    starter drafts, too.
    """
    twin = "F16" if work == "twin" else ""
    for kind, temperatures in measure_target(options.starter, twin, max(1, options.repeat // 3), 100).items():
        for temperature, methods in temperatures.items():
            plain = methods["none"]["tokens_per_second"]
            for method, found in methods.items():
                if method != "none":
                    bar = 1.3 if method == "model" and kind == "code editing" else 1.0
                    yield Line(
                        "speculation", f"{work} {kind} T {temperature}", found["tokens_per_second"], "tok/s",
                        found["ratio"], bar=bar, rival=f"plain, for {method}", theirs=plain,
                    )  # fmt: skip
