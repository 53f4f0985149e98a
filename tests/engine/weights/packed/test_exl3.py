"""EXL3 folders against an independent decoder in Python; what is broken is refused in one sentence."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from engine.backends.cpu.backend import CpuBackend
from engine.errors import BadCheckpoint
from engine.models.load import survey
from engine.tensors import RawTensor
from engine.weights import open_checkpoint
from engine.weights.facts import quantisation_name
from engine.weights.packed.padded import without_padding
from engine.weights.packed.trellis import codebook
from engine.weights.transform.quantize import quantise
from tests.engine.models.oracle import SixteenBits, assert_near_exact, load, logits
from tests.tiny import TINY, Floats, tiny_config, tiny_weights
from tests.tiny_exl3 import CODEBOOKS, Tensors, exl3, tile, value

SETTINGS = {"quant_method": "exl3", "version": "1.4.1", "bits": 3.5, "head_bits": 6}
GOLDEN = {
    ("3inst", 1): "223219de7973cb0f", ("3inst", 2): "1e58de798745b22b", ("3inst", 3): "077c3a7619bc1f12",
    ("3inst", 4): "565433bca3a67f5d", ("3inst", 5): "f5060b7d3fead8e3", ("3inst", 6): "7cb40c4b1f53c464",
    ("3inst", 7): "dc7b0b5038b3c91e", ("3inst", 8): "01474ace7fa1c2e2", ("mcg", 1): "acd31b34a0584e17",
    ("mcg", 2): "357567be8728eb00", ("mcg", 3): "8a8a15bb64847aee", ("mcg", 4): "f80900c81cb5dee3",
    ("mcg", 5): "db49e753abc3bd48", ("mcg", 6): "f66d7d6f5659029f", ("mcg", 7): "f3f32e07b093b115",
    ("mcg", 8): "de31292d5f8acbf8", ("mul1", 1): "bedf942f488488a3", ("mul1", 2): "a57173fbd54341e4",
    ("mul1", 3): "415420d5d59d5f2b", ("mul1", 4): "32ae1812fa6a2dc6", ("mul1", 5): "553a4b13334c2ecb",
    ("mul1", 6): "b1e9646b51bc222d", ("mul1", 7): "b1f6bf2019bd4cec", ("mul1", 8): "ca7d34713cfcf8c1",
}  # fmt: skip
"""SHA-256 of a tile's values in fp16, thread by thread, as ExLlamaV3's kernel source (`exl3_dq.cuh`, compiled
for a processor) reads the words 2654435769 (i + 1).
"""
ROUNDING = 3e-7
"""14 additions and 3 products in float32 round by at most 2^-24 of about the largest value each; measured up
to 6e-8 of it.
"""


def opened(folder: Path, tensors: Tensors, **config: Any) -> dict[str, RawTensor]:
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": SETTINGS}))
    save_file(tensors, folder / "model.safetensors")
    return dict(open_checkpoint(folder).tensors)


def assert_decoded(found: Floats, meant: Floats) -> None:
    np.testing.assert_allclose(found, meant, rtol=0, atol=ROUNDING * np.abs(meant).max())


@pytest.mark.parametrize(("name", "bits"), GOLDEN, ids=str)
def test_tiles_are_read_as_by_exllamav3s_kernels(name: str, bits: int) -> None:
    values = tile(np.arange(1, 8 * bits + 1, dtype=np.uint32) * np.uint32(2654435769), name)
    threads = [[values[r + 2 * (t % 4), c + t // 4] for c in (0, 8) for r in (0, 1, 8, 9)] for t in range(32)]
    found = hashlib.sha256(np.array(threads, "<f2").tobytes()).hexdigest()
    assert found[:16] == GOLDEN[name, bits]


@pytest.mark.parametrize("name", CODEBOOKS)
def test_codebooks(name: str) -> None:
    np.testing.assert_array_equal(codebook(name), [value(window, name) for window in range(1 << 16)])


@pytest.mark.parametrize("name", CODEBOOKS)
@pytest.mark.parametrize("bits", range(1, 9))
def test_values(tmp_path: Path, bits: int, name: str) -> None:
    tensors, meant = exl3("a", 128, 128, np.random.default_rng(bits), bits, name)
    found = opened(tmp_path, tensors | {"norm.weight": np.ones(4, np.float32)})
    assert set(found) == {"a.weight", "norm.weight"}
    matrix = found["a.weight"]
    assert (matrix.type, matrix.shape) == ("EXL3", (128, 128))
    assert matrix.nbytes == sum(tensor.nbytes for tensor in tensors.values())
    assert_decoded(matrix.dequantise(), meant)


def test_several_blocks(tmp_path: Path) -> None:
    """Whole matrices, and rows in any order."""
    tensors, meant = exl3("a", 384, 256, np.random.default_rng(9), 2)
    matrix = opened(tmp_path, tensors)["a.weight"]
    assert_decoded(matrix.dequantise(), meant)
    assert_decoded(matrix.rows(100, 330).take([200, 0, 0, 31]).dequantise(), meant[[300, 100, 100, 131]])


def test_the_signs_of_the_first_files(tmp_path: Path) -> None:
    tensors, meant = exl3("a", 128, 256, np.random.default_rng(0), 4, "3inst", signs=True)
    assert {name.rsplit(".")[1] for name in tensors} == {"trellis", "su", "sv"}
    assert_decoded(opened(tmp_path, tensors)["a.weight"].dequantise(), meant)


def test_padding_is_left_out_where_headers_state_less(tmp_path: Path) -> None:
    tensors, meant = exl3("a", 200, 160, np.random.default_rng(1))
    bias = np.arange(256, dtype=np.float16)
    found = opened(tmp_path, tensors | {"a.bias": bias, "b.bias": bias})
    whole = found["a.weight"]
    assert whole.shape == (256, 256)
    matrix = without_padding(whole, (200, 160))
    assert matrix.shape == (200, 160)
    assert_decoded(matrix.dequantise(), meant)
    assert_decoded(matrix.take([150, 3]).dequantise(), meant[[150, 3]])
    np.testing.assert_array_equal(without_padding(found["a.bias"], (200,)).dequantise(), bias[:200])
    for other in ((128, 160), (200, 300), (257, 160), (200,)):
        assert without_padding(whole, other) is whole
    assert without_padding(found["b.bias"], (200,)) is found["b.bias"], "no bias of such a matrix"


def test_they_can_be_quantised_again(tmp_path: Path) -> None:
    """As matrices that backends hold as F16."""
    tensors, meant = exl3("a", 128, 160, np.random.default_rng(4))
    matrix = quantise(without_padding(opened(tmp_path, tensors)["a.weight"], (128, 160)), "q8")
    assert matrix.type == "Q8_0"
    np.testing.assert_allclose(matrix.dequantise(), meant, rtol=0, atol=np.abs(meant).max() / 250)


@pytest.mark.parametrize("kind", ["laguna", "mistral4", "qwen3_moe"])
def test_divided_experts(tmp_path: Path, kind: str) -> None:
    """ExLlamaV3 stores the up_proj of routed experts of two architectures divided by 128."""
    names = ("m.experts.3.up_proj", "m.experts.3.gate_proj", "m.shared_experts.up_proj")
    made = {name: exl3(name, 128, 128, np.random.default_rng(2)) for name in names}
    tensors = {name: tensor for parts, _values in made.values() for name, tensor in parts.items()}
    found = opened(tmp_path, tensors, text_config={"model_type": kind})
    for name, (_parts, meant) in made.items():
        factor = 128 if name == names[0] and kind != "qwen3_moe" else 1
        assert_decoded(found[name + ".weight"].dequantise(), meant * np.float32(factor))


@pytest.mark.slow
def test_models(tmp_path: Path) -> None:
    """Padded widths, a padded vocabulary and padded biases, several numbers of bits; a head that is quantised
    although the config calls tables tied. The memory estimate is exact. The CPU holds matrices as F16.
    """
    tiny = TINY.but(
        layers=2, width=160, heads=4, kv_heads=2, head_dim=32, ffn_width=200, vocab_size=307,
        attention_bias=True, tied=False,
    )  # fmt: skip
    rng, tensors, meant = np.random.default_rng(3), Tensors(), dict[str, Floats]()
    for name, values in tiny_weights(tiny).items():
        stem, _dot, end = name.rpartition(".")
        matrix = "_proj" in name or stem == "lm_head"
        if matrix and end == "weight":
            bits = int(rng.integers(2, 7))
            parts, meant[name] = exl3(stem, *values.shape, rng, bits, "mul1", scale=0.15)
            tensors |= parts
        else:
            half = values.astype(np.float16)
            meant[name] = half.astype(np.float32)
            tensors[name] = np.pad(half, (0, -half.size % 128)) if matrix else half
    packed, plain, held = tmp_path / "packed", tmp_path / "plain", tmp_path / "held"
    for folder, kept, more in (
        (packed, tensors, {"quantization_config": SETTINGS, "tie_word_embeddings": True}),
        (plain, meant, {}),
        (held, {name: values.astype(np.float16) for name, values in meant.items()}, {}),
    ):
        folder.mkdir()
        save_file(kept, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(tiny_config(tiny) | more))
    assert quantisation_name(open_checkpoint(packed)) == "EXL3 3.5 bpw"
    ids = rng.integers(0, 300, 40).tolist()
    expected = logits(load(plain), ids)
    np.testing.assert_allclose(
        logits(load(packed), ids), expected, rtol=0, atol=1e-5 * np.abs(expected).max()
    )
    expected = logits(load(held), ids)
    model, rounded = load(packed, CpuBackend(2)), load(held, SixteenBits())
    assert_near_exact(logits(model, ids, [1, 2, 10]), expected, logits(rounded, ids, [1, 2, 10]))
    assert survey(open_checkpoint(packed), CpuBackend(2)).bytes == model.resident_bytes
    model.close()


def put(part: str, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Callable[[Tensors], None]:
    def apply(tensors: Tensors) -> None:
        tensors[part] = np.ascontiguousarray(change(tensors[part]))

    return apply


BROKEN: dict[str, tuple[Callable[[Tensors], None], str]] = {
    "nine bits": (
        put("a.trellis", lambda t: np.tile(t, 3)), r"a\.trellis is I16 of shape \(8, 8, 144\), but tiles of",
    ),
    "half a bit": (put("a.trellis", lambda t: t[:, :, :40]), r"tiles of 1 to 8 bits in whole blocks of 128"),
    "half a block": (put("a.trellis", lambda t: t[:4]), "in whole blocks of 128 were expected"),
    "another type": (put("a.trellis", lambda t: t.view(np.float16)), r"3 dimensions of I16, U16"),
    "no inputs": (lambda tensors: tensors.__delitem__("a.suh"), r"a\.suh is missing"),
    "few outputs": (put("a.svh", lambda s: s[:100]), r"a\.svh is F16 of shape \(100,\)"),
    "few signs": (
        lambda tensors: tensors.update({"a.su": tensors.pop("a.suh")[:7].view(np.int16)}), r"a\.su is I16",
    ),
    "another multiplier": (put("a.mcg", lambda m: m + 1), r"a\.mcg holds \[\d+\]; the codebook's multiplier"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_matrices(tmp_path: Path, change: Callable[[Tensors], None], message: str) -> None:
    tensors, _meant = exl3("a", 128, 128, np.random.default_rng(0))
    change(tensors)
    with pytest.raises(BadCheckpoint, match=message):
        opened(tmp_path, tensors)
