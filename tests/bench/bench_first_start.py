"""The first reply on a new machine, and the second start: what is compiled, and how long that takes.

    python -m tests.bench.bench_first_start MODEL [--threads 2]

Two processes, one after the other, load the model and reply until the first token: the first with an empty
cache of compiled code, the second with what the first has kept. For each: seconds until the model was loaded
and until the first token, seconds of processor time of the process and of its compile workers, what was
compiled (the file of each function says so) and the slowest functions. The load of the machine is printed, as
wall time means little on a busy one. The engine's bytecode is made first, as an installation does: a start
that has to make it takes a third longer. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["main"]

ENGINE = Path(__file__).resolve().parents[2] / "engine"
_SHOWN = 12


def reply(path: str, threads: int) -> dict[str, Any]:
    """Load a model, wait for the first token, and report; for a new process."""
    begun = time.perf_counter()
    from engine.platform import compiled

    spent: dict[str, float] = {}
    for kind in ("part", "function", "callback"):
        setattr(compiled, kind, _timed(getattr(compiled, kind), spent))
    from engine.chat import finished, open_chat
    from engine.core import ChatRequest, Message, Text
    from engine.settings import CacheSettings, LoadSettings

    chat = finished(open_chat(path, LoadSettings(backend="cpu", threads=threads), CacheSettings()))
    loaded = time.perf_counter() - begun
    request = ChatRequest((Message("user", "What is the capital of France?"),))
    for event in chat.stream(request, threading.Event()):
        if isinstance(event, Text):
            break
    first = time.perf_counter() - begun
    chat.close()
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "loaded": loaded, "first_token": first, "cpu": time.process_time(),
        "workers_cpu": workers.ru_utime + workers.ru_stime, "compiled_here": spent,
    }  # fmt: skip


def _timed(compile_one: Callable[..., Any], spent: dict[str, float]) -> Callable[..., Any]:
    """A function of `compiled` that adds the processor time of each call to `spent`."""

    def timed(source: Any, *rest: Any, **options: Any) -> Any:
        begun = time.thread_time()
        made = compile_one(source, *rest, **options)
        name = f"{source.__module__.rpartition('.')[2]}.{source.__name__}"
        spent[name] = spent.get(name, 0.0) + time.thread_time() - begun
        return made

    return timed


def start(path: Path, threads: int, cache: Path) -> dict[str, Any]:
    """The report of one process; `compiled` counts the functions whose code it or its workers have kept."""
    before = set(cache.rglob("*.nbc"))
    arguments = [str(path), "--threads", str(threads), "--child"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.bench_first_start", *arguments],
        env={**os.environ, "INGLENOOK_CACHE": str(cache)}, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**report, "compiled": len(set(cache.rglob("*.nbc")) - before)}


def main() -> None:
    """Run both starts and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(reply(str(options.model), options.threads)))
        return
    reports = {}
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(ENGINE)], check=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("empty cache", "cached"):
            report = reports[name] = start(options.model, options.threads, Path(folder))
            print(f"-- {name}; load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
            print(f"loaded after {report['loaded']:.2f} s, first token after {report['first_token']:.2f} s")
            print(f"processor time {report['cpu']:.2f} s, of workers {report['workers_cpu']:.2f} s")
            here = sorted(report.pop("compiled_here").items(), key=lambda item: -item[1])
            print(f"{report['compiled']} functions kept")
            print(f"{sum(s for _, s in here):.2f} s of it for {len(here)} functions that are made here:")
            for function, seconds in here[:_SHOWN]:
                print(f"{seconds:7.2f} s  {function}")
    print(json.dumps(reports))


if __name__ == "__main__":
    main()
