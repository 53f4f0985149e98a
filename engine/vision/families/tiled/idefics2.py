"""Idefics2 (arXiv 2405.02246): a SigLIP tower over pictures that keep their shape, whose patches learned rows
read. A picture may be cut into four quarters, which come before the whole.
"""

from __future__ import annotations

import numpy as np

from engine.lazy_dataclass import dataclass
from engine.models.headers.keys import Keys
from engine.tensors import Bytes
from engine.vision.base import Piece, Span, VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.patch_encoder import PatchDesign, PatchNames
from engine.vision.families.tiled.idefics3 import placed
from engine.vision.headers import (
    HALF,
    MOST_HEADS,
    MOST_LAYERS,
    MOST_SIDE,
    MOST_WIDTH,
    activation,
    divisible,
    fitting_patches,
    folder_patches,
    inner,
    normalisation,
    prefix_of,
    resampling,
    square,
    tower_from_hf,
)
from engine.vision.layers.perceiver import PerceiverShape
from engine.vision.layers.projector import ProjectorNames
from engine.vision.layers.tower import SIGLIP
from engine.vision.pictures.images import BILINEAR, resized

SPEC = VisionSpec("idefics2", "<image>", "<image>")
_AROUND = "<fake_token_around_image>"
_SHORTEST, _LONGEST = 378, 980
_PREFIXES = "model.vision_model.", "vision_model.", "model.model.vision_model."


@dataclass(frozen=True, slots=True)
class Quarters:
    """The whole picture, after its four quarters if it `splits`, each with sides of `shortest` to `longest`
    pixels; each becomes this many `tokens`.
    """

    shortest: int
    longest: int
    patch: int
    tokens: int
    filter: int
    splits: bool

    @property
    def most_patches(self) -> int:
        """Of one part."""
        return (max(self.shortest, self.longest) // self.patch) ** 2

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `Cutter.layout`: a mark before each part, and after the last one."""
        part: tuple[Piece, ...] = _AROUND, Span(1, self.tokens)
        return (*part * (5 if self.splits else 1), _AROUND)

    def crops(self, picture: Bytes) -> tuple[Bytes, ...]:
        """As `Cutter.crops`."""
        parts = [picture]
        if self.splits:
            height, width = picture.shape[:2]
            halves = [
                (slice(0, max(1, side // 2)), slice(min(side // 2, side - 1), side))
                for side in (height, width)
            ]
            parts = [picture[rows, columns] for rows in halves[0] for columns in halves[1]] + parts
        return tuple(
            resized(np.ascontiguousarray(part), *self._size(part.shape[1], part.shape[0]), self.filter)
            for part in parts
        )

    def _size(self, width: int, height: int) -> tuple[int, int]:
        """The width and height of a part."""
        ratio = width / height
        if width >= height and width > self.longest:
            width, height = self.longest, int(self.longest / ratio)
        elif height > width and height > self.longest:
            width, height = int(self.longest * ratio), self.longest
        return max(width, self.shortest), max(height, self.shortest)


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`Idefics2ForConditionalGeneration`."""
    vision = inner(config, "vision_config").over(
        {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
    )
    text = inner(config, "text_config").over({"intermediate_size": 14336, "hidden_size": 4096})
    prefix = prefix_of(tensors, "embeddings.patch_embedding.weight", _PREFIXES)
    shape, patch = tower_from_hf(vision, "gelu_pytorch_tanh"), square(vision, "patch_size", 32)
    side, pixels = square(vision, "image_size", 224), normalisation(processor, HALF, HALF)
    tokens = _perceiver(config, text, shape.width, prefix.removesuffix("vision_model.") + "connector.")
    sizes = inner(processor, "size", "preprocessor_config.json")
    shortest, longest = (
        sizes.integer(name, patch, MOST_SIDE, max(patch, usual))
        for name, usual in (("shortest_edge", _SHORTEST), ("longest_edge", _LONGEST))
    )
    cutter = Quarters(
        shortest, longest, patch, tokens.count, resampling(processor, BILINEAR),
        processor.flag("do_image_splitting", False),
    )  # fmt: skip
    return PatchDesign(
        SPEC, shape,
        PatchNames(
            SIGLIP.under(prefix), *folder_patches(prefix), ProjectorNames(), prefix + "post_layernorm"
        ),
        patch, fitting_patches(side, patch) ** 2, pixels, cutter, tokens, (shape.layers,), placed,
    )  # fmt: skip


def _perceiver(config: Keys, text: Keys, inputs: int, at: str) -> PerceiverShape:
    """What makes tokens of a part; its rows are as wide as the language model's."""
    own, width = inner(config, "perceiver_config"), text.integer("hidden_size", 1, MOST_WIDTH)
    heads = own.integer("resampler_n_heads", 1, MOST_HEADS, 16)
    groups = own.integer("num_key_value_heads", 1, heads, min(4, heads))
    divisible(heads, groups, "num_key_value_heads")
    eps = own.number("rms_norm_eps", 0.0, 1.0, 1e-6)
    if own.integer("hidden_size", 1, MOST_WIDTH, 4096) != width:  # then the language model's counts
        eps = text.number("rms_norm_eps", 0.0, 1.0, 1e-5)
    return PerceiverShape(
        inputs, width, own.integer("resampler_n_latents", 1, 1 << 12, 64),
        own.integer("resampler_depth", 1, MOST_LAYERS, 3), heads,
        groups,
        own.integer("resampler_head_dim", 1, MOST_WIDTH, 96),
        text.integer("intermediate_size", 1, MOST_WIDTH), 4 * width,
        eps,
        (activation(text, "hidden_act", "silu"), activation(own, "hidden_act", "silu")),
        (at + "modality_projection.", at + "perceiver_resampler."),
    )  # fmt: skip


IDEFICS2 = Family("idefics2", ("Idefics2ForConditionalGeneration",), (), from_hf, None)
