"""A fresh process to its first token: loads a model as the programs do, begins a reply, and tells what memory that took.

    python -m tests.bench.first_token MODEL [THREADS]

Prints one line "first" when the first text is there, then one JSON object: bytes `resident` at that time, `peak`, and what the
headers said of `weights` and `cache`; and the `seconds` from the first line of this file. Started by `tests.bench.bench_cpu`.
"""

from __future__ import annotations

import time

STARTED = time.perf_counter()

import json
import sys
import threading
from pathlib import Path

from engine.chat import finished, open_chat
from engine.core import ChatRequest, Message, Text
from engine.settings import CacheSettings, LoadSettings


def memory(field: str) -> int:
    """Bytes by /proc/self/status."""
    line = next(each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(field + ":"))
    return 1024 * int(line.split()[1])


def main() -> None:
    """See the module docstring."""
    path, threads = sys.argv[1], int(sys.argv[2])
    chat = finished(open_chat(path, LoadSettings(backend="cpu", threads=threads), CacheSettings()))
    loaded = time.perf_counter() - STARTED
    stream = chat.stream(ChatRequest((Message("user", "What is the capital of France?"),)), threading.Event())
    for event in stream:
        if isinstance(event, Text):
            break
    print("first", flush=True)
    seconds, resident, peak = time.perf_counter() - STARTED, memory("VmRSS"), memory("VmHWM")
    from engine.models import describe
    from engine.models.fit import fit

    said = fit(describe(path), CacheSettings(), 1 << 60)
    print(json.dumps({
        "loaded": loaded, "seconds": seconds, "resident": resident, "peak": peak, "weights": said.weights, "cache": said.cache,
        "context": said.context_length, "torch": "torch" in sys.modules,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
