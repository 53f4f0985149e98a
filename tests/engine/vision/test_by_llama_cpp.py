"""Encoders in mmproj files against llama.cpp, which approximates GELU by a table of 16-bit numbers. Pictures
have the sizes of crops, since it resizes in another way. CLIP and InternViT are left out: it puts the row of
the class after all others, where it has the position of a patch.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from tests.engine.vision.families.tiled import test_minicpm_v
from tests.engine.vision.tiny import minicpm_folders
from tests.engine.vision.tiny.converted import FLATTENED, encoder_tensors, flat_kernels, write_tower
from tests.engine.vision.tiny.encoding import Encoded, Floats, picture, randomise
from tests.tiny import TINY, WIDE, Tiny, write_gguf

pytestmark = pytest.mark.slow
TOWER = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
LLAMA = {
    "model_type": "llama", "hidden_size": TINY.width, "intermediate_size": 64, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 64,
}  # fmt: skip


def by_llama_cpp(model: Path, mmproj: Path, image: Image.Image, width: int = TINY.width) -> list[Floats]:
    """The rows (n, `width`) of each crop of a picture."""
    llama = pytest.importorskip("llama_cpp")
    mtmd = importlib.import_module("llama_cpp.mtmd_cpp")
    text = llama.Llama(str(model), n_ctx=64, n_threads=2, verbose=False)
    params = mtmd.mtmd_context_params_default()
    params.use_gpu, params.n_threads, params.warmup, params.print_timings = False, 2, False, False
    context = mtmd.mtmd_init_from_file(str(mmproj).encode(), text.model, params)
    assert context
    pixels = np.ascontiguousarray(np.asarray(image))
    address = pixels.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
    bitmap = mtmd.mtmd_bitmap_init(*image.size, address)
    marker = mtmd.mtmd_default_marker()
    asked = mtmd.mtmd_input_text()
    asked.text, asked.text_len, asked.add_special, asked.parse_special = marker, len(marker), False, True
    chunks, found = mtmd.mtmd_input_chunks_init(), list[Floats]()
    try:
        bitmaps = (ctypes.c_void_p * 1)(bitmap)
        assert mtmd.mtmd_tokenize(context, chunks, ctypes.byref(asked), bitmaps, 1) == 0
        for number in range(mtmd.mtmd_input_chunks_size(chunks)):
            chunk = mtmd.mtmd_input_chunks_get(chunks, number)
            if mtmd.mtmd_input_chunk_get_type(chunk) != mtmd.MTMD_INPUT_CHUNK_TYPE_IMAGE:
                continue
            assert mtmd.mtmd_encode_chunk(context, chunk) == 0
            rows = mtmd.mtmd_input_chunk_get_n_tokens(chunk)
            values = np.ctypeslib.as_array(mtmd.mtmd_get_output_embd(context), (rows * width,))
            found.append(values.reshape(rows, width).astype(np.float32))
        return found
    finally:
        mtmd.mtmd_input_chunks_free(chunks)
        mtmd.mtmd_bitmap_free(bitmap)
        mtmd.mtmd_free(context)
        text.close()


def _saved(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder / "folder")
    return folder / "folder"


def gemma3(folder: Path) -> Path:
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    vision = {**TOWER, "model_type": "siglip_vision_model", "image_size": 112, "patch_size": 14}
    text = {**LLAMA, "model_type": "gemma3_text", "head_dim": 48}
    config = Gemma3Config(vision_config=vision, text_config=text, mm_tokens_per_image=4)
    saved = _saved(randomise(Gemma3ForConditionalGeneration(config)), folder)
    names = {"mm_input_projection_weight": "mm_input_projection.weight", **FLATTENED}
    tensors = encoder_tensors(saved, names)
    tensors["mm.soft_emb_norm.weight"] = tensors["mm.soft_emb_norm.weight"] + np.float32(1)
    return write_tower(folder, "gemma3", config.vision_config, TINY.width, tensors, clip__use_gelu=True)


def idefics3(folder: Path) -> Path:
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration

    config = Idefics3Config(
        vision_config={**TOWER, "image_size": 64, "patch_size": 16}, text_config=LLAMA, scale_factor=2
    )
    tensors = encoder_tensors(_saved(randomise(Idefics3ForConditionalGeneration(config)), folder))
    return write_tower(
        folder, "idefics3", config.vision_config, TINY.width, tensors, clip__use_gelu=True,
        projector__scale_factor=2, preproc_image_size=192,
    )  # fmt: skip


def moondream(folder: Path) -> Path:
    """Its projector is wider within than the language model. llama.cpp does not run the last layer of such
    files unless they say which layer's states are the features.
    """
    from transformers import SiglipVisionConfig, SiglipVisionModel

    config = SiglipVisionConfig(**TOWER, image_size=112, patch_size=14, vision_use_head=False)
    saved = _saved(randomise(SiglipVisionModel(config)), folder)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, TOWER["num_hidden_layers"])
    tensors: dict[str, Floats] = {}
    for name, values in load_file(saved / "model.safetensors").items():
        whole = "vision_tower.vision_model." + name.removeprefix("vision_model.")
        known = names.get_name(whole, (".weight", ".bias"))
        assert known is not None
        tensors[known] = values
    rng, wide = np.random.default_rng(0), 2 * TINY.width
    for name, shape in {"mm.0": (wide, TOWER["hidden_size"]), "mm.2": (TINY.width, wide)}.items():
        tensors[f"{name}.weight"] = rng.normal(0, 0.15, shape).astype(np.float32)
        tensors[f"{name}.bias"] = rng.normal(0, 0.15, shape[0]).astype(np.float32)
    return write_tower(
        folder, "mlp", config, TINY.width, tensors, clip__use_gelu=True,
        feature_layer=[TOWER["num_hidden_layers"]],
    )  # fmt: skip


def minicpm_v(folder: Path) -> Path:
    saved = folder / "folder"
    saved.mkdir()
    model = minicpm_folders.Model(image_size=980)  # whose positions it takes for granted
    return test_minicpm_v.write_gguf(minicpm_folders.save(model, saved), folder)


def lfm2_vl(folder: Path) -> Path:
    from transformers import Lfm2VlConfig, Lfm2VlForConditionalGeneration

    vision = {**TOWER, "model_type": "siglip2_vision_model", "patch_size": 16, "num_patches": 64}
    text = {**LLAMA, "model_type": "lfm2", "layer_types": ["full_attention"]}
    config = Lfm2VlConfig(vision_config=vision, text_config=text, projector_hidden_size=80)
    saved = _saved(randomise(Lfm2VlForConditionalGeneration(config)), folder)
    tensors = encoder_tensors(saved, {"model.": "", **FLATTENED})
    tensors["v.patch_embd.weight"] = flat_kernels(tensors["v.patch_embd.weight"], 16)
    return write_tower(
        folder, "lfm2", config.vision_config, TINY.width, tensors, clip__use_gelu=True,
        projector__scale_factor=2, image_size=256,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("written", "size", "tiny"),
    [
        (gemma3, (112, 112), TINY), (idefics3, (192, 128), TINY), (lfm2_vl, (320, 256), TINY),
        (minicpm_v, (56, 56), WIDE), (moondream, (112, 112), TINY),
    ],
)  # fmt: skip
def test_rows(written: Callable[[Path], Path], size: tuple[int, int], tiny: Tiny, tmp_path: Path) -> None:
    model, image = written(tmp_path), picture(*size)
    text, mmproj = write_gguf(tmp_path / "text.gguf", tiny), tmp_path / "mmproj-model-f32.gguf"
    theirs = by_llama_cpp(text, mmproj, image, tiny.width)
    encoded = Encoded(model)
    mine = [each.states for each in encoded.rows(image)]
    encoded.close()
    assert len(mine) == len(theirs) > 0
    if len(theirs) > 1:
        mine, theirs = mine[:-1], theirs[:-1]  # the last one is the whole picture, which is resized
    for own, other in zip(mine, theirs, strict=True):
        assert own.shape == other.shape
        cosines = (own * other).sum(1) / np.linalg.norm(own, axis=1) / np.linalg.norm(other, axis=1)
        assert cosines.min() > 0.999
        assert np.abs(own - other).max() < 0.02 * np.abs(other).max()
