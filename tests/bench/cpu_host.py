"""Rows of `tests.bench.bench_cpu`: host, start, speculation."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from statistics import median
from typing import Any
from unittest import mock

from engine.backends.cpu.team import Team
from engine.core import Text
from engine.settings import OutputSettings, SamplerSettings, StopSettings
from tests.bench.bench_speculation import measure_target
from tests.bench.cpu_kit import Line, Options, opened, random_ids

MB = 1e6
PROCESS_SECONDS = 120.0


def host(options: Options, work: str) -> Iterator[Line]:
    """Between the end of one recorded call and the begin of the next, in a real generation: deciding, detokenising, events, arguments.

    "greedy" takes the likeliest token, "sampled" follows the program's own settings.
    """
    name, _, way = work.partition(" ")
    sampler = SamplerSettings(seed=1, temperature=0.0) if way == "greedy" else SamplerSettings(seed=1)
    from engine.chat import finished, open_chat
    from engine.settings import CacheSettings, LoadSettings

    chat = finished(open_chat(options.model(name), LoadSettings(backend="cpu", threads=options.threads), CacheSettings(context_length=1024)))
    with closing(chat):
        spans: list[tuple[float, float]] = []
        replay = Team.replay

        def watched(self: Team, *arguments: Any) -> None:
            begun = time.perf_counter()
            replay(self, *arguments)
            spans.append((begun, time.perf_counter()))

        gaps: list[float] = []
        passes: list[float] = []
        ids = random_ids(chat.generator.cache, 32)
        with mock.patch.object(Team, "replay", watched):
            for turn in range(options.repeat + 1):
                spans.clear()
                tokens = 0
                settings = StopSettings(max_tokens=128, stop_token_ids=()) if hasattr(StopSettings, "stop_token_ids") else StopSettings(max_tokens=128)
                for event in chat.generator.stream([*ids, 200 + turn], sampler, settings, output=OutputSettings()):
                    tokens += len(event.tokens) if isinstance(event, Text) else 0
                if turn:  # the first one warms up
                    gaps += [later[0] - earlier[1] for earlier, later in zip(spans[1:], spans[2:], strict=False)]
                    passes += [end - begun for begun, end in spans[1:]]
        if not gaps:
            raise RuntimeError("the model ended every reply at once")
        yield Line(
            "host", f"{work}, {len(gaps)} steps", 1e6 * median(gaps), "us", 1e6 * median(gaps), "us", 60.0, at_most=True,
            rival="recorded call, us", theirs=1e6 * median(passes),
        )  # fmt: skip


def start(options: Options, work: str) -> Iterator[Line]:
    """A fresh process: seconds until its first text, and the memory that it has then beside weights and cache. The first run warms up."""
    found: list[dict[str, float]] = []
    for turn in range(min(options.repeat, 5) + 1):
        begun = time.perf_counter()
        command = [sys.executable, "-m", "tests.bench.first_token", str(options.model(work)), str(options.threads)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                if process.stdout.readline().strip() != "first":
                    raise RuntimeError("the process ended before its first token")
                seconds = time.perf_counter() - begun
                said = json.loads(process.stdout.read())
                process.wait(PROCESS_SECONDS)
            finally:
                process.kill()
        if turn:
            found.append({**said, "whole": seconds})
    whole = median(each["whole"] for each in found)
    inside = median(each["seconds"] for each in found)
    yield Line("start", f"{work}, first token", whole, "s", whole, "s", 1.5, at_most=True, rival="s in the process", theirs=inside)
    resident = median(each["resident"] for each in found) / MB
    beside = resident - (found[0]["weights"] + found[0]["cache"]) / MB
    yield Line("start", f"{work}, memory beside", resident, "MB", beside, "MB", 350.0, at_most=True, rival="MB weights", theirs=found[0]["weights"] / MB)


def speculation(options: Options, work: str) -> Iterator[Line]:
    """`tests.bench.bench_speculation`: "itself" with n-gram drafting; "twin": F16 matrices, for which the starter drafts as well."""
    twin = "F16" if work == "twin" else ""
    for kind, temperatures in measure_target(options.starter, twin, max(1, options.repeat // 3), 100).items():
        for temperature, methods in temperatures.items():
            plain = methods["none"]["tokens_per_second"]
            for method, found in methods.items():
                if method != "none":
                    bar = 1.3 if method == "model" and kind == "code editing" else 1.0
                    yield Line(
                        "speculation", f"{work} {kind} T {temperature}", found["tokens_per_second"], "tok/s", found["ratio"], bar=bar,
                        rival=f"plain, for {method}", theirs=plain,
                    )  # fmt: skip
