"""Commands `tokenize` and `render`: the output of a model's tokenizer and chat template.

No weights are read.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.cli.command import Answer, Command, Console
from engine.cli.flags import add_settings, model_path, read_file, read_settings
from engine.cli.opening import read_messages
from engine.core import Message
from engine.models.open_text import open_text
from engine.settings import ThinkingSettings
from engine.text.template.encoding import encode_chat
from engine.text.template.template import ChatTemplate
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.words import N_, _, ngettext


def _open(model: str) -> tuple[Tokenizer, ChatTemplate]:
    from engine.weights.checkpoint import open_checkpoint

    return open_text(open_checkpoint(model))


def _tokenize_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=model_path, help=_("a GGUF file or a model folder"))
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", help=_("the text"))
    source.add_argument("--file", type=Path, help=_("a UTF-8 file with the text"))
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
    add_settings(parser, ThinkingSettings)


def _render(options: argparse.Namespace, console: Console) -> Answer:
    tokenizer, template = _open(options.model)
    messages: tuple[Message, ...] = read_messages(options.messages)
    way = template.switch.way(read_settings(ThinkingSettings, options).thinking)
    text, ids = encode_chat(
        tokenizer,
        template,
        way.messages(messages),
        add_generation_prompt=not options.continue_last,
        continue_last=options.continue_last,
        variables=way.variables,
    )
    return {"text": text, "ids": ids}


def _show_rendered(answer: Answer) -> str:
    ids = " ".join(map(str, answer["ids"]))
    listed = ngettext("{n} token: {ids}", "{n} tokens: {ids}", len(answer["ids"]), ids=ids)
    return f"{answer['text']}\n\n{listed}"


TOKENIZE = Command(
    "tokenize", N_("show the token ids of a text"), _tokenize_arguments, _tokenize, _show_tokens
)
RENDER = Command(
    "render", N_("show the prompt that messages become"), _render_arguments, _render, _show_rendered
)
