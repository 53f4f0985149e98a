"""The memory that loading takes compared with the estimate from the headers: peak, resident, cache, work
space; and its speed.

    python -m tests.bench.bench_loading [MODEL ...] [--synthetic KIND,KIND] [--size MB] [--context N]

Each model is loaded in a new process with cached kernels: first the weights alone, for peak and time, then
the whole chat. Synthetic models have the shape of a Llama (or of GPT-OSS or GPT-2) and repeating weights, and
are written to a temporary folder. Memory is relative to the process before loading. Afterwards the context is
filled, so that everything estimated is used. The last line is JSON.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from engine.backends.cpu.backend import CpuBackend
from engine.chat import finished, open_chat
from engine.drain import drain
from engine.models.base import rope_tables
from engine.models.load import read_config, read_model, survey
from engine.models.memory.fit import fit
from engine.models.open_text import open_text
from engine.sampling import kernels as sampling
from engine.settings import CacheSettings, LoadSettings
from engine.vision.describe import describe
from engine.weights.checkpoint import open_checkpoint
from tests.bench.first_token import memory
from tests.synthetic import KINDS, write_synthetic
from tests.tiny import write_gguf

MB = 10**6


def settle() -> int:
    """The resident bytes once all freed memory is returned to the system; resets the peak."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def compile_kernels(path: Path) -> None:
    """Compile all kernels that the passes of this model need, from its headers."""
    checkpoint, backend = open_checkpoint(path), CpuBackend()
    parts, config = survey(checkpoint, backend).parts, read_config(checkpoint)
    assert parts is not None
    tables = rope_tables(config, 256, 256)
    for _ in backend.prepare(lambda ops: parts(ops, tables), "auto"):
        pass
    sampling.prepare(config.vocab_size)


def import_everything() -> None:
    """Import what the text of any model imports."""
    with tempfile.TemporaryDirectory() as folder:
        open_text(open_checkpoint(write_gguf(Path(folder) / "tiny.gguf")))


def measure(path: Path, context: int) -> dict[str, Any]:
    """Measure one model in this process."""
    compile_kernels(path)
    import_everything()
    info = describe(path)
    settings = CacheSettings(context_length=min(context, info.context_length))
    said = fit(info, settings, 1 << 60)
    before = settle()
    loading = read_model(open_checkpoint(path), CpuBackend())
    started = time.perf_counter()
    model = drain(loading)
    seconds = time.perf_counter() - started
    weights_peak = memory("VmHWM") - before
    model.close()
    del model, loading
    before = settle()
    chat = finished(open_chat(path, LoadSettings(), settings))
    peak = memory("VmHWM") - before  # with tokenizer, template and the recorded pass, as `loaded`
    loaded = settle() - before
    cache = chat.generator.cache
    with cache.open([1]) as lease:
        while lease.length < chat.context_length:
            rows = min(cache.rows, chat.context_length - lease.length)
            cache.run(lease, [i % 99 + 1 for i in range(rows)])
    filled = settle() - before
    chat.close()
    left = settle() - before
    del chat, cache, lease
    return {
        "model": path.name, "file": info.weights_bytes, "said_weights": said.weights,
        "said_cache": said.cache, "said_work": said.work, "said": said.total, "peak": peak, "loaded": loaded,
        "filled": filled, "left": left, "gone": settle() - before,
        "weights_ratio": weights_peak / said.weights, "peak_ratio": peak / loaded,
        "said_ratio": said.total / filled, "seconds": seconds, "rate": info.weights_bytes / seconds,
    }  # fmt: skip


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--synthetic", default="", help=f"of {','.join(KINDS)}")
    parser.add_argument("--size", type=int, default=600, help="megabytes of each synthetic model")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.models[0], options.context)))
        return
    results = [run(path, options.context) for path in options.models]
    for kind in filter(None, options.synthetic.split(",")):
        folder = Path(tempfile.mkdtemp(prefix="bench-loading-"))
        try:
            results.append(run(write_synthetic(folder, kind, options.size), options.context))
        finally:
            shutil.rmtree(folder)
    print(json.dumps(results))


def run(path: Path, context: int) -> dict[str, Any]:
    """`measure` in a new process; prints a line."""
    command = [
        sys.executable,
        "-m",
        "tests.bench.bench_loading",
        str(path),
        "--one",
        "--context",
        str(context),
    ]
    found: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
    )
    keys = ("said_weights", "said_cache", "said_work", "peak", "loaded", "filled", "left", "gone")
    sizes = {key: f"{found[key] / MB:7.0f}" for key in keys}
    print(
        f"{found['model'][:28]:28} " + " ".join(f"{key} {value}" for key, value in sizes.items())
        + f" MB; peak / weights {found['weights_ratio']:.3f}, with text / loaded {found['peak_ratio']:.3f},"
        f" said / filled {found['said_ratio']:.3f}, {found['seconds']:.1f} s, {found['rate'] / MB:.0f} MB/s",
        flush=True,
    )  # fmt: skip
    return found


if __name__ == "__main__":
    main()
