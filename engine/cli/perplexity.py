"""Command `perplexity`: how well a model predicts a text, by llama.cpp's method.

The text is tokenised as a whole and cut into windows. The first token of each window is replaced
by BOS if the tokenizer adds one. The predictions in the second half of each window are scored.
Source: llama.cpp, tools/perplexity/README.md.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.cli.command import Answer, Command, Console
from engine.cli.flags import add_model, add_settings, read_file, read_settings, shown_path
from engine.cli.logits import log_softmax
from engine.cli.opening import opened
from engine.errors import BadCheckpoint, BadSetting
from engine.settings import CacheSettings
from engine.words import N_, _, ngettext

if TYPE_CHECKING:
    from engine.models.paged import PagedCache

_MOST_NATS = 700.0
"""A larger mean loss has no finite perplexity."""
_SCORED_ROWS = 64
"""Rows of logits kept at once: with a large vocabulary each takes a megabyte in float64."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser, cache=False)
    parser.add_argument(
        "--file", type=Path, required=True, help=_("a UTF-8 file with the text; - is the standard input")
    )
    parser.add_argument(
        "--context", metavar="N", type=int, default=512, help=_("tokens in a window; default: %(default)s")
    )
    add_settings(parser, CacheSettings, without=("context_length",))


def _answer(options: argparse.Namespace, console: Console) -> Answer:
    size, text = options.context, read_file(options.file)
    if size < 4:
        raise BadSetting(_("--context is {size}, but a window needs at least 4 tokens.", size=size))
    with opened(
        options, console, replace(read_settings(CacheSettings, options), context_length=size)
    ) as chat:
        tokenizer, cache = chat.tokenizer, chat.generator.cache
        begin = tokenizer.encode("", add_bos=tokenizer.add_bos)
        ids = tokenizer.encode(text, add_bos=tokenizer.add_bos)
        windows = len(ids) // size
        if not windows:
            raise BadSetting(
                _(
                    "{path} has {tokens}, but a window needs {size}; give a longer text or a smaller "
                    "--context.",
                    path=shown_path(options.file),
                    tokens=ngettext("{n} token", "{n} tokens", len(ids)),
                    size=size,
                )
            )
        total, count = 0.0, 0
        for index in range(windows):
            window = ids[index * size : (index + 1) * size]
            window[: len(begin)] = begin
            total += negative_log_likelihood(cache, window)
            count += size - size // 2 - 1
            console.progress(
                _(
                    "Window {number} of {total}: perplexity {perplexity:.4f}",
                    number=index + 1, total=windows, perplexity=_perplexity(total / count),
                )
            )  # fmt: skip
        console.clear()
        return {"perplexity": _perplexity(total / count), "tokens": count, "windows": windows}


def _perplexity(nats: float) -> float:
    if not nats < _MOST_NATS:
        raise BadCheckpoint(
            _(
                "The model considers parts of this text impossible, so it has no perplexity. Its weights "
                "may be damaged."
            )
        )
    return math.exp(nats)


def negative_log_likelihood(cache: PagedCache, window: list[int]) -> float:
    """Sum over the second half of a window, in nats: positions size/2 ... size-2 predict the next token."""
    first, last = len(window) // 2, len(window) - 1
    total = 0.0
    with cache.table.open(()) as lease:
        while lease.length < first:
            cache.run(lease, window[lease.length : min(first, lease.length + cache.rows)])
        while lease.length < last:
            start = lease.length
            part = window[start : min(last, start + min(_SCORED_ROWS, cache.rows))]
            scores = log_softmax(cache.run(lease, part, logit_rows=len(part)))
            targets = window[start + 1 : start + 1 + len(part)]
            total -= float(scores[np.arange(len(part)), targets].sum())
    return total


def _show(answer: Answer) -> str:
    return _(
        "perplexity {perplexity:.4f} over {tokens} in {windows}",
        perplexity=answer["perplexity"],
        tokens=ngettext("{n} scored token", "{n} scored tokens", answer["tokens"]),
        windows=ngettext("{n} window", "{n} windows", answer["windows"]),
    )


PERPLEXITY = Command("perplexity", N_("measure how well a model predicts a text"), _arguments, _answer, _show)
