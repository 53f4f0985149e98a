"""`ExLlamaV2VisionTower` and `ExLlamaV2MMEmbedding`: pictures in the prompts of the dynamic generator."""

from __future__ import annotations

import io
import re
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.compat.exllamav2.attributes import Declared, check_config, ignores_others, refuse
from engine.core import Loading, Picture
from engine.drain import drain
from engine.errors import BadSetting, NotSupportedYet
from engine.generator.prompt.pictures import numbered
from engine.vision import VisionEncoder
from engine.vision.encoder_cache import EncoderCache

if TYPE_CHECKING:
    from engine.compat.exllamav2.config import ExLlamaV2Config
    from engine.text.tokenizer.tokenizer import Tokenizer

__all__ = ["ExLlamaV2MMEmbedding", "ExLlamaV2VisionTower", "checked_embeddings", "ids_with"]

_MADE_BY = "it must be a list of what `get_image_embeddings` of a vision tower returns"


class ExLlamaV2MMEmbedding(Declared):
    """A picture, encoded. In a prompt its tokens take the place of `text_alias`; they are `length` ids, from
    `first_index` on, with the control tokens that the model has around them.
    """

    missing = dict.fromkeys(
        ("embeddings", "deepstack_embeddings", "thw_grid", "pre_tokens", "post_tokens", "model", "metadata"),
        "the engine keeps the rows of a picture",
    )
    text_alias: str
    first_index: int
    length: int

    def __init__(self, store: EncoderCache, picture: Picture, text_alias: str | None) -> None:
        self._store, self._placed = store, numbered(store.placed(picture), 0)
        own = [id for piece in self._placed if not isinstance(piece, str) for id in piece]
        self.first_index, self.length = own[0], len(own)
        self.text_alias = text_alias or f"<$EMB_{self.first_index}$>"
        holding = ExitStack()
        holding.enter_context(store.held(own))
        weakref.finalize(self, holding.close)
        drain(store.encoded(own))

    @property
    def store(self) -> EncoderCache:
        """The pictures of its tower."""
        return self._store

    def ids(self, tokenizer: Tokenizer) -> list[int]:
        """The ids in the place of its alias."""
        return [
            id
            for piece in self._placed
            for id in (tokenizer.encode(piece, special=True) if isinstance(piece, str) else piece)
        ]


class ExLlamaV2VisionTower(Declared):
    """The vision encoder of the model in `config.model_dir`: in its folder, or an mmproj file beside a GGUF
    model. The constructor raises `BadSetting` for a model that reads no pictures.
    """

    missing = dict.fromkeys(
        ("modules", "modules_dict", "archparams", "p2d_rope", "forward", "process", "preprocess",
         "postprocess", "video_preprocess_func", "preprocess_func", "postprocess_func", "load_tp"),
        "the engine's encoders have no such parts; use get_image_embeddings",
    )  # fmt: skip
    config: ExLlamaV2Config

    def __init__(self, config: ExLlamaV2Config) -> None:
        from engine.vision.describe import describe_checkpoint
        from engine.vision.opening import vision_layouts
        from engine.weights.checkpoint import open_checkpoint

        check_config("ExLlamaV2VisionTower", config)
        if config.model_dir is None:
            raise ValueError("model_dir must be set before the vision tower is opened")
        with closing(open_checkpoint(Path(config.model_dir))) as checkpoint:
            layouts = vision_layouts(checkpoint, config.load_settings.picture_tokens)
            if layouts is None:
                raise BadSetting(describe_checkpoint(checkpoint).why_no_pictures)
        self.config = config
        self._layouts = layouts
        self._store = EncoderCache(layouts, self._opened)

    def _opened(self) -> Generator[Loading, None, VisionEncoder]:
        from engine.vision.opening import open_vision
        from engine.weights.checkpoint import open_checkpoint

        with closing(open_checkpoint(Path(str(self.config.model_dir)))) as checkpoint:
            load = self.config.load_settings
            return (yield from open_vision(checkpoint, load.threads, load.picture_tokens))

    @ignores_others
    def load(self, callback: Callable[[int, int], None] | None = None, progress: bool = False) -> None:
        """Does nothing: the encoder is loaded with the first picture."""

    def unload(self) -> None:
        """Release the encoder's memory, and all pictures; their embeddings cannot be used afterwards."""
        self._store.close()
        self._store = EncoderCache(self._layouts, self._opened)

    def get_image_embeddings(
        self,
        model: Any,
        tokenizer: Any,
        image: Any,
        text_alias: str | None = None,
        embeddings_cpu: bool = True,
    ) -> ExLlamaV2MMEmbedding:
        """A picture (a `PIL.Image.Image`) for prompts of `model`, whose tower this must be; `tokenizer` and
        `embeddings_cpu` make no difference. Raises TypeError for another picture, `BadSetting` for another
        model.
        """
        from PIL import Image

        if not isinstance(image, Image.Image):
            raise TypeError(f"image is a {type(image).__name__}, but a PIL.Image.Image was expected.")
        if str(model.config.model_dir) != str(self.config.model_dir):
            raise BadSetting(
                f"The vision tower is that of {self.config.model_dir}, but the model is in "
                f"{model.config.model_dir}; open the tower with the model's own configuration."
            )
        out = io.BytesIO()
        plain = image if image.mode in ("L", "LA", "P", "RGB", "RGBA") else image.convert("RGB")
        plain.save(out, "PNG", compress_level=1, exif=b"")
        picture = Picture("", "", image.width, image.height, "image/png", out.getvalue())
        return ExLlamaV2MMEmbedding(self._store, picture, text_alias)

    def get_video_embeddings(self, *_args: Any, **_named: Any) -> ExLlamaV2MMEmbedding:
        """Refused. Raises `NotSupportedYet`."""
        raise NotSupportedYet("`get_video_embeddings` is not supported here: models read single pictures.")


def checked_embeddings(given: Any) -> tuple[ExLlamaV2MMEmbedding, ...]:
    """The pictures of a prompt. Raises `NotSupportedYet` for other embeddings."""
    found = tuple(given or ())
    if not all(isinstance(one, ExLlamaV2MMEmbedding) for one in found):
        refuse("embeddings", given, None, _MADE_BY)
    return found


def ids_with(
    tokenizer: Tokenizer, text: str, embeddings: Sequence[ExLlamaV2MMEmbedding], special: bool
) -> list[int]:
    """The ids of a text in which aliases stand for pictures; what is between them is encoded by itself."""
    named = {one.text_alias: one for one in embeddings}
    if not named:
        return tokenizer.encode(text, special=special)
    parts = re.split("(" + "|".join(map(re.escape, named)) + ")", text)
    return [
        id
        for part in parts
        if part
        for id in (named[part].ids(tokenizer) if part in named else tokenizer.encode(part, special=special))
    ]
