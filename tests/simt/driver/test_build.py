"""Which code a device gets, and what the compiler refuses."""

from __future__ import annotations

import re
from typing import Any

import pytest

from engine.backends.cuda.codegen import build as build_module
from engine.backends.cuda.codegen.build import build
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    block_x,
    ldg_f32,
    ldg_stream,
    mma_fp16,
    registers,
    shfl_xor_f32,
    st_f32,
    st_f32x4,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.targets import CAPABILITIES, BuildError, target
from engine.backends.cuda.codegen.words import float32, int32, int64

MANY = 64


def _wasteful(source: int, target: int, stride: int) -> None:
    """Holds MANY numbers at once: more than fit where 1024 threads share a multiprocessor's registers
    twice.
    """
    at = 4 * int64(int32(block_x() * 1024 + thread()))
    kept = registers(float32(0.0), MANY)
    for i in static(range(MANY)):
        kept[i] = ldg_f32(source + at + int64(i) * stride)
    for i in static(range(MANY)):
        st_f32(target + at + int64(i) * stride, kept[MANY - 1 - i])


def _double(target: int, scale: float) -> None:
    """Computes in float64: 0.1 is none of float32."""
    st_f32(target, float32(scale * 0.1))


def _changing(source: int, target: int) -> None:
    """Instructions that have another text on newer devices."""
    wait_for_others()
    a, b, c, d = ldg_stream(source + 32 * int64(thread()))
    e, f, _, _ = ldg_stream(source + 32 * int64(thread()) + 16)
    s = float32(0.0)
    s, t, u, v = mma_fp16(a, b, c, d, e, f, s, s, s, s)
    st_f32x4(target + 16 * int64(thread()), s, t, u, v)


def _together(x: Any) -> Any:
    return x + shfl_xor_f32(x, 1)


def _meeting(target: int) -> None:
    """All lanes come to the shuffle, and one stores."""
    total = _together(float32(1.0))
    if thread() == 0:
        st_f32(target, total)


STEP: Any = 1


def _step(x: Any) -> Any:
    return x + STEP


def _stepping(target: int) -> None:
    """Calls a function that depends on a constant."""
    st_f32(target, float32(_step(thread())))


def changing() -> Kernel:
    return Kernel("changing", _changing, "ll", 32, 32)


def spilling() -> Kernel:
    """A kernel that cannot keep what it needs in registers."""
    return Kernel("wasteful", _wasteful, "lll", 1024, 255, {"MANY": MANY}, blocks=2)


def doubling() -> Kernel:
    return Kernel("double", _double, "lf", 32, 32)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (75, "sm_75"), (80, "sm_80"), (86, "sm_86"), (87, "compute_86"), (89, "sm_89"), (90, "sm_90"),
        (100, "sm_100"), (101, "compute_100"), (103, "sm_100"), (110, "compute_100"), (120, "sm_120"),
        (121, "sm_120"), (130, "compute_120"), (200, "compute_120"),
    ],
)  # fmt: skip
def test_target(device: int, expected: str) -> None:
    assert target(device).folder == expected


def test_old_devices_are_refused() -> None:
    with pytest.raises(BuildError, match=r"compute capability 7\.5; this GPU has 6\.1"):
        target(61)


def test_an_image_is_code_of_its_device() -> None:
    from engine.backends.cuda.kernels.pointwise import add_kernel

    built = build(add_kernel(), [75, 120])
    for device, machine in ((75, 75), (121, 120)):
        image = target(device).image(built[target(device).capability])
        assert image[:4] == b"\x7fELF"
        assert image == built[machine].cubin
    text = target(130).image(built[120])
    assert text.endswith(b"\0")
    assert b".target sm_120" in text


def test_what_depends_on_the_device() -> None:
    """The compiler's front end runs once, NVVM once for several devices; each gets the instructions of its
    own, with their operands.
    """
    built = build(changing())
    texts = {c: b.ptx for c, b in built.items()}
    assert [c for c in CAPABILITIES if "griddepcontrol.wait" in texts[c]] == [90, 100, 120]
    assert [c for c in CAPABILITIES if "L2::128B" in texts[c]] == [80, 86, 89, 90, 100, 120]
    for c, text in texts.items():
        assert f".target sm_{c}\n" in text
        products = re.findall(
            r"m16n8k(8|16)\S+ \{(\S+, \S+, \S+, \S+)\}, \{(.*?)\}, \{(.*?)\}, \{(.*?)\};", text
        )
        assert [p[0] for p in products] == (["8", "8"] if c == 75 else ["16"])
        assert len({r for p in products for r in ", ".join(p[1:4]).split(", ")}) == 4 + 4 + 2
        assert "{@" not in text
    assert texts[80].replace("sm_80", "sm_89") == texts[89]


def test_every_function_is_convergent() -> None:
    """Kernels, what they call, and what is only declared; LLVM's own intrinsics say it themselves."""
    meeting = Kernel("meeting", _meeting, "l", 32, 32)
    function, _ = build_module._numba_function(meeting)
    library = build_module._front_end(meeting, function)
    lines = [line for text in library.llvm_strs for line in text.splitlines()]
    heads = [line for line in lines if re.match(r"(define|declare)\b", line)]
    own = [line for line in heads if "@llvm." not in line and '@"llvm.' not in line]
    assert any(line.startswith("define") for line in own)
    assert any(line.startswith("declare") for line in own)
    assert [line for line in own if "convergent" not in line] == []


def test_kernels_share_the_functions_they_call() -> None:
    """Those with the same constants, the same types of constants included."""

    def called(step: Any) -> Any:
        kernel = Kernel("stepping", _stepping, "l", 32, 32, {"STEP": step})
        return build_module._numba_function(kernel)[0].__globals__["_step"]

    steps = [1, 1.0, True, 0, 0.0, -0.0, (1,), (1.0,)]
    assert [called(step) is called(step) for step in steps] == [True] * len(steps)
    assert len({id(called(step)) for step in steps}) == len(steps)


def test_a_shared_function_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_module, "_device_functions", {})
    alone, after = (
        build(Kernel(name, _meeting, "l", 32, 32), [90])[90].ptx.replace(name, "kernel")
        for name in ("alone", "after")
    )
    assert len(build_module._device_functions) == 1
    assert after == alone


def test_nvvm_makes_one_text_of_a_generation() -> None:
    """As `build` takes it to, which translates once for several devices."""
    function, _ = build_module._numba_function(changing())
    library = build_module._front_end(changing(), function)
    texts = {
        c: build_module._translated(changing(), library, c).replace(f"sm_{c}", "sm_") for c in CAPABILITIES
    }
    assert [c for c in CAPABILITIES if texts[c] != texts[build_module._first(c)]] == []
    assert {build_module._first(c) for c in CAPABILITIES} == {75, 100}


def test_float64_is_refused() -> None:
    with pytest.raises(BuildError, match="The kernel double computes in float64"):
        build(doubling(), [90])


def test_kernels_are_built_for_what_they_support() -> None:
    newer: Any = Kernel("double", _double, "lf", 32, 32, min_capability=80)
    assert build(newer, [75]) == {}
    assert CAPABILITIES[0] == 75
