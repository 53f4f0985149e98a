"""Command `logits`: the likeliest next tokens after a prompt, from the model's raw logits."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from engine.cli.command import Answer, Command, Console
from engine.cli.flags import add_model, add_prompt, read_settings
from engine.cli.opening import opened, prompt_ids
from engine.drain import drain
from engine.errors import BadCheckpoint, BadSetting
from engine.platform.terminal import padded
from engine.settings import CacheSettings
from engine.tensors import Floats
from engine.units import number_text
from engine.words import N_, _, ngettext

if TYPE_CHECKING:
    from engine.chat import LocalChat


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_prompt(parser, messages=False)
    parser.add_argument(
        "--top", metavar="K", type=int, default=10, help=_("how many tokens to list; default: %(default)s")
    )


def _answer(options: argparse.Namespace, console: Console) -> Answer:
    from engine.generator.decode import check_prompt, driven
    from engine.generator.runner import SequenceRunner

    if options.top < 1:
        raise BadSetting(
            _("{flag} is {value}, but it must be at least {low}.", flag="--top", value=options.top, low=1)
        )
    with _opened(options, console) as (chat, ids):
        cache = chat.generator.cache
        check_prompt(ids, cache.model.config.vocab_size, cache.context_length)
        runner = SequenceRunner(cache, ids)
        runner.open()
        try:
            logits = drain(driven(runner.prefill(None), cache))
        finally:
            runner.close()
        assert logits is not None  # no stop event was given
        scores = log_softmax(logits[None])[0]
        # leave out tokens of probability 0
        best = [i for i in np.argsort(-scores, kind="stable")[: options.top] if np.isfinite(scores[i])]
        top = [
            {"id": int(i), "piece": chat.tokenizer.piece(int(i)), "logprob": float(scores[i])} for i in best
        ]
        return {"prompt_ids": ids, "top": top}


@contextmanager
def _opened(options: argparse.Namespace, console: Console) -> Iterator[tuple[LocalChat, list[int]]]:
    """The model and the ids of the prompt, which an automatic context holds if the model reads as many."""
    settings = read_settings(CacheSettings, options)
    with opened(options, console, settings) as chat:
        ids = prompt_ids(options, chat.tokenizer)
        if settings.context_length or not chat.context_length < len(ids) <= chat.info.context_length:
            yield chat, ids
            return
    with opened(options, console, replace(settings, context_length=len(ids))) as chat:
        yield chat, ids


def log_softmax(logits: Floats) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Natural log-probabilities of each row of `logits` (rows, V), in float64.

    Raises `BadCheckpoint` if a row holds NaN or +inf, or only -inf.
    """
    if not np.isfinite(logits.max(axis=1)).all():  # max propagates NaN
        raise BadCheckpoint(
            _(
                "The model's scores for the next token are not finite numbers, so its weights are "
                "damaged. Download it again."
            )
        )
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    result: np.ndarray[tuple[int, int], np.dtype[np.float64]] = shifted - np.log(
        np.exp(shifted).sum(axis=1, keepdims=True)
    )
    return result


def _show(answer: Answer) -> str:
    lines = [ngettext("after {n} token:", "after {n} tokens:", len(answer["prompt_ids"]))]
    for row in answer["top"]:
        probability = padded(number_text(np.exp(row["logprob"]), ".4f"), 8, right=True)
        nats = padded(number_text(row["logprob"], ".4f"), 9, right=True)
        lines.append(f"{probability}  {nats}  {row['id']:>7}  {row['piece']!r}")
    return "\n".join(lines)


LOGITS = Command("logits", N_("list the most likely next tokens"), _arguments, _answer, _show)
