"""Whole tiny models that read pictures, with a tokenizer and a chat template, beside transformers' own."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from engine.chat.local import LocalChat
from engine.chat.opening import finished, open_chat
from engine.core import FIRST_PICTURE_ID, ChatRequest, Done, Message, Picture, Rendered, Text
from engine.settings import CacheSettings, LoadSettings, OutputSettings, SamplerSettings, StopSettings
from tests.engine.text.tokenizer.vocabularies import byte_level_json
from tests.engine.vision.tiny.encoding import picture, png

TEMPLATE = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content -%}
{%- if part.type == 'image' %}PLACEHOLDER{% else %}{{ part.text }}{% endif -%}
{%- endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
GREEDY = SamplerSettings(temperature=0.0)


def add_text(folder: Path, tokens: Sequence[str], placeholder: str) -> Tokenizer:
    """Give a folder a tokenizer with these control tokens, and a chat template with this placeholder."""
    tokenizer = Tokenizer.from_str(byte_level_json())
    tokenizer.add_special_tokens(list(tokens))
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|im_start|>", "eos_token": "<|im_end|>",
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(
        TEMPLATE.replace("PLACEHOLDER", placeholder), encoding="utf-8"
    )
    return tokenizer


def vocabulary(tokens: Sequence[str]) -> tuple[int, dict[str, int]]:
    """The size of the vocabulary of `add_text`, and the ids of these tokens in it."""
    tokenizer = Tokenizer.from_str(byte_level_json())
    tokenizer.add_special_tokens(list(tokens))
    ids = {token: tokenizer.token_to_id(token) for token in tokens}
    return tokenizer.get_vocab_size(), {token: id for token, id in ids.items() if id is not None}


def opened(path: Path, **load: Any) -> LocalChat:
    settings = {"backend": "cpu", "threads": 2, **load}
    return finished(
        open_chat(path, LoadSettings(**settings), CacheSettings(context_length=2048, dtype="fp32"))
    )


def shown(*sizes: tuple[int, int]) -> tuple[Picture, ...]:
    """Pictures of these sizes, as messages have them."""
    return tuple(
        Picture(f"{width}x{height}.png", "", width, height, "image/png", png(picture(width, height)))
        for width, height in sizes
    )


def asked(text: str, *sizes: tuple[int, int]) -> Message:
    """A message with pictures before its text."""
    pictures = shown(*sizes)
    return Message("user", "\n".join([*(one.words for one in pictures), text]), pictures=pictures)


class Reply:
    """A reply: its prompt, its ids, and how many tokens of the prompt were cached."""

    def __init__(self, chat: LocalChat, messages: Sequence[Message], tokens: int = 6, **more: Any) -> None:
        request = ChatRequest(
            tuple(messages), more.pop("sampler", GREEDY), StopSettings(max_tokens=tokens, min_tokens=tokens),
            output=more.pop("output", OutputSettings(alternatives=8)), report_prompt=True, **more,
        )  # fmt: skip
        self.events = list(chat.stream(request, threading.Event()))
        self.rendered = next(event for event in self.events if isinstance(event, Rendered))
        texts = (event for event in self.events if isinstance(event, Text))
        self.tokens = [token for event in texts for token in event.tokens]
        self.ids = [token.id for token in self.tokens]
        self.done = next(event for event in self.events if isinstance(event, Done))
        self.text = "".join(event.text for event in self.events if isinstance(event, Text))
        self.cached = self.done.stats.cached_tokens

    def plain_ids(self, token: int) -> list[int]:
        """The prompt with this id for every token of a picture, as transformers has it."""
        return [id if id < FIRST_PICTURE_ID else token for id in self.rendered.ids]


def by_transformers(model: Any, ids: Sequence[int], tokens: int, **inputs: Any) -> tuple[list[int], Any]:
    """The likeliest next tokens, without that of the end, and the probabilities of all (tokens, V)."""
    with torch.no_grad():
        found = model.generate(
            input_ids=torch.tensor([list(ids)]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, output_logits=True,
            return_dict_in_generate=True, **inputs,
        )  # fmt: skip
    written: list[int] = found.sequences[0, len(ids) :].tolist()
    return written, torch.stack([each[0].softmax(-1) for each in found.logits]).numpy()


def assert_as_with_rows(reply: Reply, text: Any, image: int, rows: Any) -> None:
    """The reply and its probabilities are those of transformers' text model, given these rows in place of the
    embeddings of the tokens of pictures, whose id is `image`.
    """
    ids, count = torch.tensor(reply.plain_ids(image)), len(reply.ids)
    states = text.get_input_embeddings()(ids).detach().clone()
    states[ids == image] = torch.from_numpy(rows)
    with torch.no_grad():
        found = text.generate(
            inputs_embeds=states[None], attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            max_new_tokens=count, min_new_tokens=count, do_sample=False, output_logits=True,
            return_dict_in_generate=True,
        )  # fmt: skip
    assert reply.ids == found.sequences[0].tolist()
    for token, logits in zip(reply.tokens, found.logits, strict=True):
        likely = logits[0].softmax(-1)
        for each in token.alternatives:
            assert each.raw_probability == pytest.approx(float(likely[each.id]), rel=0.02, abs=2e-4)
