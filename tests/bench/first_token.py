"""A new process up to its first token: it loads a model as the programs do, begins a reply, and reports the
memory used.

    python -m tests.bench.first_token MODEL THREADS CONTEXT

Prints a line "first" with the first text, then one JSON object: `resident` bytes at that time and the `peak`
before, the sizes of `weights` and `cache` by the headers, and the seconds until the model was `loaded`.
CONTEXT 0 is the default. Started by `tests.bench.bench_cpu`.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from engine.chat import finished, open_chat
from engine.core import ChatRequest, Message, Text
from engine.settings import CacheSettings, LoadSettings


def memory(field: str) -> int:
    """Bytes from /proc/self/status."""
    line = next(
        each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(field + ":")
    )
    return 1024 * int(line.split()[1])


def main() -> None:
    """Load the model, begin a reply, print the report."""
    begun = time.perf_counter()
    path, threads = sys.argv[1], int(sys.argv[2])
    cache = CacheSettings(context_length=int(sys.argv[3])) if int(sys.argv[3]) else CacheSettings()
    chat = finished(open_chat(path, LoadSettings(backend="cpu", threads=threads), cache))
    loaded = time.perf_counter() - begun
    stream = chat.stream(ChatRequest((Message("user", "What is the capital of France?"),)), threading.Event())
    for event in stream:
        if isinstance(event, Text):
            break
    print("first", flush=True)
    resident, peak = memory("VmRSS"), memory("VmHWM")
    from engine.models.memory.fit import fit
    from engine.vision.describe import describe

    said = fit(describe(path), cache, 1 << 60)
    print(json.dumps({
        "loaded": loaded, "resident": resident, "peak": peak, "weights": said.weights, "cache": said.cache,
        "context": said.context_length, "torch": "torch" in sys.modules,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
