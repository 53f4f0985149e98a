"""Granite for Docling (the code of `transformers`): a SigLIP tower over square tiles of a page, and over the
whole page as one more tile. Squares of patches become one token, and the states after some layers of the
tower are added to those after the first layers of the language model (DeepStack, arXiv 2406.04334).

With x a square of patches, each normed twice: norm(last(gelu(norm(project(join(x)) + place)))). There are two
such paths, of which the fine one makes four times as many tokens; the image processor's settings say which is
taken. A router, which some files have, would choose it by what the tower sees; nothing here asks it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from engine.backends.base import Array, Ops
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, linear, norm
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import unsupported
from engine.models.layers.parts import Linear, Norm
from engine.tensors import Bytes, Floats
from engine.vision.base import Piece, Span, VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.patch_encoder import PatchDesign, PatchNames
from engine.vision.headers import (
    CLIP_DEVIATION,
    CLIP_MEAN,
    MOST_WIDTH,
    folder_patches,
    inner,
    normalisation,
    prefix_of,
    resampling,
    square,
    tower_from_hf,
    whole_patches,
)
from engine.vision.layers.projector import ProjectorNames, ProjectorShape
from engine.vision.layers.resampler import places
from engine.vision.layers.several_projectors import SeveralProjectors
from engine.vision.layers.tower import SIGLIP
from engine.vision.pictures.images import resized
from engine.vision.pictures.tiling import best_grid, tiles_of

SPEC = VisionSpec("granite_docling", "<image>", "<image>")
_AROUND, _WHOLE = "<fake_token_around_image>", "<global-img>"
_LONGEST, _MOST = 16, 1 << 8
"""Tiles of a side, for which there are tokens, and tiles at most."""
_TOWER = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "image_size": 512, "patch_size": 16,
}  # fmt: skip
_DEEP = (3, 7, 10)
_EPS = 1e-5
_PREFIXES = ("model.vision_model.", "vision_model.")


@dataclass(frozen=True, slots=True)
class Dense:
    """Which pages get up to `most` tiles: those whose shape, width over height, is above `narrowest` and not
    above `widest` (0: no limit), and that the usual grid makes smaller than `scale` (0: all).
    """

    most: int
    scale: float
    narrowest: float
    widest: float


@dataclass(frozen=True, slots=True)
class Tiles:
    """The cutting of `GraniteDoclingImageProcessor`: from `least` to `most` tiles of `side` pixels square, or
    more of `dense` pages, in the grid that is closest to the page's shape; if there are several, the whole
    page is the last.
    """

    side: int
    patch: int
    cell: int
    filter: int
    least: int
    most: int
    dense: Dense | None = None

    @property
    def most_patches(self) -> int:
        """Of one tile."""
        return (self.side // self.patch) ** 2

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `Cutter.layout`: of each tile its row and column, and at last the whole."""
        wide, high = self.grid(width, height)
        span, found, line = Span(self.side // self.cell, self.side // self.cell), list[Piece](), ""
        for row in range(1, high + 1):
            for column in range(1, wide + 1):
                found += [f"{line}{_AROUND}<row_{row}_col_{column}>", span]
                line = ""
            line = "\n"
        return (*found, line) if wide * high == 1 else (*found, f"\n\n{_AROUND}{_WHOLE}", span, _AROUND)

    def crops(self, picture: Bytes) -> tuple[Bytes, ...]:
        """As `Cutter.crops`."""
        height, width = picture.shape[:2]
        tiles = tiles_of(picture, *self.grid(width, height), self.side, self.filter)
        return tiles if len(tiles) == 1 else (*tiles, resized(picture, self.side, self.side, self.filter))

    def grid(self, width: int, height: int) -> tuple[int, int]:
        """How many tiles are side by side, and one above another."""
        usual = best_grid(width, height, self.side, self.least, self.most, _LONGEST)
        dense = self.dense
        if dense is None or self.most == 1 or width / height <= dense.narrowest:
            return usual
        small = not dense.scale or usual[0] * self.side / width < dense.scale
        if not small or (dense.widest and width / height > dense.widest):
            return usual
        return best_grid(width, height, self.side, self.least, dense.most, _LONGEST)


@dataclass(frozen=True, slots=True)
class _Connector:
    """Squares of patches (T, K) -> (T, N); `places` are those of a tile's tokens, (tokens, N)."""

    before: tuple[Norm, Norm]
    project: Linear
    places: Floats
    middle: Norm
    last: Linear
    after: Norm

    def __call__(self, ops: Ops, x: Array, residual: Array | None = None) -> Array:
        for each in self.before:
            x = each(ops, x)
        x = ops.add_positions(self.project(ops, x), self.places)
        x = self.after(ops, self.last(ops, ops.activate(self.middle(ops, x), "gelu")))
        return x if residual is None else ops.add(residual, x)


def _connector(
    tower: str, path: str, patches: ProjectorShape, width: int, eps: float, side: int, source: WeightSource
) -> _Connector:
    """Of `patches` of `width` numbers, in tiles of `side` tokens a side; `eps` is that of the tower."""
    at, outputs, parts = tower + "connector.", patches.outputs, patches.factor**2

    def layer_norm(name: str, size: int, eps: float = _EPS) -> Norm:
        return norm(source, name, size, eps, layer_norm=True, bias=True)

    return _Connector(
        (
            replace(layer_norm(tower + "post_layernorm", width, eps), heads=parts),
            replace(layer_norm(at + "ln_in", width), heads=parts),
        ),
        linear(source, f"{at}{path}.projection", outputs, patches.inputs, False),
        places(side, side, outputs), layer_norm(at + "ln_mid", outputs),
        linear(source, at + "mlp_fc2", outputs, outputs, False), layer_norm(at + "ln_out", outputs),
    )  # fmt: skip


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`GraniteDoclingForConditionalGeneration`. Raises `UnsupportedModel`."""
    vision = inner(config, "vision_config").over(_TOWER)
    shape = tower_from_hf(vision, "gelu_pytorch_tanh")
    side, patch = square(vision, "image_size"), square(vision, "patch_size")
    fine, factor = processor.flag("fine_route", False), vision.integer("scale_factor", 1, 64, 4)
    factor = max(1, factor // 2) if fine else factor
    cells = whole_patches(side, patch, factor) // factor
    deep = vision.over({"deepstack_visual_indexes": [at for at in _DEEP if at < shape.layers]})
    indices = sorted(set(deep.integers("deepstack_visual_indexes", 0, shape.layers - 1)))
    outputs = inner(config, "text_config").integer("hidden_size", 1, MOST_WIDTH, 1024)
    if outputs % 4:  # sines and cosines of columns and of rows
        raise unsupported("hidden_size", outputs)
    tower = prefix_of(tensors, "embeddings.patch_embedding.weight", _PREFIXES)
    path = "fine" if fine else "coarse"
    merger = ProjectorShape(shape.width * factor**2, outputs, outputs, norm="layer", eps=_EPS, factor=factor)
    build = partial(_connector, tower, path, merger, shape.width, shape.eps, cells)
    at = f"{tower}connector.{path}.deepstack_mergers."
    projectors = SeveralProjectors(
        (*[merger] * len(indices), replace(merger, hidden=0, norm="none", make=build)),
        (
            *(
                ProjectorNames(f"{at}{number}.linear_1", f"{at}{number}.linear_2", f"{at}{number}.layer_norm")
                for number in range(len(indices))
            ),
            ProjectorNames(),
        ),
    )
    names = PatchNames(SIGLIP.under(tower), *folder_patches(tower), ProjectorNames())
    tiles = Tiles(side, patch, patch * factor, resampling(processor), *_counts(processor))
    return PatchDesign(
        replace(SPEC, deep=len(indices)), shape, names, patch, whole_patches(side, patch) ** 2,
        normalisation(processor, CLIP_MEAN, CLIP_DEVIATION), tiles, projectors,
        (*(at + 1 for at in indices), shape.layers),
    )  # fmt: skip


def _counts(processor: Keys) -> tuple[int, int, Dense | None]:
    """The least and the most tiles, and those of dense pages."""
    least = processor.integer("min_patches", 1, _MOST, 1)
    most = processor.integer("max_patches", least, _MOST, max(least, 32))
    if not processor.flag("crop_to_patches", True):
        return 1, 1, None
    more = processor.integer("dense_max_patches", 0, _MOST, 0)
    scale, narrowest, widest = (
        processor.number(name, 0.0, 1e6, 0.0)
        for name in ("dense_max_scale", "dense_min_aspect", "dense_max_aspect")
    )
    ruled = more and (scale or narrowest)
    return least, most, Dense(max(least, more), scale, narrowest, widest) if ruled else None


GRANITE_DOCLING = Family("granite_docling", ("GraniteDoclingForConditionalGeneration",), (), from_hf, None)
