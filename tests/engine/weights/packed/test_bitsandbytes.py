"""bitsandbytes folders, written as its descriptions say; what is broken is refused in one sentence.

Files of bitsandbytes 0.50.2 (nf4 and fp4, plain and nested scales, int8) were read to the last bit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from engine.errors import BadCheckpoint, EngineError, UnsupportedModel
from engine.tensors import Floats, RawTensor
from engine.weights import open_checkpoint

Tensors = dict[str, npt.NDArray[Any]]
RNG = np.random.default_rng(3)
X = "a.weight"
STATE = f"{X}.quant_state.bitsandbytes__nf4"


def opened(folder: Path, tensors: Tensors) -> dict[str, RawTensor]:
    settings = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (folder / "config.json").write_text(json.dumps({"quantization_config": settings}))
    save_file(tensors, folder / "model.safetensors")
    return dict(open_checkpoint(folder).tensors)


def as_bytes(state: dict[str, Any]) -> npt.NDArray[np.uint8]:
    return np.frombuffer(json.dumps(state).encode(), np.uint8)


def four_bits(rows: int, columns: int, block: int, nested: bool) -> tuple[Tensors, Floats]:
    """A matrix's tensors, and the values they stand for."""
    table = np.sort(RNG.uniform(-1, 1, 16)).astype(np.float32)
    codes = RNG.integers(0, 16, rows * columns)
    blocks = -(-codes.size // block)
    state = {"quant_type": "nf4", "blocksize": block, "dtype": "bfloat16", "shape": [rows, columns]}
    tensors: Tensors = {
        X: (codes[::2] * 16 + codes[1::2]).astype(np.uint8)[:, None], f"{X}.quant_map": table,
        "norm.weight": np.ones(4, np.float16),
    }  # fmt: skip
    if nested:
        state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.375}
        inner = np.sort(RNG.uniform(-1, 1, 256)).astype(np.float32)
        outer = RNG.uniform(0.1, 1, -(-blocks // 256)).astype(np.float32)
        small = RNG.integers(0, 256, blocks).astype(np.uint8)
        scales = np.array(
            [inner[code] * outer[i // 256] + np.float32(0.375) for i, code in enumerate(small)], np.float32
        )
        tensors |= {
            f"{X}.absmax": small, f"{X}.nested_absmax": outer, f"{X}.nested_quant_map": inner,
        }  # fmt: skip
    else:
        scales = RNG.uniform(0.1, 1, blocks).astype(np.float32)
        tensors[f"{X}.absmax"] = scales
    tensors[STATE] = as_bytes(state)
    values = np.array([table[code] * scales[i // block] for i, code in enumerate(codes)], np.float32)
    return tensors, values.reshape(rows, columns)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("rows", "columns", "block"), [(300, 64, 64), (20, 96, 64), (6, 128, 32)])
def test_four_bits(tmp_path: Path, rows: int, columns: int, block: int, nested: bool) -> None:
    """Blocks run through the rows, whether or not they divide them."""
    tensors, values = four_bits(rows, columns, block, nested)
    found = opened(tmp_path, tensors)
    assert set(found) == {X, "norm.weight"}
    tensor = found[X]
    assert (tensor.type, tensor.shape) == ("NF4", (rows, columns))
    np.testing.assert_array_equal(tensor.dequantise(), values)
    np.testing.assert_array_equal(tensor.data.view(np.float32), values.reshape(-1))
    np.testing.assert_array_equal(tensor.take([5, 0]).dequantise(), values[[5, 0]])
    np.testing.assert_array_equal(tensor.rows(2, 6).take([3, 3]).dequantise(), values[[5, 5]])
    own = sum(each.nbytes for name, each in tensors.items() if name.startswith(X))
    assert tensor.nbytes == own
    assert tensor.rows(0, rows // 2).nbytes == own // 2
    with pytest.raises(BadCheckpoint, match=r"a\.weight is one matrix"):
        tensor.part(0)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.int8])
def test_codes_stored_in_numbers_of_another_type(tmp_path: Path, kind: Any) -> None:
    """As `bnb_4bit_quant_storage` has them for training on several machines."""
    tensors, values = four_bits(20, 96, 64, nested=False)
    tensor = opened(tmp_path, tensors | {X: tensors[X].reshape(-1).view(kind)[:, None]})[X]
    np.testing.assert_array_equal(tensor.dequantise(), values)


def test_int8(tmp_path: Path) -> None:
    codes = RNG.integers(-127, 128, (40, 64)).astype(np.int8)
    scales = RNG.uniform(0.1, 1, 40).astype(np.float32)
    plain: Tensors = {X: codes, "a.SCB": scales}
    for tensors in (plain, plain | {"a.weight_format": np.zeros((), np.uint8)}):
        found = opened(tmp_path, tensors)
        assert set(found) == {X}
        np.testing.assert_array_equal(found[X].dequantise(), codes * (scales * np.float32(1 / 127))[:, None])
    with pytest.raises(UnsupportedModel, match=r"a\.weight is in an order of GPU tiles"):
        opened(tmp_path, plain | {"a.weight_format": np.full((), 2, np.uint8)})
    with pytest.raises(BadCheckpoint, match=r"a\.SCB is F32 of shape \(3,\)"):
        opened(tmp_path, plain | {"a.SCB": scales[:3]})
    with pytest.raises(BadCheckpoint, match=r"a\.SCB is missing"):
        opened(tmp_path, {X: codes})


def state(**change: Any) -> Callable[[Tensors], Any]:
    def spoil(tensors: Tensors) -> None:
        tensors[STATE] = as_bytes(json.loads(tensors[STATE].tobytes()) | change)

    return spoil


def cut(name: str) -> Callable[[Tensors], Any]:
    return lambda tensors: tensors.update({name: np.ascontiguousarray(tensors[name][:-1])})


BROKEN: dict[str, tuple[Callable[[Tensors], Any], str]] = {
    "no state": (lambda t: t.pop(STATE), "bitsandbytes__nf4 is missing"),
    "no JSON": (cut(STATE), "is not valid JSON"),
    "a list": (lambda t: t.update({STATE: np.frombuffer(b"[1]", np.uint8)}), "an object was expected"),
    "no scales": (lambda t: t.pop(f"{X}.absmax"), r"absmax is missing"),
    "scales cut off": (cut(f"{X}.absmax"), r"absmax is U8 of shape"),
    "outer scales cut off": (cut(f"{X}.nested_absmax"), r"nested_absmax is F32 of shape \(0,\)"),
    "no table": (lambda t: t.pop(f"{X}.quant_map"), "quant_map is missing"),
    "table cut off": (cut(f"{X}.quant_map"), r"quant_map is F32 of shape \(15,\)"),
    "inner table cut off": (cut(f"{X}.nested_quant_map"), r"nested_quant_map is F32 of shape \(255,\)"),
    "codes cut off": (cut(X), r"a\.weight is U8 of shape"),
    "another shape": (state(shape=[7, 96]), r"a\.weight is U8 of shape"),
    "a shape of words": (state(shape="wide"), "gives the shape wide and the block size 64"),
    "no block": (state(blocksize=0), "the block size 0"),
    "no offset": (state(nested_offset=None), "the offset None"),
    "a block of scales": (state(nested_blocksize=-1), "the block size -1"),
    "a large block of scales": (state(nested_blocksize=1 << 40), "the block size 1099511627776"),
}


@pytest.mark.parametrize(("spoil", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_what_is_broken_is_named(tmp_path: Path, spoil: Callable[[Tensors], Any], message: str) -> None:
    tensors, _unused = four_bits(20, 96, 64, True)
    spoil(tensors)
    with pytest.raises(EngineError, match=message) as caught:
        opened(tmp_path, tensors)
    assert X in str(caught.value)
