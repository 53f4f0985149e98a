"""Pictures under ExLlamaV2's names: as the engine's own chats read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from engine.chat import finished, open_chat
from engine.compat import exllamav2
from engine.compat.exllamav2 import (
    ExLlamaV2,
    ExLlamaV2Cache,
    ExLlamaV2Config,
    ExLlamaV2Tokenizer,
    ExLlamaV2VisionTower,
)
from engine.compat.exllamav2.generator import (
    ExLlamaV2DynamicGenerator,
    ExLlamaV2DynamicJob,
    ExLlamaV2MMEmbedding,
    ExLlamaV2Sampler,
)
from engine.core import FIRST_PICTURE_ID, Message
from engine.errors import BadSetting, NotSupportedYet
from engine.settings import CacheSettings, LoadSettings
from tests.engine.vision.tiny.chats import Reply, shown
from tests.engine.vision.tiny.encoding import picture
from tests.engine.vision.tiny.families import FAMILIES

GREEDY = ExLlamaV2Sampler.Settings.greedy()


class Eyes:
    """A tiny model that reads pictures, with all that a script makes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = ExLlamaV2Config(str(folder))
        self.config.load_settings = LoadSettings(backend="cpu", threads=2)
        self.tower = ExLlamaV2VisionTower(self.config)
        self.tower.load(progress=True)
        self.model = ExLlamaV2(self.config)
        self.cache = ExLlamaV2Cache(self.model, lazy=True, max_seq_len=1024)
        self.model.load_autosplit(self.cache, progress=False)
        self.tokenizer = ExLlamaV2Tokenizer(self.config)
        self.generator = ExLlamaV2DynamicGenerator(self.model, self.cache, self.tokenizer)

    def embedding(self, image: Any, alias: str | None = None) -> ExLlamaV2MMEmbedding:
        return self.tower.get_image_embeddings(
            model=self.model, tokenizer=self.tokenizer, image=image, text_alias=alias
        )


@pytest.fixture(scope="module")
def eyes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Eyes]:
    found = Eyes(FAMILIES["idefics3"](tmp_path_factory.mktemp("eyes") / "model").folder)
    one = found.embedding(picture(60, 40))
    # the threads of the encoder and of passes over pictures stay
    found.generator.generate(f"{one.text_alias} a", 2, embeddings=[one])
    yield found
    found.generator.close()
    found.model.unload()
    found.tower.unload()


def test_a_prompt_with_pictures_is_read_as_in_a_chat(eyes: Eyes) -> None:
    first = eyes.embedding(picture(60, 40), "{{A}}")
    second = eyes.embedding(picture(30, 70), "{{B}}")
    assert first.length > 0
    assert first.first_index >= FIRST_PICTURE_ID
    prompt = "<|im_start|>user\n{{A}}{{B}}Which is older?<|im_end|>\n<|im_start|>assistant\n"
    written = eyes.generator.generate(
        prompt=prompt, max_new_tokens=6, min_new_tokens=6, gen_settings=GREEDY, encode_special_tokens=True,
        decode_special_tokens=True, completion_only=True, embeddings=[first, second],
    )  # fmt: skip
    chat = finished(
        open_chat(eyes.folder, LoadSettings(backend="cpu", threads=2), CacheSettings(context_length=1024))
    )
    try:
        pictures = shown((60, 40), (30, 70))
        words = "".join(one.words for one in pictures)
        reply = Reply(chat, [Message("user", f"{words}Which is older?", pictures=pictures)], 6)
    finally:
        chat.close()
    ids = eyes.tokenizer.encode(prompt, encode_special_tokens=True, embeddings=[first, second])[0].tolist()
    plain = [id if id < FIRST_PICTURE_ID else -1 for id in ids]
    assert plain == reply.plain_ids(-1)
    assert eyes.tokenizer.engine_tokenizer.decode(reply.ids, skip_special=False) == written


def test_jobs_with_pictures(eyes: Eyes) -> None:
    one = eyes.embedding(picture(50, 50))
    ids = eyes.tokenizer.encode(f"See {one.text_alias} now", embeddings=[one])
    job = ExLlamaV2DynamicJob(ids, 4, min_new_tokens=4, gen_settings=GREEDY, embeddings=[one])
    eyes.generator.enqueue(job)
    while not job.is_finished:
        eyes.generator.iterate()
    bare = eyes.generator.generate("See  now", 4, min_new_tokens=4, gen_settings=GREEDY, completion_only=True)
    assert job.full_completion != bare
    again = eyes.generator.generate(
        f"See {one.text_alias} now", 4, min_new_tokens=4, gen_settings=GREEDY, completion_only=True,
        embeddings=[one],
    )  # fmt: skip
    assert again == job.full_completion


def test_pictures_of_every_mode(eyes: Eyes) -> None:
    grey = picture(40, 40).convert("L")
    modes = ("L", "RGB", "RGBA", "P", "CMYK", "1")
    lengths = {mode: eyes.embedding(grey.convert(mode)).length for mode in modes}
    assert len(set(lengths.values())) == 1


def test_what_cannot_be_used(eyes: Eyes, tmp_path: Path, model: ExLlamaV2) -> None:
    with pytest.raises(TypeError, match=r"image is a str, but a PIL\.Image\.Image was expected"):
        eyes.embedding("a.png")
    with pytest.raises(BadSetting, match="open the tower with the model's own configuration"):
        eyes.tower.get_image_embeddings(model, eyes.tokenizer, Image.new("RGB", (9, 9)))
    with pytest.raises(BadSetting, match="reads text only"):
        ExLlamaV2VisionTower(model.config)
    with pytest.raises(NotSupportedYet, match="get_video_embeddings"):
        eyes.tower.get_video_embeddings(eyes.model, eyes.tokenizer, [])
    with pytest.raises(NotSupportedYet, match="what `get_image_embeddings` of a vision tower returns"):
        eyes.generator.generate("a", 2, embeddings=[object()])
    tower = ExLlamaV2VisionTower(eyes.config)
    other = tower.get_image_embeddings(eyes.model, eyes.tokenizer, Image.new("RGB", (9, 9)))
    try:
        with pytest.raises(BadSetting, match="must be those of one vision tower"):
            eyes.generator.generate(f"{other.text_alias} a", 2, embeddings=[other])
    finally:
        tower.unload()
    with pytest.raises(NotSupportedYet, match="the vision tower has it"):
        exllamav2.ExLlamaV2MultimodalProjector()
