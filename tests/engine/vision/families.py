"""A tiny random model of each family that reads pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from engine.chat.local import LocalChat
from tests.engine.vision.chats import add_text, vocabulary
from tests.engine.vision.encoding import randomise, save

END = "<|im_end|>"


@dataclass
class Case:
    """A model in `folder`, and as transformers has it: `token` stands for a picture's tokens, `end` ends a
    turn, `inputs` makes of pictures what `generate` takes.
    """

    folder: Path
    model: Any
    token: int
    end: int
    inputs: Callable[[Sequence[Image.Image]], Mapping[str, Any]]
    chat: LocalChat = field(init=False)


def _idefics3(folder: Path) -> Case:
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    marks = [f"<row_{row}_col_{column}>" for row in range(1, 4) for column in range(1, 4)]
    tokens = ["<image>", "<fake_token_around_image>", "<global-img>", *marks]
    size, ids = vocabulary([*tokens, END])
    text = {
        "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": size,
    }  # fmt: skip
    vision = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
        "image_size": 28, "patch_size": 7,
    }  # fmt: skip
    config = Idefics3Config(
        vision_config=vision, text_config=text, scale_factor=2, image_token_id=ids["<image>"]
    )
    model = randomise(Idefics3ForConditionalGeneration(config))
    processor = Idefics3ImageProcessorPil(size={"longest_edge": 2 * 28}, max_image_size={"longest_edge": 28})
    add_text(save(model, processor, folder), tokens, "<image>")

    def inputs(pictures: Sequence[Image.Image]) -> Mapping[str, Any]:
        found = processor([list(pictures)], return_tensors="pt")
        return {"pixel_values": found["pixel_values"], "pixel_attention_mask": found["pixel_attention_mask"]}

    return Case(folder, model, ids["<image>"], ids[END], inputs)


FAMILIES: Mapping[str, Callable[[Path], Case]] = {"idefics3": _idefics3}
