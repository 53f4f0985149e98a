"""MLX folders, written as its documentation says; what is broken is refused in one sentence.

Files of MLX 0.32.4 (affine of 3, 4, 6 and 8 bits, mxfp4, mxfp8, nvfp4) were read to the last bit.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from engine.backends.cpu.backend import CpuBackend
from engine.errors import BadCheckpoint, EngineError, UnsupportedModel
from engine.tensors import Floats, RawTensor
from engine.weights import open_checkpoint
from tests.engine.models.oracle import load, logits
from tests.tiny import tiny_weights, write_folder
from tests.tiny_packed import SIZES, Tensors, bit_rows

RNG = np.random.default_rng(5)
N, K = 8, 128
LEVELS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def affine(bits: int, group: int, rows: int = N, columns: int = K) -> tuple[Tensors, Floats]:
    """A matrix's tensors, and the values they stand for."""
    codes = RNG.integers(0, 1 << bits, (rows, columns))
    scales = RNG.uniform(0.01, 0.1, (rows, columns // group)).astype(np.float16)
    biases = RNG.uniform(-1, 0, scales.shape).astype(np.float16)
    wide = [np.repeat(each.astype(np.float32), group, axis=1) for each in (scales, biases)]
    values = codes.astype(np.float32) * wide[0] + wide[1]
    return {
        "a.weight": bit_rows(codes, bits).view(np.uint32), "a.scales": scales, "a.biases": biases,
    }, values  # fmt: skip


def opened(
    folder: Path, tensors: Tensors, key: str = "quantization", **settings: Any
) -> dict[str, RawTensor]:
    (folder / "config.json").write_text(json.dumps({key: settings}))
    save_file(tensors | {"norm.weight": np.ones(4, np.float16)}, folder / "model.safetensors")
    found = dict(open_checkpoint(folder).tensors)
    assert found.pop("norm.weight").shape == (4,)
    return found


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_metal(tmp_path: Path, bits: int) -> None:
    """Against transformers, which calls biases "qbiases" and states no bits where they are 4."""
    import torch
    from transformers.integrations.metal_quantization import _affine_dequantize_tensor

    tensors, _values = affine(bits, 64)
    parts = [torch.from_numpy(values.copy()) for values in tensors.values()]
    tensors["a.qbiases"] = tensors.pop("a.biases")
    settings = {"quant_method": "metal", "group_size": 64} | ({} if bits == 4 else {"bits": bits})
    found = opened(tmp_path, tensors, "quantization_config", **settings)
    expected = _affine_dequantize_tensor(*parts, group_size=64, bits=bits)
    np.testing.assert_array_equal(found["a.weight"].dequantise(), expected.numpy())


@pytest.mark.parametrize(("bits", "group"), [(2, 32), (3, 64), (4, 64), (4, 32), (5, 128), (6, 32), (8, 64)])
def test_affine(tmp_path: Path, bits: int, group: int) -> None:
    tensors, values = affine(bits, group)
    for key in ("quantization", "quantization_config"):
        found = opened(tmp_path, tensors, key, bits=bits, group_size=group)
        assert set(found) == {"a.weight"}
    tensor = found["a.weight"]
    np.testing.assert_array_equal(tensor.dequantise(), values)
    np.testing.assert_array_equal(tensor.rows(2, 7).take([4, 0]).dequantise(), values[[6, 2]])
    assert tensor.nbytes == sum(each.nbytes for each in tensors.values())
    assert tensor.type == f"AFFINE{bits}_{group}_F16"
    some = tensor.rows(1, 6).take([3, 3, 0])
    blocks = some.data.reshape(3, K // group, group + 8)
    scales, biases = (blocks[..., at : at + 4].copy().view(np.float32) for at in (group, group + 4))
    kept = blocks[..., :group].astype(np.float32) * scales + biases
    np.testing.assert_array_equal(kept.reshape(3, K), values[[4, 4, 1]])


def test_settings_of_a_single_matrix(tmp_path: Path) -> None:
    tensors, values = affine(8, 32)
    own: dict[str, Any] = {"a": {"bits": 8, "group_size": 32}, "b": False}
    found = opened(tmp_path, tensors, bits=4, group_size=64, **own)
    np.testing.assert_array_equal(found["a.weight"].dequantise(), values)


@pytest.mark.parametrize("mode", ["mxfp4", "mxfp8", "nvfp4"])
def test_floats(tmp_path: Path, mode: str) -> None:
    numbers = RNG.integers(0, 126, (N, K // 2 if mode != "mxfp8" else K)).astype(np.uint8)
    group = 16 if mode == "nvfp4" else 32
    scales = RNG.integers(60, 120, (N, K // group)).astype(np.uint8)
    eight = [2.0 ** ((i >> 3) - 7) * (8 + (i & 7)) / 8 if i >> 3 else (i & 7) / 512 for i in range(127)]
    table = np.array(eight, np.float32)
    if mode == "mxfp8":
        codes = table[numbers]
    else:
        codes = LEVELS[np.stack([numbers & 15, numbers >> 4], axis=2).reshape(N, K)]
    factors = table[scales] if mode == "nvfp4" else np.exp2(scales.astype(np.float32) - 127)
    tensors: Tensors = {"a.weight": numbers.view(np.uint32), "a.scales": scales}
    tensor = opened(tmp_path, tensors, bits=4, group_size=group, mode=mode)["a.weight"]
    assert tensor.shape == (N, K)
    np.testing.assert_array_equal(tensor.dequantise(), codes * np.repeat(factors, group, axis=1))


def stacked(tensors: Tensors, count: int) -> Tensors:
    return {name: np.stack([each] * count) for name, each in tensors.items()}


@pytest.mark.parametrize(("bits", "kind"), [(4, "AFFINE4_64_F16"), (6, "AFFINE6_64_F16")])
def test_a_stack_of_experts(tmp_path: Path, bits: int, kind: str) -> None:
    matrices = [affine(bits, 64) for _unused in range(3)]
    name = "x.switch_mlp.up_proj"
    tensors = {
        part.replace("a", name, 1): np.stack([each[part] for each, _unused in matrices])
        for part in matrices[0][0]
    }
    own: dict[str, Any] = {name: {"bits": bits, "group_size": 64}}
    found = opened(tmp_path, tensors, bits=4, group_size=32, mode="mxfp4", **own)
    assert set(found) == {"x.experts.up_proj.weight"}
    (stack,) = found.values()
    values = np.stack([each for _unused, each in matrices])
    assert (stack.type, stack.shape) == (kind, values.shape)
    assert stack.nbytes == sum(each.nbytes for each in tensors.values())
    np.testing.assert_array_equal(stack.dequantise(), values)
    np.testing.assert_array_equal(stack.part(2).rows(1, 3).dequantise(), values[2, 1:3])
    some = stack.rows(1, 3).take([1, 0])
    np.testing.assert_array_equal(some.dequantise(), values[[2, 1]])
    assert some.nbytes == stack.nbytes * 2 // 3
    assert bytes(stack.data) == b"".join(bytes(stack.part(i).data) for i in range(3))


@pytest.mark.parametrize("mode", ["mxfp4", "nvfp4"])
def test_a_stack_of_floats(tmp_path: Path, mode: str) -> None:
    """The same as each matrix alone."""
    numbers = RNG.integers(0, 256, (2, N, K // 2)).astype(np.uint8).view(np.uint32)
    group = 16 if mode == "nvfp4" else 32
    scales = RNG.integers(60, 120, (2, N, K // group)).astype(np.uint8)
    settings: dict[str, Any] = {"bits": 4, "group_size": group, "mode": mode}
    alone = [
        opened(tmp_path, {"a.weight": numbers[i], "a.scales": scales[i]}, **settings)["a.weight"].dequantise()
        for i in range(2)
    ]
    stack = opened(tmp_path, {"a.weight": numbers, "a.scales": scales}, **settings)["a.weight"]
    np.testing.assert_array_equal(stack.dequantise(), np.stack(alone))


@pytest.mark.slow
def test_a_whole_model_computes_with_what_it_means(tmp_path: Path) -> None:
    """The reference to the last bit of the decoded weights, the CPU backend nearly so."""
    folder = write_folder(tmp_path / "m", SIZES)
    stored: Tensors = {}
    for name, values in tiny_weights(SIZES).items():
        stem = name.removesuffix("weight")
        if "_proj." in name or "embed" in name:
            parts, _unused = affine(4, 64, *values.shape)
            parts |= {part: parts[part] * np.float16(0.1) for part in ("a.scales", "a.biases")}
            stored |= {part.replace("a.", stem, 1): each for part, each in parts.items()}
        else:
            stored[name] = values
    save_file(stored, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization": {"bits": 4, "group_size": 64}}))
    meant = {name: tensor.dequantise() for name, tensor in open_checkpoint(folder).tensors.items()}
    ids = list(range(3, 30))
    found, quick = logits(load(folder), ids), load(folder, CpuBackend(2))
    near = logits(quick, ids)
    quick.close()
    save_file(meant, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    np.testing.assert_array_equal(found, logits(load(folder), ids))
    assert np.abs(near - found).max() < 1e-2 * np.abs(found).max()


def changed(tensors: Tensors, **change: Any) -> Tensors:
    own = {f"a.{name}": np.ascontiguousarray(each) for name, each in change.items()}
    return tensors | own


def test_what_is_broken_is_named(tmp_path: Path) -> None:
    tensors, _unused = affine(4, 64)
    cases: list[tuple[Tensors, dict[str, Any], type[EngineError], str]] = [
        (tensors, {"bits": 7}, UnsupportedModel, "MLX packed a as 'affine' of 7 bits"),
        (tensors, {"mode": "lut"}, UnsupportedModel, "MLX packed a as 'lut' of 4 bits"),
        (changed(tensors, weight=tensors["a.weight"][None]), {}, BadCheckpoint, r"a\.scales .*3 dimensions"),
        (stacked(tensors, 2) | {"a.scales": np.ones((3, N, 2), np.float16)}, {}, BadCheckpoint,
         "numbers of a stack of 2 matrices"),
        ({name: each[:0] for name, each in stacked(tensors, 1).items()}, {}, BadCheckpoint, "stack of 0"),
        (stacked(tensors, 2), {"mode": "mxfp4"}, BadCheckpoint, r"a\.scales is F16"),
        (stacked(tensors, 2) | {"a.scales": np.ones((2, N, 3), np.float16)}, {}, BadCheckpoint,
         r"equal groups of 128.* of a\.0"),
        (changed(tensors, scales=tensors["a.scales"][:5]), {}, BadCheckpoint, r"a\.scales is F16"),
        (changed(tensors, scales=np.ones((N, 3), np.float16)), {}, BadCheckpoint, "equal groups of 128"),
        (changed(tensors, biases=np.ones((N, 1), np.float16)), {}, BadCheckpoint, r"a\.biases is F16"),
        (tensors, {"bits": 3}, BadCheckpoint, r"a\.scales is F16"),
        ({name: tensors[name] for name in ("a.weight", "a.scales")}, {}, BadCheckpoint, "biases is missing"),
        ({name: tensors[name] for name in ("a.biases", "a.scales")}, {}, BadCheckpoint, "weight is missing"),
        (tensors, {"mode": "mxfp4"}, BadCheckpoint, r"a\.scales is F16"),
        (
            changed(tensors, scales=np.ones((N, 3), np.uint8)), {"mode": "mxfp4"}, BadCheckpoint,
            r"a\.scales of shape \(8, 3\).* for 32 inputs",
        ),
    ]  # fmt: skip
    for spoiled, settings, error, message in cases:
        with pytest.raises(error, match=message):
            opened(tmp_path, spoiled, **{"bits": 4, "group_size": 64, **settings})
    infinite = changed(tensors, scales=np.full((N, 2), np.inf, np.float16))
    tensor = opened(tmp_path, infinite, bits=4, group_size=64)["a.weight"]
    with pytest.raises(BadCheckpoint, match=r"The scales of a\.weight hold"):
        _ = tensor.data
