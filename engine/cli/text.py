"""Commands `tokenize` and `render`: the output of a model's tokenizer and chat template.

No weights are read.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from engine.cli.command import Answer, Command, Console
from engine.cli.flags import add_settings, model_path, read_file, read_settings
from engine.cli.opening import read_messages
from engine.cli.pictures import add_images, read_images, with_images
from engine.core import FIRST_PICTURE_ID, Loading, Message
from engine.errors import BadSetting
from engine.fields import field_kinds
from engine.settings import LoadSettings, ThinkingSettings
from engine.words import N_, _, ngettext

if TYPE_CHECKING:
    from engine.text.template.template import ChatTemplate
    from engine.text.tokenizer.tokenizer import Tokenizer
    from engine.vision import VisionEncoder
    from engine.vision.encoder_cache import EncoderCache

_NOT_OF_PROMPTS = [name for name in field_kinds(LoadSettings) if name != "picture_tokens"]
"""Settings that `render` has no use for."""


def _open(model: str) -> tuple[Tokenizer, ChatTemplate]:
    from engine.models.open_text import open_text
    from engine.weights.checkpoint import open_checkpoint

    return open_text(open_checkpoint(model))


def _tokenize_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=model_path, help=_("a GGUF file or a model folder"))
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", help=_("the text"))
    source.add_argument("--file", type=Path, help=_("a UTF-8 file with the text; - is the standard input"))
    parser.add_argument(
        "--special", action="store_true", help=_("turn texts of control tokens into control tokens")
    )
    parser.add_argument("--add-bos", action="store_true", help=_("add the BOS token at the start"))


def _tokenize(options: argparse.Namespace, console: Console) -> Answer:
    tokenizer, _template = _open(options.model)
    text = options.text if options.text is not None else read_file(options.file)
    ids = tokenizer.encode(text, special=options.special, add_bos=options.add_bos)
    return {"ids": ids, "pieces": [tokenizer.piece(token) for token in ids]}


def _show_tokens(answer: Answer) -> str:
    return "\n".join(
        f"{token:>7}  {piece!r}" for token, piece in zip(answer["ids"], answer["pieces"], strict=True)
    )


def _render_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=model_path, help=_("a GGUF file or a model folder"))
    parser.add_argument(
        "--messages",
        metavar="FILE",
        type=Path,
        required=True,
        help=_("a JSON list of messages with role and content"),
    )
    parser.add_argument(
        "--continue-last",
        action="store_true",
        help=_("leave the last message open instead of starting a reply"),
    )
    add_images(parser, _("a picture before the last message of the user; can be given several times"))
    add_settings(parser, ThinkingSettings)
    add_settings(parser, LoadSettings, without=_NOT_OF_PROMPTS)


def _render(options: argparse.Namespace, console: Console) -> Answer:
    from engine.generator.prompt.pictures import marked
    from engine.text.template.encoding import encode_chat

    tokenizer, template = _open(options.model)
    images = read_images(options.image)
    shown: Sequence[Message] = with_images(read_messages(options.messages), images)
    marks = None
    if images:
        tokens = read_settings(LoadSettings, options).picture_tokens
        marks, shown = marked(shown, _pictures(options.model, tokens))
    way = template.switch.way(read_settings(ThinkingSettings, options).thinking)
    text, ids = encode_chat(
        tokenizer,
        template,
        way.messages(shown),
        add_generation_prompt=not options.continue_last,
        continue_last=options.continue_last,
        variables=way.variables,
        pictures=marks,
    )
    return {"text": text, "ids": ids}


def _pictures(model: str, tokens: int) -> EncoderCache:
    """What pictures become in a model's prompts, by its headers. Raises `BadSetting` if it reads none."""
    from engine.vision.describe import describe_checkpoint
    from engine.vision.encoder_cache import EncoderCache
    from engine.vision.opening import vision_layouts
    from engine.weights.checkpoint import open_checkpoint

    with closing(open_checkpoint(model)) as checkpoint:
        layouts = vision_layouts(checkpoint, tokens)
        if layouts is None:
            raise BadSetting(describe_checkpoint(checkpoint).why_no_pictures)
    return EncoderCache(layouts, _no_weights)


def _no_weights() -> Generator[Loading, None, VisionEncoder]:
    raise AssertionError("a prompt is shown without its pictures being read")


def _show_rendered(answer: Answer) -> str:
    ids = " ".join(_folded(answer["ids"]))
    listed = ngettext("{n} token: {ids}", "{n} tokens: {ids}", len(answer["ids"]), ids=ids)
    return f"{answer['text']}\n\n{listed}"


def _folded(ids: Sequence[int]) -> Iterator[str]:
    """The ids; those of the tokens of a picture as the first and the last of them."""
    at = 0
    while at < len(ids):
        end = at + 1
        while ids[at] >= FIRST_PICTURE_ID and end < len(ids) and ids[end] == ids[end - 1] + 1:
            end += 1
        yield str(ids[at]) if end == at + 1 else f"{ids[at]}-{ids[end - 1]}"
        at = end


TOKENIZE = Command(
    "tokenize", N_("show the token ids of a text"), _tokenize_arguments, _tokenize, _show_tokens
)
RENDER = Command(
    "render", N_("show the prompt that messages become"), _render_arguments, _render, _show_rendered
)
