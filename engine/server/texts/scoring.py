"""Work on plain text: completing it, and scoring it, which is the model's log-probability of each token of a
prompt.

A prompt is scored in short steps between the steps of replies, on pages of its own. A reply that follows
finds them in the cache; else they return at the end.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from engine.chat import LocalChat
from engine.chat.own_pages import own_pages
from engine.core import ChatRequest, Message, Stats, Waiting
from engine.errors import BadSetting
from engine.generator.decode import check_prompt
from engine.kv_cache.readings import Passes
from engine.server.host import Work
from engine.server.replies import LEAST_LOGPROB, Begun, Ended, Score, Written, chat_work, reply_work
from engine.server.texts.cut import Cut, cut_ids
from engine.server.texts.infill import Infill, infill_ids, infill_request
from engine.tensors import Floats
from engine.text.tokenizer.aside import encoded_aside

ROWS = 64
"""The rows of a step of scoring: with a large vocabulary each row of logits takes a megabyte."""


def completion_work(
    prompt: str | Sequence[int | str] | Infill | Cut | Message,
    request: ChatRequest,
    logprobs: int | None,
    *,
    echo: bool,
    write: bool,
    bos: bool = True,
) -> Work:
    """The work of one completion: with `echo` the prompt comes first, and unless `logprobs` is None with its
    scores; without `write` nothing follows it. Without `bos` a text gets no BOS token. A message is a text
    with pictures, which something follows always, and which is not repeated.
    """
    if isinstance(prompt, Message):
        return chat_work(replace(request, messages=(prompt,), plain=True), logprobs)
    request = replace(request, may_cut=True)

    def work(chat: LocalChat, stop: threading.Event) -> Generator[Any, None, None]:
        chat.check_writes()
        reply = request.stops.max_tokens if write else 1
        most = 0 if isinstance(prompt, Infill | Cut) else chat.context_length
        ids = yield from encoded_aside(chat.tokenizer, lambda: prompt_ids(chat, prompt, reply, bos=bos), most)
        check_prompt(ids, chat.vocabulary, chat.context_length)
        yield Begun()
        if echo:
            scores = None if logprobs is None else (yield from _scored(chat, ids, logprobs, keep=write))
            yield Written(_text(chat, prompt, ids), 0, tuple(scores or ()))
        if write:
            kept = infill_request(chat.tokenizer, request) if isinstance(prompt, Infill) else request
            stops = request.stops
            stop_scored = echo and logprobs is not None and not (stops.stop_strings or stops.keep_stop)
            if stop_scored:
                kept = replace(request, stops=replace(stops, keep_stop=True))
            for event in reply_work(lambda chat, stop: chat.complete(ids, kept, stop), logprobs)(chat, stop):
                yield _without_stop(chat, event) if stop_scored else event
        else:
            stats = Stats(prompt_tokens=len(ids), context_length=chat.context_length)
            yield Ended("max_tokens", "", stats)

    return work


def _without_stop(chat: LocalChat, event: Any) -> Any:
    """Text without the stop token at its end, whose score stays: lm-evaluation-harness takes the last score
    for that of the one token that it lets the model write.
    """
    if isinstance(event, Written) and event.scores and event.scores[-1].id in chat.tokenizer.stop_token_ids:
        return replace(event, text=event.text.removesuffix(event.scores[-1].text))
    return event


def prompt_ids(
    chat: LocalChat, prompt: str | Sequence[int | str] | Infill | Cut, reply: int = 0, *, bos: bool = True
) -> list[int]:
    """The ids of a prompt: a text that begins it has the BOS token that the tokenizer adds, if `bos`; ids are
    as they are. That of a gap leaves room for a reply of `reply` tokens (0: any number), up to a quarter of
    the context; of a text that may be cut, too (`cut_ids`).
    """
    if isinstance(prompt, Cut):
        return cut_ids(chat.tokenizer, prompt, chat.context_length, reply)
    if isinstance(prompt, Infill):
        quarter = chat.context_length // 4
        return infill_ids(chat.tokenizer, prompt, chat.context_length - min(reply or quarter, quarter))
    ids: list[int] = []
    for at, part in enumerate((prompt,) if isinstance(prompt, str) else prompt):
        if isinstance(part, str):
            ids += chat.tokenizer.encode(
                part, special=True, add_bos=bos and chat.tokenizer.add_bos and not at
            )
        else:
            ids.append(part)
    if not ids:
        raise BadSetting("The prompt is empty, but a model needs at least one token to continue.")
    return ids


def _text(chat: LocalChat, prompt: str | Sequence[int | str] | Infill | Cut, ids: Sequence[int]) -> str:
    return prompt if isinstance(prompt, str) else chat.tokenizer.decode(ids, skip_special=False)


def _scored(
    chat: LocalChat, ids: Sequence[int], count: int, *, keep: bool
) -> Generator[Waiting, None, list[Score]]:
    """The scores of the ids; the first has no log-probability. Yields between steps."""
    bytes_of, cache = chat.tokenizer.token_bytes, chat.generator.cache
    found = [Score(ids[0], bytes_of(ids[0]), None)]
    passes: Passes = []
    with own_pages(chat, len(ids), keep=keep) as ready:
        lease = yield from ready
        rows = min(ROWS, cache.rows)
        while len(found) < len(ids):
            at = lease.length
            part = list(ids[at : min(len(ids) - 1, at + rows)])
            passes.append((at, len(part)))
            for target, row in zip(
                ids[at + 1 : at + 1 + len(part)], cache.run(lease, part, logit_rows=len(part)), strict=True
            ):
                found.append(row_score(chat, row, target, count))
            yield Waiting()
    if keep:
        cache.readings.remember(cache.key, ids[:-1], passes)
    return found


def row_score(chat: LocalChat, row: Floats, target: int, count: int) -> Score:
    """The score of `target` under the logits (V,) before it."""
    exact = row.astype(np.float64)
    scores = exact - exact.max()
    scores -= np.log(np.exp(scores).sum())
    bytes_of = chat.tokenizer.token_bytes
    best = np.argpartition(-scores, count - 1)[:count] if count else np.empty(0, np.int64)
    top = tuple(
        Score(int(token), bytes_of(int(token)), _finite(scores[token]))
        for token in sorted(best, key=lambda token: (-scores[token], token))
    )
    return Score(target, bytes_of(target), _finite(scores[target]), top)


def _finite(value: Any) -> float:
    return float(value) if np.isfinite(value) else LEAST_LOGPROB
