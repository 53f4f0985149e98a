"""The CPU engine compared with its rivals, row by row: our figure, the rival's, the ratio, and the bar.

    python -m tests.bench.bench_cpu [ROW[/WORK] ...] --starter FILE --gemma FILE
        [--repeat N] [--json FILE] [--keep FOLDER]

By default all rows run. Each work of a row runs in its own process, which is killed after six minutes. There
everything is interleaved, once in each repetition; figures are medians, and ratios are medians of the ratios
of the repetitions. The rival is llama.cpp (the `bench` extra, fp16 cache); decode, shapes, newer and prefill
also have ik_llama.cpp in the interpreter --ik-llama, with its weights as they are and repacked, and prefill
transformers in float32 and bfloat16, and OpenVINO GenAI in the interpreter --openvino. A rival that is not
installed is left out with a note. Rivals run in their own processes, which are stopped while they are not
measured.

    decode       one token at a time; starter and gemma; share of the read bandwidth of the same run
    shapes       a random Llama of 1.1 billion weights, kept in --keep, as Q4_0, Q4_K_M, Q8_0, F16:
                 decode, its share of the bandwidth, prefill 512
    newer        random models of newer kinds in their true shapes, Q4_K_M, likewise; of those with recurrent
                 layers also decode after 8,192 tokens relative to an empty cache
    steps        each stage of a decode step of shapes and newer models, with its share of the bandwidth, and
                 of a prompt's pass, with its share of the time; "MODEL at DEPTH" after as many tokens
    depth        decode after 4,096 tokens; "MODEL caches": each cache type compared with fp16
    prefill      512 and 2,048 tokens; the best rival is the bar; our 2,048 compared with our 512
    neighbour    another program keeps one core busy: all threads, compared with one alone and llama.cpp
    verify       a pass of 2, 4, 8 tokens relative to a pass of one
    short        a prompt of 9 to 48 tokens in one pass, relative to passes of 8
    batch        1 to 16 replies at once, compared with llama.cpp's batched passes and with one reply
    together     guidance in one pass and in two; a chat's first token while 8 others are written
    thread       one thread, compared with llama.cpp's and the bandwidth of one thread
    host         microseconds of the host for each token of a real reply, between two calls that run steps
    busy         a reply while another thread of the process keeps Python busy, relative to one alone
    start        a new process up to its first token, with cached kernels and without; its memory
    right        log-probabilities and greedy choices compared with the exact F32 model (see `cpu_right`)
    speculation  n-gram drafting and a draft model compared with plain replies (see `bench_speculation`)
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from engine.errors import EngineError
from tests.bench.cpu_batch import batch, together
from tests.bench.cpu_host import busy, host, speculation, start
from tests.bench.cpu_kit import NEWER, SHAPES, Line, Options
from tests.bench.cpu_right import right
from tests.bench.cpu_speed import decode, depth, newer, prefill
from tests.bench.cpu_steps import STEPS, steps
from tests.bench.cpu_threads import neighbour, short, thread, verify

Row = Callable[[Options, str], Iterator[Line]]
MODELS = ("starter", "gemma")
ROWS: dict[str, tuple[Row, tuple[str, ...]]] = {
    "decode": (decode, MODELS),
    "shapes": (decode, tuple(SHAPES)),
    "newer": (newer, NEWER),
    "steps": (steps, STEPS),
    "depth": (depth, (*MODELS, "starter caches", "gemma caches")),
    "prefill": (prefill, MODELS),
    "neighbour": (neighbour, MODELS),
    "verify": (verify, ("starter", "Q4_0", "Q4_K_M")),
    "short": (short, ("starter", "Q4_0", "Q4_K_M")),
    "batch": (batch, ("starter", "gemma", "Q4_K_M")),
    "together": (together, ("starter", "Q4_K_M")),
    "thread": (thread, ("starter", "Q4_0", "Q4_K_M")),
    "host": (host, ("starter greedy", "starter sampled")),
    "busy": (busy, MODELS),
    "start": (start, ("starter",)),
    "right": (right, MODELS),
    "speculation": (speculation, ("itself", "twin")),
}
LIMIT_SECONDS = 360.0


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "rows", nargs="*", default=list(ROWS), help="rows, or one work of a row as in shapes/Q4_0"
    )
    parser.add_argument(
        "--starter", type=Path, default=os.environ.get("INGLENOOK_STARTER"), help="SmolLM2 Q4_1, a GGUF file"
    )
    parser.add_argument("--gemma", type=Path, help="gemma-3-270m Q4_K_M, a GGUF file")
    parser.add_argument(
        "--keep",
        type=Path,
        default=Path(tempfile.gettempdir()) / "inglenook-bench",
        help="where written models are kept",
    )
    parser.add_argument(
        "--openvino", default=sys.executable, help="the Python that has openvino-genai; default: this one"
    )
    parser.add_argument(
        "--ik-llama", default=sys.executable, help="the Python that has ik_llama.cpp; default: this one"
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--prompt-bits", choices=("16", "8"), default="16", help="our setting, in the rows prefill and right"
    )
    parser.add_argument("--json", type=Path, help="write all lines here")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    known = {f"{row}/{work}" for row, (_, works) in ROWS.items() for work in works} | set(ROWS)
    if unknown := [row for row in options.rows if row not in known]:
        parser.error(f"no such row: {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    if options.starter is None or options.gemma is None:
        parser.error("--starter and --gemma are needed")
    if options.repeat < 1:
        parser.error("--repeat must be at least 1")
    return options


def works(rows: list[str]) -> list[tuple[str, str]]:
    """(row, work) of everything requested."""
    pairs = []
    for asked in rows:
        row, _, work = asked.partition("/")
        pairs += [(row, each) for each in ROWS[row][1] if not work or each == work]
    return pairs


def run_here(row: str, work: str, options: Options) -> list[Line]:
    """Run one work in this process; prints its lines."""
    lines = []
    for line in ROWS[row][0](options, work):
        print(line.text(), flush=True)
        lines.append(line)
    return lines


def run_apart(row: str, work: str, arguments: list[str]) -> list[dict[str, object]]:
    """Run one work in a new process, which is killed with its children if it takes too long."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "lines.json"
        command = [
            sys.executable,
            "-m",
            "tests.bench.bench_cpu",
            f"{row}/{work}",
            *arguments,
            "--here",
            "--json",
            str(answer),
        ]
        process = subprocess.Popen(command, start_new_session=True)
        try:
            status: object = process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            status = f"no end in {LIMIT_SECONDS:.0f} s"
        finally:
            with suppress(ProcessLookupError):  # nothing is left of it
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if status != 0:
            print(f"{row}/{work} FAILED: {status}", flush=True)
            return [{"row": row, "work": work, "failed": str(status)}]
        lines: list[dict[str, object]] = json.loads(answer.read_text("utf-8"))
        return lines


def main() -> None:
    """Run the rows of the command line."""
    asked = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended, too
    if asked.here:
        options = Options(
            asked.starter,
            asked.gemma,
            asked.keep,
            {"openvino": asked.openvino, "ik_llama.cpp": asked.ik_llama},
            asked.repeat,
            asked.threads,
            asked.prompt_bits,
        )
        ((row, work),) = works(asked.rows)
        try:
            found = [line.data() for line in run_here(row, work, options)]
        except (EngineError, RuntimeError, OSError) as error:
            raise SystemExit(f"    {type(error).__name__}: {error}") from error
        asked.json.write_text(json.dumps(found), "utf-8")
        return
    arguments = [
        "--starter", str(asked.starter), "--gemma", str(asked.gemma), "--keep", str(asked.keep),
        "--openvino", asked.openvino, "--ik-llama", asked.ik_llama, "--repeat", str(asked.repeat),
        "--threads", str(asked.threads), "--prompt-bits", asked.prompt_bits,
    ]  # fmt: skip
    found = [line for row, work in works(asked.rows) for line in run_apart(row, work, arguments)]
    judged = [line for line in found if line.get("met") is not None]
    missed = [line for line in judged if not line["met"]]
    print(
        f"{len(judged) - len(missed)} of {len(judged)} bars met; {sum('failed' in line for line in found)} "
        "failed"
    )
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1), "utf-8")


if __name__ == "__main__":
    main()
