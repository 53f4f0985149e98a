"""AMX's products give a row the bits that decoding gives it. Where there is no AMX, an emulator takes its
place.
"""

from __future__ import annotations

import ctypes
import platform
import re
import sys
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
from llvmlite import ir
from numba import types

from engine.backends.cpu.codegen.simd import I64, LANES, WIDE, intrinsic_function
from engine.backends.cpu.codegen.simd_bytes import AMX, KIND
from engine.backends.cpu.kernels.linear import amx, panel_format
from engine.backends.cpu.kernels.linear.dots import _dot
from engine.backends.cpu.kernels.linear.panel_format import PanelFormat
from engine.backends.cpu.kernels.linear.panels import _pack_panel
from engine.backends.cpu.kernels.packed_activations import FEATURES, PACKED_BYTES, quantise_row
from engine.backends.cpu.layouts.layout import IntegerLayout
from engine.backends.cpu.layouts.table import weight_layout_for
from engine.backends.cpu.runtime.memory import aligned
from engine.platform import amx as system
from tests.engine.backends.cpu.test_grouped import one_width
from tests.engine.backends.cpu.test_weight_types import compiled
from tests.engine.backends.kernel_oracles import Matrix

FULL = WIDE and KIND == "vnni"
"""Whether this CPU has what AMX's kernels use besides."""
Array = np.ndarray[Any, Any]


class Emulator:
    """AMX's eight tiles as the manual has them, in place of the instructions that `amx._call` emits."""

    NAMES = (
        "ldtilecfg", "tilerelease", "tilezero", "tileloadd64", "tilestored64",
        "tdpbssd", "tdpbsud", "tdpbf16ps", "prefetch",
    )  # fmt: skip

    def __init__(self) -> None:
        self.tiles = np.zeros((8, 16, 64), np.uint8)
        self.rows = self.widths = np.zeros(8, np.int64)
        self.seen: set[str] = set()
        self.prefetched: list[int] = []
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
        self._function = kind(self._run)
        self._address = ctypes.cast(self._function, ctypes.c_void_p).value

    def emit(self, b: ir.IRBuilder, name: str, *arguments: Any) -> None:
        """As `amx._call`."""
        values = [ir.Constant(I64, self.NAMES.index(name))]
        for a in (*arguments, 0, 0, 0)[:3]:
            if isinstance(a, int):
                values.append(ir.Constant(I64, a))
            else:
                values.append(b.ptrtoint(a, I64) if isinstance(a.type, ir.PointerType) else a)
        kind = ir.FunctionType(ir.VoidType(), [I64] * 4)
        b.call(b.inttoptr(ir.Constant(I64, self._address), kind.as_pointer()), values)

    def emit_prefetch(self, b: ir.IRBuilder, address: ir.Value, offset: int, level: int) -> None:
        """As `simd.prefetch`."""
        assert level == 2
        self.emit(b, "prefetch", b.add(address, ir.Constant(I64, offset)))

    def _memory(self, address: int, stride: int, rows: int, width: int) -> Array:
        base = np.ctypeslib.as_array((ctypes.c_uint8 * (stride * (rows - 1) + width)).from_address(address))
        return np.lib.stride_tricks.as_strided(base, (rows, width), (stride, 1))

    def _run(self, number: int, one: int, two: int, three: int) -> None:
        name = self.NAMES[number]
        self.seen.add(name)
        if name == "ldtilecfg":
            self.tiles[:] = 0
            settings = self._memory(one, 64, 1, 64)[0]
            self.widths = settings[16:32].view(np.uint16).astype(np.int64)
            self.rows = settings[48:56].astype(np.int64)
            assert settings[0] == 1
        elif name == "tilerelease":
            self.rows = np.zeros(8, np.int64)
        elif name == "prefetch":
            self.prefetched.append(one)
        elif name == "tilezero":
            self.tiles[one] = 0
        elif name in ("tileloadd64", "tilestored64"):
            rows, width = int(self.rows[one]), int(self.widths[one])
            assert rows
            memory = self._memory(two, three, rows, width)
            if name == "tilestored64":
                memory[:] = self.tiles[one, :rows, :width]
            else:
                self.tiles[one] = 0
                self.tiles[one, :rows, :width] = memory
        else:
            self._multiply(name, one, two, three)

    def _multiply(self, name: str, c: int, a: int, b: int) -> None:
        """c += a b; each of the four-byte words of b's rows holds a column's next numbers."""
        assert self.widths[a] == 4 * self.rows[b]
        rows, columns, deep = int(self.rows[a]), int(self.widths[b]) // 4, int(self.rows[b])
        left, right = self.tiles[a, :rows, : 4 * deep], self.tiles[b, :deep, : 4 * columns]
        if name == "tdpbf16ps":
            x, w = ((each.view(np.uint16).astype(np.uint32) << 16).view(np.float32) for each in (left, right))
        else:
            x, w = left.view(np.int8), right.view(np.int8 if name == "tdpbssd" else np.uint8)
        numbers = 2 if name == "tdpbf16ps" else 4
        matrix = w.reshape(deep, columns, numbers).transpose(0, 2, 1).reshape(deep * numbers, columns)
        kind = np.float32 if name == "tdpbf16ps" else np.int32
        total = self.tiles[c, :rows].view(kind)[:, :columns]
        total += (x.astype(np.float64) @ matrix.astype(np.float64)).astype(kind)


@pytest.fixture(params=["emulated", "native"])
def tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator | None]:
    """AMX, emulated or this CPU's."""
    if not FULL:
        pytest.skip("AMX comes with AVX-512 VNNI")
    if request.param == "native":
        if not AMX:
            pytest.skip("this CPU has no AMX, or this process may not use it")
        yield None
        return
    emulator = Emulator()
    monkeypatch.setattr(panel_format, "AMX", True)
    monkeypatch.setattr(amx, "_call", emulator.emit)
    monkeypatch.setattr(amx, "prefetch", emulator.emit_prefetch)
    release = intrinsic_function("amx_release", types.void, (), amx._emit_release)  # not compiled yet
    monkeypatch.setattr(amx, "release", release)
    compiled.cache_clear()
    yield emulator
    compiled.cache_clear()


def packed_rows(form: PanelFormat, pack_row: Any, x: Array, first: int) -> tuple[Array, int]:
    """x as rows `first` .. of packed activations, other rows full of ones; and a row's bytes."""
    count = x.shape[1] // FEATURES
    stride = -(-count * form.activation_bytes // 64) * 64
    groups = -(-(first + len(x)) // 16)
    out = aligned(16 * groups * stride)
    out[:] = 255
    for r in range(len(x)):
        row = first + r
        pack_row(x[r].ctypes.data, count, out.ctypes.data + row // 16 * 16 * stride, row % 16)
    return out, stride


def decoded(layout: IntegerLayout, dot: Any, tiles_: Array, x: Array, y: Array) -> None:
    """y += x times the tiles, row by row, as decoding does."""
    blocks = x.shape[1] // layout.unit
    few = np.zeros((x.shape[1] // FEATURES, PACKED_BYTES), np.uint8)
    pack = compiled(quantise_row, 3)
    for r in range(len(x)):
        pack(x[r].ctypes.data, len(few), few.ctypes.data)
        for j in range(len(tiles_)):
            out = y[r, j * LANES : (j + 1) * LANES]
            dot(tiles_[j].ctypes.data, blocks, few.ctypes.data, 0, 1, out.ctypes.data, 0)


CASES = {
    "Q6_K": (2, "tdpbf16ps"),
    "GROUPED4_128": (2, "tdpbf16ps"),
    "Q5_K": (1, "tdpbssd"),
    "Q4_K": (2, "tdpbf16ps"),
    "Q4_0": (1, "tdpbf16ps"),
    "MXFP4": (2, "tdpbf16ps"),
    "Q8_0": (2, "tdpbssd"),
    "IQ4_XS": (2, "tdpbssd"),
    "GROUPED3_64": (2, "tdpbf16ps"),
    "GROUPED6_32": (2, "tdpbssd"),
    "GROUPED5_32_F32": (1, "tdpbssd"),
}


def drawn(kind: str, rows: int, columns: int) -> Array:
    """The file bytes of a random matrix."""
    if found := re.fullmatch(r"GROUPED(\d)_(\d+)(_F32)?", kind):
        made = one_width(rows, columns, int(found[1]), int(found[2]), not found[3], 3)
        if found[1] == "6":  # those that are made while a model is loaded have zero points of a wider range
            made._zeros[:] = np.random.default_rng(3).integers(-64, 128, made._zeros.shape)
            made._zeros[0], made._zeros[1] = -64, 127
            made._codes[:2, :2] = 0, 63
        return made.tensor.data
    return Matrix(kind, (rows, columns), 3).data


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("kind", CASES)
def test_rows_get_the_bits_of_decoding(kind: str, tiles: Emulator | None) -> None:
    """Whatever the rows' places among those that are packed together; other rows are not touched."""
    vectors, product = CASES[kind]
    layout = cast(IntegerLayout, weight_layout_for(kind))
    form, rng = layout.panel_format(16), np.random.default_rng(5)
    columns = 3 * layout.unit if layout.unit > 32 else 7 * layout.unit
    weights = layout.pack(drawn(kind, LANES * vectors, columns), LANES * vectors, columns).reshape(
        vectors, -1
    )
    count = columns // FEATURES
    panel = aligned(vectors * count * form.size)
    pack = compiled(_pack_panel(layout, form), 3)
    for m in range(vectors):
        pack(weights[m].ctypes.data, columns // layout.unit, panel.ctypes.data + m * count * form.size)
    configure, pack_row = compiled(amx.configure(form), 2), compiled(amx.pack_rows(form), 4)
    multiply, dot = compiled(amx.amx_rows(vectors, form), 12), compiled(_dot(layout, 1), 7)
    for first, rows in ((0, 16), (5, 30), (14, 1), (3, 2), (21, 4), (0, 15), (1, 15)):
        x = (rng.standard_normal((rows, columns)) * rng.choice([0.001, 1, 50], columns)).astype(np.float32)
        x[0, :FEATURES] = 0
        packed, stride = packed_rows(form, pack_row, x, first)
        expected = rng.standard_normal((rows, LANES * vectors)).astype(np.float32)
        y = np.full((rows + 2, LANES * vectors), 7, np.float32)
        y[1:-1] = expected
        decoded(layout, dot, weights, x, expected)
        configure(first, rows)
        assert tiles is None or set(tiles.rows[:6]) == {min(16, first % 16 + rows)}
        multiply(
            panel.ctypes.data, count * form.size, packed.ctypes.data, stride, first, count, rows,
            y[1:].ctypes.data, y.strides[0], 0, 0, 0,
        )  # fmt: skip
        compiled(amx.release, 0)()
        assert y[1:-1].tobytes() == expected.tobytes()
        assert (y[[0, -1]] == 7).all()
    assert tiles is None or {each for each in tiles.seen if each.startswith("tdp")} == {product}


def test_eight_bits_of_activations(tiles: Emulator | None) -> None:
    """Each sum is of the same integers as a product of them in float64."""
    layout = cast(IntegerLayout, weight_layout_for("Q4_0"))
    form, rng = layout.panel_format(8), np.random.default_rng(1)
    assert form.amx == "int8"
    matrix = Matrix("Q4_0", (LANES, 4 * FEATURES), 3)
    weights = layout.pack(matrix.data, *matrix.shape)
    panel = aligned(4 * form.size)
    compiled(_pack_panel(layout, form), 3)(weights.ctypes.data, 4, panel.ctypes.data)
    x = rng.standard_normal((20, 4 * FEATURES)).astype(np.float32)
    packed, stride = packed_rows(form, compiled(amx.pack_rows(form), 4), x, 0)
    y = np.zeros((20, LANES), np.float32)
    compiled(amx.configure(form), 2)(0, 20)
    compiled(amx.amx_rows(1, form), 12)(
        panel.ctypes.data, 0, packed.ctypes.data, stride, 0, 4, 20, y.ctypes.data, y.strides[0], 0, 0, 0
    )
    compiled(amx.release, 0)()
    blocks = x.reshape(20, 4, FEATURES)
    scales = np.abs(blocks).max(-1, keepdims=True) / 127
    seen = (np.rint(blocks / scales) * scales).reshape(20, -1).astype(np.float64)
    np.testing.assert_allclose(y, seen @ matrix.values.T.astype(np.float64), rtol=1e-4, atol=1e-6)
    assert tiles is None or "tdpbsud" in tiles.seen


@pytest.mark.parametrize("tiles", ["emulated"], indirect=True)
def test_each_line_that_is_asked_for_is_prefetched_once(tiles: Emulator) -> None:
    """A few with each step, so that the last step has some, too; rounded up, since each has as many."""
    form = cast(IntegerLayout, weight_layout_for("Q4_0")).panel_format(16)
    rows, count, ahead, apart, lines = 20, 4, 1 << 20, 1 << 16, 13
    x, panel, y = aligned(32 * count * form.activation_bytes), aligned(2 * count * form.size), aligned(4096)
    compiled(amx.configure(form), 2)(0, rows)
    compiled(amx.amx_rows(2, form), 12)(
        panel.ctypes.data, count * form.size, x.ctypes.data, count * form.activation_bytes, 0, count, rows,
        y.ctypes.data, 128, ahead, apart, 64 * lines,
    )  # fmt: skip
    steps = 2 * count
    each = [64 * i for i in range(-(-lines // steps) * steps)]
    assert sorted(tiles.prefetched) == [start + i for start in (ahead, ahead + apart) for i in each]


@pytest.mark.parametrize(
    ("kind", "multiplied"),
    [(kind, "bf16" if product == "tdpbf16ps" else "int8") for kind, (_, product) in CASES.items()],
)
def test_bfloat16_only_where_all_sums_are_exact(
    kind: str, multiplied: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = cast(IntegerLayout, weight_layout_for(kind))
    for there in (True, False):
        monkeypatch.setattr(panel_format, "AMX", there)
        form = layout.panel_format(16)
        assert form.amx == (multiplied if there else "")
        most = form.magnitude * form.part * panel_format.LIMIT
        assert form.amx != "bf16" or np.float32(most - 1) != np.float32(most)


def test_weights_that_may_be_any_int16_are_not_multiplied_by_amx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panel_format, "AMX", True)
    assert PanelFormat(16, FEATURES, False, magnitude=129).amx == ""
    assert PanelFormat(16, FEATURES, False, magnitude=128).amx == "int8"
    assert PanelFormat(16, FEATURES, False, magnitude=panel_format.UNBOUNDED).numbers == "pairs"


class _Library:
    """A C library that answers arch_prctl."""

    def __init__(self, answer: int) -> None:
        self.answer, self.asked = answer, list[tuple[int, ...]]()

    def syscall(self, *arguments: int) -> int:
        self.asked.append(arguments)
        return self.answer


@pytest.mark.parametrize(
    ("where", "machine", "answer", "allowed"),
    [
        ("linux", "x86_64", 0, True),
        ("linux", "x86_64", -1, False),
        ("linux", "aarch64", 0, False),
        ("win32", "x86_64", 0, False),
    ],
)
def test_the_system_is_asked(
    where: str, machine: str, answer: int, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = _Library(answer)
    monkeypatch.setattr(sys, "platform", where)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    assert system.tiles_allowed.__wrapped__() is allowed
    assert library.asked == ([(158, 0x1023, 18)] if (where, machine) == ("linux", "x86_64") else [])
