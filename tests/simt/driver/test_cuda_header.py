"""What `driver` and `launch` say of NVIDIA's driver, against the toolkit's own header."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from engine.backends.cuda.runtime import driver, launcher
from tests.simt import cuda_header, fake_driver
from tests.simt.cuda_header import Kind

ANYTHING = Kind("pointer", ctypes.sizeof(ctypes.c_void_p))


def kind_of(kind: Any) -> Kind:
    """A ctypes type; `void *` points to anything."""
    if kind in (ctypes.c_void_p, ctypes.c_char_p):
        return ANYTHING
    if issubclass(kind, ctypes._Pointer):
        return Kind("pointer", ANYTHING.size, None, kind_of(kind._type_))
    return Kind("int", ctypes.sizeof(kind), None if kind is ctypes.c_char else kind(-1).value < 0)


def fits(ours: Kind, theirs: Kind) -> bool:
    """Whether a value of our type is what C would pass."""
    if (ours.kind, ours.size) != (theirs.kind, theirs.size):
        return False
    if ours.kind == "pointer":
        return ours.to is None or theirs.to is None or fits(ours.to, theirs.to)
    return theirs.signed is None or ours.signed == theirs.signed


@pytest.mark.parametrize("signatures", [driver._SIGNATURES, fake_driver._PROTOTYPES], ids=["driver", "fake"])
def test_signatures(signatures: dict[str, tuple[Any, ...]]) -> None:
    """As many parameters, each of the size and kind that C has."""
    types = {name: cuda_header.prototype(name) for name in signatures}
    table = cuda_header.kinds([each for parameters in types.values() for each in parameters])
    wrong = []
    for name, ours in signatures.items():
        theirs = types[name]
        if len(ours) != len(theirs):
            wrong.append(f"{name}: {len(ours)} parameters, {len(theirs)} in cuda.h")
        wrong += [
            f"{name}: {o.__name__} for {t}"
            for o, t in zip(ours, theirs, strict=False)
            if not fits(kind_of(o), table[t])
        ]
    assert wrong == []


def test_the_comparison_bites() -> None:
    table = cuda_header.kinds(["CUdeviceptr", "int *", "CUcontext *", "CUdevice_attribute", "unsigned int"])
    assert not fits(kind_of(ctypes.c_uint), table["CUdeviceptr"])
    assert not fits(kind_of(ctypes.POINTER(ctypes.c_size_t)), table["int *"])
    assert not fits(kind_of(ctypes.POINTER(ctypes.c_int)), table["CUcontext *"])
    assert not fits(kind_of(ctypes.c_int), table["unsigned int"])
    assert fits(kind_of(ctypes.c_int), table["CUdevice_attribute"])
    with pytest.raises(AssertionError, match="has no cuNothing"):
        cuda_header.prototype("cuNothing")


@pytest.mark.parametrize(
    ("structure", "name", "fields"),
    [
        (launcher.LaunchAttribute, "CUlaunchAttribute", {"id": "id", "value": "value"}),
        (
            launcher.LaunchConfig,
            "CUlaunchConfig",
            {
                "grid": "gridDimX", "block": "blockDimX", "shared_bytes": "sharedMemBytes",
                "stream": "hStream",
                "attributes": "attrs", "attribute_count": "numAttrs",
            },
        ),
    ],
)  # fmt: skip
def test_structures(structure: Any, name: str, fields: dict[str, str]) -> None:
    size, places = cuda_header.offsets(name, list(fields.values()))
    assert ctypes.sizeof(structure) == size
    for own, (at, length) in zip(fields, places, strict=True):
        field = getattr(structure, own)
        assert field.offset == at, own
        each = 3 if own in ("grid", "block") else 1  # three numbers one after the other
        assert field.size == each * length or own == "value", own


def test_the_grid_is_three_numbers_in_a_row() -> None:
    names = [f"{what}Dim{axis}" for what in ("grid", "block") for axis in "XYZ"]
    _, places = cuda_header.offsets("CUlaunchConfig", names)
    assert places == [(4 * i, 4) for i in range(6)]


def test_numbers() -> None:
    attributes = {
        "clock": "CLOCK_RATE", "processors": "MULTIPROCESSOR_COUNT", "mode": "COMPUTE_MODE",
        "memory_clock": "MEMORY_CLOCK_RATE", "bus": "GLOBAL_MEMORY_BUS_WIDTH", "l2_cache": "L2_CACHE_SIZE",
        "major": "COMPUTE_CAPABILITY_MAJOR", "minor": "COMPUTE_CAPABILITY_MINOR",
    }  # fmt: skip
    assert attributes.keys() == driver._ATTRIBUTES.keys()
    expected = {f"CU_DEVICE_ATTRIBUTE_{name}": driver._ATTRIBUTES[key] for key, name in attributes.items()}
    expected |= {
        "CU_COMPUTEMODE_PROHIBITED": driver._PROHIBITED,
        "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION": launcher._PROGRAMMATIC_STREAM_SERIALIZATION,
        "CUDA_ERROR_OUT_OF_MEMORY": driver.OUT_OF_MEMORY,
        "CUDA_ERROR_NO_DEVICE": driver._NO_DEVICE,
        "CUDA_SUCCESS": driver._SUCCESS,
    }
    assert cuda_header.values(list(expected)) == expected


def test_results_after_which_a_device_is_gone() -> None:
    """Each is a result that the driver has, and none is of a call that was refused and changed nothing."""
    names = cuda_header.results()
    assert names.keys() >= driver.LOST | driver._DISAGREES
    refused = {
        "INVALID_VALUE", "OUT_OF_MEMORY", "NOT_INITIALIZED", "NO_DEVICE", "INVALID_IMAGE", "INVALID_CONTEXT",
        "NO_BINARY_FOR_GPU", "INVALID_PTX", "INVALID_HANDLE", "NOT_FOUND", "NOT_READY",
        "LAUNCH_OUT_OF_RESOURCES", "NOT_PERMITTED", "NOT_SUPPORTED", "STREAM_CAPTURE_UNSUPPORTED",
        "STREAM_CAPTURE_INVALIDATED",
    }  # fmt: skip
    lost = {names[code].removeprefix("CUDA_ERROR_") for code in driver.LOST}
    assert not lost & refused
    assert lost >= {
        "ILLEGAL_ADDRESS",
        "LAUNCH_TIMEOUT",
        "LAUNCH_FAILED",
        "ECC_UNCORRECTABLE",
        "MISALIGNED_ADDRESS",
        "UNKNOWN",
    }
    assert {names[code] for code in fake_driver._NAMES} == {name for _, name in fake_driver._NAMES.values()}
