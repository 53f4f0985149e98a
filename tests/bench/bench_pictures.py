"""How long a model looks at a picture: our vision encoders and transformers' (PyTorch), in turns.

    python -m tests.bench.bench_pictures [FAMILY ...] [--rounds N] [--threads N]

The encoders have the shapes of SmolVLM 256M, Gemma 3 4B and Qwen2.5-VL 3B, with random weights in bfloat16;
their language models are tiny. Both get the same pixels. PyTorch computes in float32, where our kernels
multiply 16-bit numbers, and in bfloat16, whichever is faster on this machine. The figures are seconds for one
picture, the worst of all rounds, with the tokens that it becomes; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from engine.drain import drain
from engine.vision import VisionEncoder, tokens_in
from engine.vision.opening import open_vision
from engine.weights import open_checkpoint
from tests.engine.vision.tiny.encoding import picture, png

TEXT = {
    "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
    "vocab_size": 64,
}  # fmt: skip
Made = tuple[Any, Any, tuple[int, int]]


def smolvlm() -> Made:
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    vision = {
        "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "image_size": 512, "patch_size": 16,
    }  # fmt: skip
    text = {**TEXT, "model_type": "llama", "hidden_size": 576}
    config = Idefics3Config(vision_config=vision, text_config=text, scale_factor=4, image_token_id=3)
    size = {"longest_edge": 512}
    processor = Idefics3ImageProcessorPil(size=size, max_image_size=size, do_image_splitting=False)
    return Idefics3ForConditionalGeneration(config), processor, (512, 512)


def gemma3() -> Made:
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    vision = {
        "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304,
        "num_hidden_layers": 27, "num_attention_heads": 16, "image_size": 896, "patch_size": 14,
    }  # fmt: skip
    text = {**TEXT, "hidden_size": 2560, "head_dim": 16}
    config = Gemma3Config(vision_config=vision, text_config=text, mm_tokens_per_image=256)
    processor = Gemma3ImageProcessorPil(size={"height": 896, "width": 896})
    return Gemma3ForConditionalGeneration(config), processor, (896, 896)


def qwen2_5_vl() -> Made:
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    vision = {
        "depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "out_hidden_size": 2048,
        "fullatt_block_indexes": [7, 15, 23, 31], "window_size": 112,
    }  # fmt: skip
    rope = {"rope_theta": 1e4, "rope_type": "default", "mrope_section": [256, 128, 128]}
    text = {**TEXT, "hidden_size": 2048, "rope_parameters": rope}
    config = Qwen2_5_VLConfig(vision_config=vision, text_config=text)
    return Qwen2_5_VLForConditionalGeneration(config), Qwen2VLImageProcessorPil(patch_size=14), (896, 672)


FAMILIES: dict[str, Callable[[], Made]] = {"smolvlm": smolvlm, "gemma3": gemma3, "qwen2.5-vl": qwen2_5_vl}


def by_transformers(model: Any, processor: Any, size: tuple[int, int]) -> Callable[[], Any]:
    """Computes a picture's rows from its pixels."""
    given = processor([picture(*size)], return_tensors="pt")
    grid = (given["image_grid_thw"],) if "image_grid_thw" in given else ()
    pixels = given["pixel_values"]

    def work() -> Any:
        with torch.no_grad():
            return model.model.get_image_features(pixels.to(next(model.parameters()).dtype), *grid)

    return work


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def row(name: str, rounds: int, threads: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    model, processor, size = FAMILIES[name]()
    model = model.to(torch.bfloat16).eval()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
        checkpoint = open_checkpoint(Path(folder))
        start = time.perf_counter()
        encoder: VisionEncoder = drain(open_vision(checkpoint, threads))
        loaded = time.perf_counter() - start
        checkpoint.close()
    data = png(picture(*size))
    theirs = by_transformers(model, processor, size)
    ours: list[float] = []
    others: dict[str, list[float]] = {"bfloat16": [], "float32": []}
    for _unused in range(rounds):
        ours.append(seconds(lambda: drain(encoder.encode(data))))
        for kind, found in others.items():
            model = model.to(getattr(torch, kind))
            found.append(seconds(theirs))
    best = min(max(found) for found in others.values())
    tokens = tokens_in(encoder.layout(*size))
    encoder.close()
    return {
        "family": name, "size": size, "tokens": tokens, "seconds": max(ours), "transformers": best,
        "ratio": best / max(ours), "load": loaded,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", nargs="*", default=[*FAMILIES], choices=[*FAMILIES, []])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    rows = [row(name, arguments.rounds, arguments.threads) for name in arguments.family]
    for each in rows:
        print(
            f"{each['family']:12} {each['size'][0]}x{each['size'][1]} {each['tokens']:5} tokens "
            f"{each['seconds']:7.2f} s, transformers {each['transformers']:7.2f} s: {each['ratio']:.2f} times"
        )
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
