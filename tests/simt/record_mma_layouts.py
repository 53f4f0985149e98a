"""Writes `mma_layouts.json`: which lane of a warp holds what, as NVIDIA's CuTe says it. Run where
`nvidia-cutlass-dsl` is installed:

    python -m tests.simt.record_mma_layouts

That package needs no GPU for it, but takes 400 MB under a licence of NVIDIA's own, so what it answered is
kept instead.
"""

from __future__ import annotations

import json
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("mma_layouts.json")
LANES = 32


def table(layout: Any, values: int) -> list[list[int]]:
    """The place of each lane's each value in its matrix, counted down the columns; of `ldmatrix`, along the
    rows."""
    return [[int(layout((lane, value))) for value in range(values)] for lane in range(LANES)]


def recorded() -> dict[str, Any]:
    """All layouts, and where they come from."""
    cutlass, cute, warp = (import_module(f"cutlass{part}") for part in ("", ".cute", ".cute.nvgpu.warp"))
    out: dict[str, Any] = {
        "source": f"nvidia-cutlass-dsl {metadata.version('nvidia-cutlass-dsl')}",
        "mma": {},
        "ldmatrix": {},
    }

    def ask() -> None:
        for name, kind, depth in (("f16", "Float16", 8), ("f16", "Float16", 16), ("bf16", "BFloat16", 16)):
            operation = warp.MmaF16BF16Op(getattr(cutlass, kind), cutlass.Float32, (16, 8, depth))
            mma = cute.make_tiled_mma(operation)
            out["mma"][f"m16n8k{depth} {name}"] = {
                "a": table(mma.tv_layout_A, depth // 2),
                "b": table(mma.tv_layout_B, depth // 4),
                "c": table(mma.tv_layout_C, 4),
            }
        for name, transposed in (("as it lies", False), ("transposed", True)):
            atom = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(transposed, 1), cutlass.Float16)
            out["ldmatrix"][f"m8n8 {name}"] = table(atom.layout_dst_tv, 2)

    cute.compile(cute.jit(ask))
    return out


def main() -> None:
    """The command."""
    text = json.dumps(recorded())
    FILE.write_text(text.replace("]], ", "]],\n").replace("}, ", "},\n") + "\n", "utf-8")


if __name__ == "__main__":
    main()
