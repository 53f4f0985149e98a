"""GPTQ, AWQ, EXL2 and compressed-tensors folders against packers written bit by bit; what is broken is
refused in one sentence.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from engine.backends.cpu.weight import CpuWeight
from engine.backends.reference.backend import ReferenceBackend
from engine.errors import BadCheckpoint, EngineError, UnsupportedModel
from engine.models.load import survey
from engine.weights import open_checkpoint
from engine.weights.packed.bitstream import unpack_codes, unpack_nibbles
from engine.weights.packed.grouped import GroupedTensor
from tests.engine.backends.cpu.test_weight_types import unpacked
from tests.tiny_packed import (
    SIZES,
    Packer,
    Tensors,
    awq,
    awq_fast,
    bit_columns,
    bit_rows,
    compressed,
    exl2,
    gptq,
    marlin,
    write_packed,
)

Packing = tuple[Packer, dict[str, Any]]
X = "model.layers.0.mlp.down_proj"

PACKINGS: dict[str, Packing] = {
    "gptq 2 bits": gptq(2, 32),
    "gptq 3 bits, one group": gptq(3, -1),
    "gptq 4 bits by activation": gptq(4, 64, by_activation=True),
    "gptq 8 bits, float32 scales, by activation": gptq(8, 32, by_activation=True, kind=np.float32),
    "gptq symmetric": gptq(4, 128, symmetric=True),
    "gptq v2": gptq(4, 32, version=2),
    "gptq v2, 3 bits": gptq(3, 32, version=2),
    "gptq v2 by transformers 5": (
        gptq(4, 32, version=2)[0],
        {"quant_method": "gptq", "bits": 4, "group_size": 32, "format": "gptq_v2"},
    ),
    "gptq without index": gptq(4, 64, index=False),
    "gptq, a short last group": gptq(4, 48),
    "auto-round": (
        gptq(4, 64, version=2, index=False)[0],
        {"quant_method": "auto-round", "bits": 8, "group_size": 32, "sym": False},
    ),
    "auto-round by gptq": (
        gptq(2, 32, index=False)[0],
        {
            "quant_method": "intel/auto-round",
            "bits": 2,
            "group_size": 32,
            "backend": "auto_round:gptq:exllamav2",
        },
    ),
    "auto-round by awq": (
        awq()[0],
        {"quant_method": "auto-round", "bits": 4, "group_size": 32, "packing_format": "auto_round:auto_awq"},
    ),
    "awq": awq(),
    "awq, one group": awq(group=-1),
    "awq gemv": awq("gemv"),
    "awq gemv 64": awq("gemv", 64),
    "awq gemv by GPTQModel": (
        awq("gemv", 64)[0],
        {"quant_method": "awq", "bits": 4, "group_size": 64, "checkpoint_format": "gemv"},
    ),
    "awq gemv, one group": awq("gemv", -1),
    "marlin": marlin(64),
    "marlin, one group, as old tools say": marlin(-1, old=True),
    "exl2": exl2(),
    "exl2, all widths": exl2(((8, 1), (6, 1), (5, 1), (3, 1), (2, 0))),
    "exl2, in order": exl2(((5, 1), (4, 0)), 96, shuffled=False),
    "exl2, one width": exl2(((8, 0),), 128),
    "compressed 4": compressed(),
    "compressed 4, zeros": compressed(symmetric=False),
    "compressed 4 by activation": compressed(by_activation=True),
    "compressed 2": compressed(2, 64),
    "compressed 3, zeros": compressed(3, 32, symmetric=False),
    "compressed 5 by activation": compressed(5, by_activation=True),
    "compressed 6": compressed(6, -1),
    "compressed 8, one group": compressed(8, -1, symmetric=False),
    "compressed int": compressed(8, -1, packed=False),
    "compressed int, zeros": compressed(8, 32, symmetric=False, packed=False),
}
QUICK = (
    "gptq 3 bits, one group", "gptq 4 bits by activation", "gptq 8 bits, float32 scales, by activation",
    "gptq v2, 3 bits", "gptq, a short last group", "auto-round by awq", "awq, one group", "awq gemv 64",
    "exl2, all widths", "compressed 3, zeros", "compressed 5 by activation", "compressed int, zeros",
)  # fmt: skip
"""Every layout of codes, scales and zero points once; the others are slow together."""
EXL2_NAME = "output.safetensors"


def file_name(packing: Packing) -> str:
    return EXL2_NAME if packing[1]["quant_method"] == "exl2" else "model.safetensors"


@pytest.mark.parametrize(
    "packing",
    [
        pytest.param(packing, id=name, marks=[] if name in QUICK else [pytest.mark.slow])
        for name, packing in PACKINGS.items()
    ],
)
def test_every_number_is_what_the_packer_meant(tmp_path: Path, packing: Packing) -> None:
    """Whole matrices, and rows of them in any order, to the last bit; sizes add up to the file's."""
    meant = write_packed(tmp_path, packing, head=True, file=file_name(packing))
    checkpoint = open_checkpoint(tmp_path)
    assert set(checkpoint.tensors) == set(meant)
    order = np.random.default_rng(1).permutation(SIZES.kv_heads * SIZES.head_dim)[:40]
    for name, values in meant.items():
        tensor = checkpoint.tensors[name]
        assert tensor.shape == values.shape
        assert np.array_equal(tensor.dequantise(), values), name
        if values.ndim == 2:
            assert np.array_equal(tensor.take(order).rows(3, 21).dequantise(), values[order][3:21])
            assert np.array_equal(tensor.rows(5, 50).take([7, 7, 0]).dequantise(), values[[12, 12, 5]])
    stored = sum(tensor.nbytes for tensor in load_file(tmp_path / file_name(packing)).values())
    assert sum(tensor.nbytes for tensor in checkpoint.tensors.values()) == stored
    down = checkpoint.tensors[X + ".weight"]
    assert isinstance(down, GroupedTensor)
    with pytest.raises(BadCheckpoint, match=f"{X}.weight is one matrix, where the model's headers call for"):
        down.part(0)
    codes = sum(piece.nbytes for piece in down.pieces())
    assert down.nbytes / 2 < codes <= down.nbytes, "scales and zero points take less"
    pieces = np.concatenate([piece.dequantise() for piece in down.pieces()], axis=1)
    assert np.array_equal(
        pieces if down.order is None else pieces[:, np.argsort(down.order)], meant[X + ".weight"]
    )


@given(bits=st.sampled_from([2, 3, 4, 5, 6, 8]), count=st.integers(1, 70), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=80)
def test_streams_of_bits(bits: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 1 << bits, (seed % 20, count))
    order = rng.integers(0, count, seed % 90)
    rows, columns = bit_rows(codes, bits).view(np.uint32), bit_columns(codes.T, bits).view(np.uint32)
    wide = np.repeat(rows, 2, axis=1)
    for words in (rows, columns.T, wide[:, ::2]):
        assert np.array_equal(unpack_codes(words, bits, count), codes)
        assert np.array_equal(unpack_codes(words, bits, count, order), codes[:, order])


def test_nibbles_of_columns() -> None:
    codes = np.random.default_rng(0).integers(0, 16, (5, 24))
    words, chosen = bit_rows(codes, 4).view(np.uint32), np.array([23, 0, 7, 8, 8, 16])
    assert np.array_equal(unpack_nibbles(words, chosen // 8, chosen % 8), codes[:, chosen].T)
    assert unpack_nibbles(words, chosen[:0], chosen[:0]).shape == (0, 5)


def test_the_padding_of_exl2_is_dropped_from_outputs_and_short_groups(tmp_path: Path) -> None:
    tiny = SIZES.but(vocab_size=307, ffn_width=200)
    meant = write_packed(tmp_path, exl2(((5, 1), (3, 0)), 64), tiny, head=True, file=EXL2_NAME)
    assert np.array_equal(
        open_checkpoint(tmp_path).tensors["lm_head.weight"].dequantise(), meant["lm_head.weight"]
    )
    down = open_checkpoint(tmp_path).tensors[X + ".weight"]  # its last group holds 8 inputs
    assert np.array_equal(down.dequantise(), meant[X + ".weight"])


@pytest.mark.parametrize("symmetric", [True, False])
def test_stacks_of_compressed_tensors(tmp_path: Path, symmetric: bool) -> None:
    """Matrices of a stack have a dimension in front."""
    pack, config = compressed(4, 32, symmetric=symmetric)
    rng = np.random.default_rng(3)
    drawn = [
        pack("a.experts.up", rng.standard_normal((40, 64)).astype(np.float32), rng) for _each in range(3)
    ]
    tensors = {name: np.stack([each[name] for each, _values in drawn]) for name in drawn[0][0]}
    tensors["a.experts.up.weight_shape"] = np.array([3, 40, 64])
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": config}))
    save_file(tensors, tmp_path / "model.safetensors")
    stack = open_checkpoint(tmp_path).tensors["a.experts.up.weight"]
    assert (stack.shape, stack.type) == ((3, 40, 64), "GROUPED4_32")
    meant = np.stack([values for _each, values in drawn])
    np.testing.assert_array_equal(stack.dequantise(), meant)
    np.testing.assert_array_equal(stack.part(2).take([9, 1]).dequantise(), meant[2, [9, 1]])
    short = tensors["a.experts.up.weight_scale"][:2]
    save_file(tensors | {"a.experts.up.weight_scale": short}, tmp_path / "model.safetensors")
    with pytest.raises(BadCheckpoint, match="a stack of 3 matrices"):
        open_checkpoint(tmp_path)


def test_settings_in_files_of_their_own(tmp_path: Path) -> None:
    """As older tools wrote them."""
    for method, packing, name, own in (
        (
            "gptq",
            gptq(4, 64, index=False),
            "quantize_config.json",
            {"bits": 4, "group_size": 64, "desc_act": False},
        ),
        (
            "awq",
            awq("gemv", 64),
            "quant_config.json",
            {"w_bit": 4, "q_group_size": 64, "zero_point": True, "version": "GEMV"},
        ),
    ):
        meant = write_packed(tmp_path / method, packing)
        config = json.loads((tmp_path / method / "config.json").read_text())
        del config["quantization_config"]
        (tmp_path / method / "config.json").write_text(json.dumps(config))
        (tmp_path / method / name).write_text(json.dumps(own))
        assert np.array_equal(
            open_checkpoint(tmp_path / method).tensors[X + ".weight"].dequantise(), meant[X + ".weight"]
        )


def test_exl2_in_several_files_beside_an_index_of_another_model(tmp_path: Path) -> None:
    meant = write_packed(tmp_path, exl2(), file=EXL2_NAME)
    tensors = load_file(tmp_path / EXL2_NAME)
    (tmp_path / EXL2_NAME).unlink()
    names = sorted(tensors)
    for i in range(2):
        save_file(
            {name: tensors[name] for name in names[i::2]},
            tmp_path / f"output-0000{i + 1}-of-00002.safetensors",
        )
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "model-00001-of-00004.safetensors"}})
    )
    assert np.array_equal(open_checkpoint(tmp_path).tensors[X + ".weight"].dequantise(), meant[X + ".weight"])
    (tmp_path / "output-00002-of-00002.safetensors").unlink()
    with pytest.raises(BadCheckpoint, match="1 of 2 files"):
        open_checkpoint(tmp_path)
    save_file(tensors, tmp_path / "output-00002-of-00002.safetensors")
    with pytest.raises(BadCheckpoint, match=r"the same tensor in several output\*\.safetensors files"):
        open_checkpoint(tmp_path)


Spoil = Callable[[Tensors], Any]


def without(part: str) -> Spoil:
    return lambda tensors: tensors.pop(f"{X}.{part}")


def put(part: str, change: Callable[[Any], Any]) -> Spoil:
    return lambda tensors: tensors.update(
        {f"{X}.{part}": np.ascontiguousarray(change(tensors[f"{X}.{part}"]))}
    )


def both(one: Spoil, other: Spoil) -> Spoil:
    return lambda tensors: (one(tensors), other(tensors))


def set_first(value: int) -> Callable[[Any], Any]:
    def change(numbers: Any) -> Any:
        numbers[0] = value
        return numbers

    return change


BROKEN: dict[str, tuple[Packing, Spoil, str]] = {
    "gptq without zeros": (gptq(), without("qzeros"), rf"{X}\.qzeros is missing"),
    "gptq without scales": (gptq(), without("scales"), rf"{X}\.scales is missing"),
    "gptq: a group too large": (gptq(), put("g_idx", set_first(99)),
    rf"{X}\.g_idx holds the group 99.*8 groups"),
    "gptq: a group below zero": (gptq(), put("g_idx", set_first(-3)), rf"{X}\.g_idx holds the group -3"),
    "gptq: zeros of another matrix": (gptq(), put("qzeros", lambda z: z[:, :3]),
    rf"{X}\.qzeros is I32 of shape \(8, 3\)"),
    "gptq: scales too short": (gptq(), put("scales", lambda s: s[:, :5]),
    rf"{X}\.scales is F16 of shape \(8, 5\)"),
    "gptq: words cut off": (gptq(), put("qweight", lambda q: q[:5]),
    rf"{X}\.qweight is I32 of shape \(5, 128\)"),
    "gptq: no words": (gptq(), put("qweight", lambda q: q.astype(np.float32)), rf"{X}\.qweight is F32"),
    "gptq: no dimensions": (gptq(), put("scales", lambda s: s.reshape(-1)),
    rf"{X}\.scales is F16 of shape \(1024,\)"),
    "gptq: no groups": (gptq(), put("scales", lambda s: s[:0]), rf"{X}\.(qzeros|scales)"),
    "awq without zeros": (awq(), without("qzeros"), rf"{X}\.qzeros is missing"),
    "awq: scales too short": (awq(), put("scales", lambda s: s[:, :8]),
    rf"{X}\.scales is F16 of shape \(8, 8\)"),
    "awq: groups that do not divide": (awq(), put("scales", lambda s: s[:7]), rf"{X}\."),
    "awq: groups of different sizes": (awq(), both(put("scales", lambda s: s[:7]),
    put("qzeros", lambda z: z[:7])), r"scales for equal groups of 256 inputs"),
    "gptq: more groups than fit": (gptq(index=False), both(put("scales", lambda s: np.tile(s, (13, 1))[:100]),
    put("qzeros", lambda z: np.tile(z, (13, 1))[:100])), r"scales for groups of 256 inputs"),
    "exl2: outputs cut off": (exl2(), put("q_weight", lambda q: q[:, :-4]), r"a multiple of 32 outputs"),
    "compressed: groups of different sizes": (compressed(), put("weight_scale", lambda s: s[:, :7]),
    r"scales for equal groups of 256 inputs"),
    "compressed: zeros of another kind": (compressed(symmetric=False),
    put("weight_zero_point", lambda z: np.zeros((3, 3), np.int8)), r"I8 of shape"),
    "awq gemv: zeros cut off": (awq("gemv"), put("qzeros", lambda z: z[:, :0]), rf"{X}\.(qzeros|scales)"),
    "exl2: an unknown width": (exl2(), put("q_groups", set_first(7)), rf"{X}\.q_groups gives group 0 7 bits"),
    "exl2: a lying start": (exl2(), put("q_groups", lambda g: np.roll(g, 1)),
    rf"{X}\.q_groups gives group 0"),
    "exl2: words past the end": (exl2(), put("q_weight", lambda q: q[:9]), rf"{X}\.q_groups gives group"),
    "exl2: too few words": (exl2(), put("q_weight", lambda q: q[:-2]), r"inputs, but 256 were expected"),
    "exl2: no permutation": (exl2(), put("q_invperm", set_first(300)),
    rf"{X}\.q_invperm is not a permutation of 256"),
    "exl2: scales of another matrix": (exl2(), put("q_scale", lambda s: s[:2]),
    rf"{X}\.q_scale is I32 of shape \(2,"),
    "exl2 without maxima": (exl2(), without("q_scale_max"), rf"{X}\.q_scale_max is missing"),
    "marlin: scales of another matrix": (marlin(64), put("s", lambda s: s[:, :64]),
    rf"{X}\.B is I32 of shape"),
    "marlin: groups of other inputs": (marlin(64), put("s", lambda s: s[:3]), rf"{X}\.s is F16 of shape"),
    "marlin without scales": (marlin(64), without("s"), rf"{X}\.s is missing"),
    "gemv_fast: rows cut off": (awq_fast(), put("qweight", lambda q: q[:9]), rf"{X}\.scales is F16 of shape"),
    "gemv_fast: zeros cut off": (awq_fast(), put("scaled_zeros", lambda z: z[:3]),
    rf"{X}\.scaled_zeros is F16 of shape"),
    "gemv_fast: half a round": (awq_fast(), put("qweight", lambda q: q[:, :80]),
    rf"{X}\.qweight is I16 of shape"),
    "compressed without scales": (compressed(), without("weight_scale"), rf"{X}\.weight_scale is missing"),
    "compressed: a lying shape": (compressed(), put("weight_shape", set_first(5)),
    rf"{X}\.weight_packed is I32"),
    "compressed: a group too large": (compressed(by_activation=True), put("weight_g_idx", set_first(70)),
    r"_g_idx holds groups"),
    "compressed: zeros cut off": (compressed(symmetric=False), put("weight_zero_point", lambda z: z[:3]),
    r"zero_point is I32"),
    "compressed: scales cut off": (compressed(), put("weight_scale", lambda s: s[:9]),
    rf"{X}\.weight_scale is F16 of shape \(9, 8\)"),
}  # fmt: skip


@pytest.mark.parametrize("group", [32, 64])
def test_scaled_zeros(tmp_path: Path, group: int) -> None:
    """AWQ's "gemv_fast", to the last bit, as codes with a scale and a bias."""
    meant = write_packed(tmp_path, awq_fast(group))
    tensors = open_checkpoint(tmp_path).tensors
    for name, values in meant.items():
        tensor = tensors[name]
        np.testing.assert_array_equal(tensor.dequantise(), values)
        if name.endswith("proj.weight"):
            assert tensor.type == f"AFFINE4_{group}_F16"
            np.testing.assert_array_equal(tensor.take([9, 2, 2, 31]).dequantise(), values[[9, 2, 2, 31]])
            np.testing.assert_allclose(unpacked(CpuWeight(tensor)), values, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("packing", "spoil", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_what_is_broken_is_refused_by_name(
    tmp_path: Path, packing: Packing, spoil: Spoil, message: str
) -> None:
    write_packed(tmp_path, packing, file=file_name(packing))
    tensors = dict(load_file(tmp_path / file_name(packing)))
    spoil(tensors)
    save_file(tensors, tmp_path / file_name(packing))
    with pytest.raises(BadCheckpoint, match=message) as caught:
        open_checkpoint(tmp_path)
    assert len(str(caught.value)) < 500


def test_zero_points_that_no_code_can_have_are_refused(tmp_path: Path) -> None:
    """Kernels count on them: those of all other formats are codes themselves."""
    write_packed(tmp_path, compressed(symmetric=False))
    file = tmp_path / file_name(compressed(symmetric=False))
    tensors = dict(load_file(file))
    for zero in (8, 9):
        tensors[f"{X}.weight_zero_point"] = np.full((128, 8), -zero, np.int8)
        save_file(tensors, file)
        matrix = open_checkpoint(tmp_path).tensors[f"{X}.weight"]
        if zero == 8:
            assert matrix.dequantise().shape == matrix.shape
            continue
        with pytest.raises(BadCheckpoint, match="zero points from -8 to 8 were expected"):
            matrix.dequantise()


UNREADABLE: dict[str, tuple[Packing, dict[str, Any], str]] = {
    "gptq of another tool": (gptq(), {"checkpoint_format": "bitblas"}, "'bitblas'.*gptq, gptq_v2, marlin"),
    "5 bits": (gptq(index=False), {"bits": 5}, "5 bits; 2, 3, 4, 8"),
    "exllama": (awq(), {"version": "exllama"}, "'exllama'.*gemm, gemv, gemv_fast"),
    "awq of 3 bits": (awq(), {"bits": 3}, "3 bits"),
    "marlin-24": (compressed(), {"format": "marlin-24"}, "marlin-24.*pack-quantized, int-quantized"),
    "auto-round floats": (
        gptq(),
        {"quant_method": "auto-round", "data_type": "mx_fp"},
        "AutoRound packed the weights as '' of the type 'mx_fp'",
    ),
    "auto-round's other packings": (
        gptq(),
        {"quant_method": "auto-round", "packing_format": "auto_round:itrex"},
        "'auto_round:itrex'",
    ),
    "sparse": (compressed(), {"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparse-24-bitmask"),
    "rotated": (compressed(), {"transform_config": {"config_groups": {"R3": {}}}}, "transforms"),
    "no method": (
        compressed(),
        {"quant_method": "spqr"},
        "'spqr'.*gptq, awq, exl2, exl3, compressed-tensors",
    ),
}


@pytest.mark.parametrize(("packing", "change", "message"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_other_layouts_are_refused_by_name(
    tmp_path: Path, packing: Packing, change: dict[str, Any], message: str
) -> None:
    write_packed(tmp_path, (packing[0], packing[1] | change))
    with pytest.raises(UnsupportedModel, match=message):
        open_checkpoint(tmp_path)


@given(data=st.data())
@settings(max_examples=25)
def test_any_numbers_in_the_small_tensors_are_read_or_refused(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No other error than the engine's own, whatever groups, permutations and shapes claim."""
    folder = tmp_path_factory.mktemp("fuzz")
    kind = data.draw(st.sampled_from(["q_groups", "q_invperm", "g_idx", "weight_shape"]))
    packing = {"q_groups": exl2(), "q_invperm": exl2(), "g_idx": gptq(4, 32), "weight_shape": compressed()}[
        kind
    ]
    write_packed(
        folder,
        packing,
        SIZES.but(layers=1, width=64, heads=2, kv_heads=1, ffn_width=64),
        file=file_name(packing),
    )
    tensors = dict(load_file(folder / file_name(packing)))
    part = tensors[f"{X}.{kind}"].copy()
    for _ in range(data.draw(st.integers(1, 3))):
        limits = np.iinfo(part.dtype)
        value = data.draw(st.one_of(st.integers(-2, 130), st.integers(int(limits.min), int(limits.max))))
        part[data.draw(st.integers(0, part.size - 1))] = value
    tensors[f"{X}.{kind}"] = part
    save_file(tensors, folder / file_name(packing))
    message = ""
    try:
        checkpoint = open_checkpoint(folder)
        # the tensors alone can claim another shape; the model's headers refuse it
        survey(checkpoint, ReferenceBackend())
        assert checkpoint.tensors[X + ".weight"].dequantise().shape == (64, 64)
    except EngineError as error:
        message = str(error)
    assert not message or X in message
