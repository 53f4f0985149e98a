"""Compiles every kernel for every device ahead of time.

Run it with `python -m engine.backends.cuda.codegen.prebuild FOLDER`.

It needs no GPU. If the folder is shipped as `resources/cubins`, users need neither the compiler nor the wait.
It is only used with exactly the sources that it was built from.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from engine.backends.cuda.codegen import cubin_cache, workers
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.registry import all_kernels
from engine.backends.cuda.codegen.targets import CAPABILITIES, TEGRA, BuildError, Target


def prebuild(
    folder: Path,
    kernels: Iterable[Kernel],
    capabilities: Sequence[int] = CAPABILITIES,
    processes: int | None = None,
) -> int:
    """Write machine code for all capabilities; returns the number of files.

    PTX is added where a later generation may follow or where `TEGRA` devices use it. Raises `BuildError`.
    """
    generations = {capability // 10: capability for capability in capabilities}
    last = {capability for generation, capability in generations.items() if generation + 1 not in generations}
    last |= {max(c for c in capabilities if c <= device) for device in TEGRA if device >= min(capabilities)}
    table: dict[str, dict[str, list[int]]] = {}
    files = 0
    for kernel, outcome in workers.compiled(list(kernels), capabilities, processes):
        if isinstance(outcome, BuildError):
            raise outcome
        table[kernel.name] = {}
        for capability, built in outcome.items():
            for chosen in [
                Target(capability, True),
                *([Target(capability, False)] if capability in last else []),
            ]:
                cubin_cache.write(folder / chosen.folder / cubin_cache.file_name(kernel), chosen.image(built))
                files += 1
            table[kernel.name][str(capability)] = [built.registers, built.stack, built.spilled, built.shared]
        print(f"{kernel.name}: {' '.join(f'sm_{c} {b.registers}' for c, b in outcome.items())}", flush=True)
    manifest = {
        "sources": cubin_cache.sources(),
        "compiler": cubin_cache.compiler(),
        "registers, stack, spilled, shared": table,
    }
    # The manifest is written last, so that an incomplete folder is ignored.
    (folder / cubin_cache.MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")
    return files


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit status."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("python -m engine.backends.cuda.codegen.prebuild FOLDER", file=sys.stderr)
        return 2
    try:
        files = prebuild(Path(arguments[0]), all_kernels())
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{files} files.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
