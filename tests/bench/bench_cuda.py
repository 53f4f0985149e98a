"""The CUDA engine on a GPU: Llamas of 1, 8 and 32 billion random weights, in bf16 and in 4 bits (GPTQ, group
128).

    python -m tests.bench.bench_cuda [SHAPE ...] [--gpu N] [--repeat N] [--skip-transformers]
        [--results FOLDER]

For each shape and type: decoding after 0, 4,096 and 32,768 tokens, prompts of 512, 4,096 and 16,384, a pass
of five rows relative to a pass of one, and the host's work between two waits for the device. For comparison,
from the same run: the bandwidth of a copy, the rate of torch's matrix product, and for bf16 `transformers`
with a static cache and torch.compile on weights of the same shapes, if installed. Bars are those of an H200;
on other cards they are shown but not judged.

Results go to tests/bench/results, with card, driver, versions and date. --toy runs everything at tiny sizes
on the device that a test supplies, and writes no result.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from engine.backends.cuda.runtime.device import Device
from engine.errors import EngineError
from tests.bench.cuda_kit import KINDS, SHAPES, Plan, Shape, Subject, opened
from tests.bench.cuda_transformers import transformers_seconds

RESULTS = Path(__file__).parent / "results"
USUAL = Plan(depths=(0, 4096, 32768), prompts=(512, 4096, 16384), tokens=64, repeat=3)
TOY = Plan(depths=(0, 24), prompts=(20,), tokens=4, repeat=1, copied=1 << 16, side=16)
JUDGED_ON = "H200"
VERIFICATION, HOST_GAP, PREFILL = 1.25, 40e-6, 0.70
DECODE = {
    ("8B", "bf16"): 0.80,
    ("8B", "4-bit"): 0.75,
    ("32B", "bf16"): 0.85,
    ("32B", "4-bit"): 0.85,
    ("1B", "4-bit"): 0.55,
}
"""The least share of the copy bandwidth, at no depth."""


@dataclass(frozen=True)
class Line:
    """One figure: `value` in `unit`; if it has a bar, also the judged number `of` and whether it `met` the
    bar.
    """

    shape: str
    kind: str
    what: str
    value: float
    unit: str
    of: str = ""
    share: float | None = None
    bar: float | None = None
    at_most: bool = False
    rival: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None if there is none."""
        judged = self.value if self.share is None else self.share
        return None if self.bar is None else judged <= self.bar if self.at_most else judged >= self.bar


def measure(
    device: Device,
    shape: Shape,
    kind: str,
    plan: Plan,
    rival: Callable[[Shape, Plan], dict[str, float]] | None,
) -> list[Line]:
    """All lines of one shape and type."""
    from engine.backends.cuda.runtime.rates import copy_bandwidth

    bandwidth, rate = copy_bandwidth(device, plan.copied), _matmul_rate(device, plan.side)
    lines = [
        Line(shape.name, kind, "copy bandwidth", bandwidth / 1e9, "GB/s"),
        Line(shape.name, kind, "matmul rate", rate / 1e12, "TFLOP/s"),
    ]  # fmt: skip
    theirs: dict[str, float] = rival(shape, plan) if rival is not None and kind == "bf16" else {}
    with opened(device, shape, kind, plan) as subject:
        lines += _decodes(subject, plan, bandwidth, theirs)
        lines += _prompts(subject, plan, rate, theirs)
        one, five = subject.rows_seconds(1), subject.rows_seconds(5)
        lines.append(
            Line(
                shape.name, kind, "verify 5", 1e3 * five, "ms", "of one token", five / one, VERIFICATION, True
            )
        )
        gap = subject.host_seconds()
        lines.append(
            Line(shape.name, kind, "host work a step", 1e6 * gap, "us", bar=1e6 * HOST_GAP, at_most=True)
        )
    return lines


def _matmul_rate(device: Device, side: int) -> float:
    """Floating-point operations per second of torch's product of two square matrices.

    They are bf16, or fp16 below compute capability 8.0.
    """
    import torch

    from engine.backends.cuda.runtime.rates import seconds_of

    kind = torch.bfloat16 if device.capability >= 80 else torch.float16
    with device.torch_work():
        a, b = (torch.randn(side, side, dtype=kind, device=device.torch_device) for _ in range(2))
    return 2 * float(side) ** 3 / seconds_of(device, lambda: torch.mm(a, b))


def _decodes(subject: Subject, plan: Plan, bandwidth: float, theirs: dict[str, float]) -> list[Line]:
    lines = []
    for depth in plan.depths:
        seconds = subject.decode_seconds(depth)
        share = subject.step_bytes(depth) / seconds / bandwidth
        bar = DECODE.get((subject.shape.name, subject.kind)) if depth == 0 else None
        what, rival = f"decode at {depth}", theirs.get(f"decode at {depth}")
        lines.append(
            Line(subject.shape.name, subject.kind, what, 1 / seconds, "tokens/s", "of the copy bandwidth",
            share, bar,
                 rival=1 / rival if rival else None)
        )  # fmt: skip
    return lines


def _prompts(subject: Subject, plan: Plan, rate: float, theirs: dict[str, float]) -> list[Line]:
    lines = []
    for tokens in plan.prompts:
        seconds = subject.prompt_seconds(tokens)
        share = subject.prompt_operations(tokens) / seconds / rate
        what = f"prompt of {tokens}"
        rival = theirs.get(what)
        lines.append(
            Line(subject.shape.name, subject.kind, what, tokens / seconds, "tokens/s", "of the matmul rate",
            share,
                 PREFILL if tokens >= 4096 else None, rival=tokens / rival if rival else None)
        )  # fmt: skip
    return lines


def table(lines: Sequence[Line], judged: bool) -> str:
    """Lines of text, one for each figure."""
    out = []
    for line in lines:
        share = f"{100 * line.share:6.1f} % {line.of}" if line.share is not None else ""
        rival = (
            f"transformers {line.rival:,.1f}, {line.value / line.rival:.2f} times that" if line.rival else ""
        )
        verdict = "" if line.met is None or not judged else "met" if line.met else "MISSED"
        out.append(
            f"{line.shape:5}{line.kind:7}{line.what:20}{line.value:12,.1f} "
            f"{line.unit:10}{share:34}{rival:40}{verdict}".rstrip()
        )
    return "\n".join(out)


def facts(device: Device) -> dict[str, Any]:
    """The card, driver, versions and date."""
    from engine.backends.cuda.runtime import nvml

    with nvml.opened() as manager:
        driver = manager.driver_version() if manager is not None else ""
    names = ("inglenook", "torch", "numba", "numba-cuda", "numpy", "transformers")
    return {
        "card": device.name, "capability": device.capability / 10, "processors": device.sm_count,
        "memory_bytes": device.total_memory, "driver": driver, "python": sys.version.split()[0],
        "packages": {name: found for name in names if (found := _version(name))},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }  # fmt: skip


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def write(folder: Path, about: dict[str, Any], lines: Sequence[Line], judged: bool) -> Path:
    """Write the table and the same as JSON; returns the table's file."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"cuda-{about['card'].lower().replace(' ', '-')}-{about['date']}"
    figures = [asdict(line) | {"met": line.met if judged else None} for line in lines]
    (folder / f"{stem}.json").write_text(json.dumps(about | {"lines": figures}, indent=1) + "\n", "utf-8")
    head = [f"{key}: {value}" for key, value in about.items()]
    target = folder / f"{stem}.txt"
    target.write_text("\n".join([*head, "", table(lines, judged), ""]), "utf-8")
    return target


def _gpu(number: int) -> Device:
    """Raises `EngineError` with the reason if there is no usable GPU."""
    from engine.backends.choice import choose
    from engine.backends.cuda.runtime.torch_device import TorchDevice
    from engine.settings import LoadSettings

    choose(LoadSettings(backend="cuda", gpus=str(number)))
    return TorchDevice(number)


def main(arguments: Sequence[str] | None = None, device: Device | None = None) -> int:
    """Measure; with --toy a test supplies the `device`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "shapes", nargs="*", metavar="SHAPE", help="of " + ", ".join(name for name in SHAPES if name != "toy")
    )
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--repeat", type=int, default=USUAL.repeat)
    parser.add_argument("--skip-transformers", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--toy", action="store_true", help="sizes that measure nothing; nothing is written")
    options = parser.parse_args(arguments)
    names = ["toy"] if options.toy else options.shapes or [name for name in SHAPES if name != "toy"]
    if unknown := [name for name in names if name not in SHAPES]:
        parser.error(f"{unknown[0]} is no shape; choose of {', '.join(SHAPES)}")
    if device is not None and not options.toy:
        parser.error("a device that is no GPU measures nothing: only with --toy")
    plan = TOY if options.toy else USUAL.but(options.repeat)
    if device is None:
        try:
            device = _gpu(options.gpu)
        except EngineError as error:
            print(error, file=sys.stderr)
            return 1
    rival = None if options.skip_transformers or not _version("transformers") else transformers_seconds
    judged, lines = JUDGED_ON in device.name and not options.toy, list[Line]()
    for name in names:
        for kind in KINDS:
            found = measure(device, SHAPES[name], kind, plan, rival)
            print(table(found, judged), flush=True)
            lines += found
            gc.collect()
    if not options.toy:
        print(f"written to {write(options.results, facts(device), lines, judged)}")
    return int(judged and any(line.met is False for line in lines))


if __name__ == "__main__":
    sys.exit(main())
