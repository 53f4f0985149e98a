"""Which lane holds what of a matrix instruction: our own reading of PTX, against NVIDIA's CuTe
(`record_mma_layouts`)."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    Op,
    ldg_f32x4,
    ldg_u32,
    ldg_u32x2,
    ldg_u32x4,
    mma_bf16,
    mma_fp16,
    st_f32x4,
    st_u32,
    thread,
    transpose_b16,
)
from engine.backends.cuda.codegen.words import int64
from tests.simt.agree import aligned
from tests.simt.emulation import OPS, bf16_bits, half_bits
from tests.simt.interpreter import Memory, run
from tests.simt.record_mma_layouts import FILE, LANES

LAYOUTS: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
M, N = 16, 8


def places(instruction: str, operand: str) -> Any:
    """(lanes, values, 2): row and column of what a lane holds: of A (16, K), of B (8, K), of C (16, 8)."""
    table = np.array(LAYOUTS["mma"][instruction][operand])
    rows = N if operand == "b" else M
    return np.stack([table % rows, table // rows], axis=-1)


def words(matrix: Any, at: Any, bits: Any) -> Any:
    """uint32 (lanes, words): what each lane holds of a matrix, two values a word, the first in the low
    half."""
    values = np.vectorize(bits, otypes=[np.uint32])(matrix[at[..., 0], at[..., 1]])
    return values[:, ::2] | values[:, 1::2] << 16


def _fp16_rows(a: int, b: int, c: int, d: int) -> None:
    lane = int64(thread())
    a0, a1, a2, a3 = ldg_u32x4(a + 16 * lane)
    b0, b1 = ldg_u32x2(b + 8 * lane)
    c0, c1, c2, c3 = ldg_f32x4(c + 16 * lane)
    d0, d1, d2, d3 = mma_fp16(a0, a1, a2, a3, b0, b1, c0, c1, c2, c3)
    st_f32x4(d + 16 * lane, d0, d1, d2, d3)


def _bf16(a: int, b: int, c: int, d: int) -> None:
    lane = int64(thread())
    a0, a1, a2, a3 = ldg_u32x4(a + 16 * lane)
    b0, b1 = ldg_u32x2(b + 8 * lane)
    c0, c1, c2, c3 = ldg_f32x4(c + 16 * lane)
    d0, d1, d2, d3 = mma_bf16(a0, a1, a2, a3, b0, b1, c0, c1, c2, c3)
    st_f32x4(d + 16 * lane, d0, d1, d2, d3)


def _transposed(source: int, target: int) -> None:
    lane = int64(thread())
    st_u32(target + 4 * lane, transpose_b16(ldg_u32(source + 4 * lane)))


def warp(body: Any, *arrays: Any) -> list[Any]:
    """The arrays after one warp ran a body on them."""
    copies = [aligned(array) for array in arrays]
    run(
        Kernel("one_warp", body, "l" * len(arrays), LANES, 32),
        1,
        [each.ctypes.data for each in copies],
        Memory(*copies),
    )
    return copies


def product(instruction: str, body: Any, bits: Any, a: Any, b: Any, c: Any) -> Any:
    """A B^T + C by the emulated instruction, dealt out to lanes and gathered as CuTe says."""
    at = {operand: places(instruction, operand) for operand in "abc"}
    lanes = [words(a, at["a"], bits), words(b, at["b"], bits), c[at["c"][..., 0], at["c"][..., 1]]]
    out = warp(body, *lanes, np.zeros((LANES, 4), np.float32))[3]
    gathered = np.full((M, N), np.nan, np.float32)
    gathered[at["c"][..., 0], at["c"][..., 1]] = out
    return gathered


CASES = [("m16n8k16 f16", _fp16_rows, half_bits), ("m16n8k16 bf16", _bf16, bf16_bits)]


@pytest.mark.parametrize(("instruction", "body", "bits"), CASES)
def test_products(instruction: str, body: Any, bits: Any) -> None:
    """Whole numbers, whose sums are exact: every element comes from the places that CuTe names, and goes
    there."""
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(-9, 10, shape).astype(np.float32) for shape in ((M, 16), (N, 16), (M, N)))
    np.testing.assert_array_equal(product(instruction, body, bits, a, b, c), a @ b.T + c)


@pytest.mark.parametrize("operand", ["a", "b", "c"])
def test_another_layout_is_found(operand: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two values of each lane exchanged, as in a wrong reading: the product is another."""
    changed = json.loads(json.dumps(LAYOUTS))
    for lane in changed["mma"]["m16n8k16 f16"][operand]:
        lane[1], lane[2] = lane[2], lane[1]
    monkeypatch.setitem(LAYOUTS, "mma", changed["mma"])
    rng = np.random.default_rng(1)
    a, b, c = (rng.integers(-9, 10, shape).astype(np.float32) for shape in ((M, 16), (N, 16), (M, N)))
    assert (product("m16n8k16 f16", _fp16_rows, half_bits, a, b, c) != a @ b.T + c).any()


def instructions(op: Op, capability: int) -> list[tuple[str, list[list[int]]]]:
    """The matrix instructions that an operation is on a device: the form, and the operand numbers of D, A, B
    and C."""
    found = re.findall(r"mma\.sync\.aligned\.(m\d+n\d+k\d+)\.row\.col\.\S+ ([^;]*);", op.text_for(capability))
    return [
        (form, [[int(n) for n in re.findall(r"\$(\d+)", part)] for part in re.findall(r"\{(.*?)\}", rest)])
        for form, rest in found
    ]


@pytest.mark.parametrize(
    ("op", "capability"), [(mma_fp16, 75), (mma_fp16, 80), (mma_fp16, 120), (mma_bf16, 80)]
)
def test_operands_are_in_the_order_of_the_layout(op: Op, capability: int) -> None:
    """D, A, B, C as `fragments` takes them; where two shorter instructions stand for one, each takes its half
    of the columns."""
    name = "bf16" if op is mma_bf16 else "f16"
    whole = {operand: places(f"m16n8k16 {name}", operand) for operand in "abc"}
    steps = instructions(op, capability)
    assert [form for form, _ in steps] == (["m16n8k8"] * 2 if capability < 80 else ["m16n8k16"])
    sums = [10, 11, 12, 13]
    seen: list[int] = []
    for i, (form, (d, a, b, c)) in enumerate(steps):
        assert (d, c) == ([0, 1, 2, 3], sums)
        sums = d
        seen += [*a, *b]
        for operand, numbers, first in (("a", a, 4), ("b", b, 8)):
            part = places(f"{form} {name}", operand).copy()
            part[..., 1] += i * 8 if form == "m16n8k8" else 0
            held = [whole[operand][:, 2 * (number - first) + half] for number in numbers for half in range(2)]
            np.testing.assert_array_equal(part, np.stack(held, axis=1))
        np.testing.assert_array_equal(places(f"{form} {name}", "c"), whole["c"])
    assert sorted(seen) == list(range(4, 10))


def test_transposing() -> None:
    """A lane holds two neighbours of a row before, and afterwards what `ldmatrix` gives it of the transposed
    matrix."""
    matrix = np.arange(64, dtype=np.uint32) * 7 + 3
    before, after = (np.array(LAYOUTS["ldmatrix"][f"m8n8 {way}"]) for way in ("as it lies", "transposed"))
    given, expected = (
        (matrix[at[:, 0]] | matrix[at[:, 1]] << 16).astype(np.uint32) for at in (before, after)
    )
    _, out = warp(_transposed, given, np.zeros(LANES, np.uint32))
    np.testing.assert_array_equal(out, expected)


def test_every_matrix_instruction_is_held_against_it() -> None:
    """A new one must come with its layout."""
    texts = [text for op in OPS.values() for text in (op.text, *op.since.values())]
    used = {
        found
        for text in texts
        for found in re.findall(r"mma\.sync\.aligned\.(m\d+n\d+k\d+)\.row\.col\.f32\.(\w+)\.", text)
    }
    assert used == {tuple(name.split(" ")) for name in LAYOUTS["mma"]}
    others = {
        found
        for text in texts
        for found in re.findall(r"\b(ldmatrix|stmatrix|movmatrix|wgmma|tcgen05)\b", text)
    }
    assert others == {"movmatrix"}
