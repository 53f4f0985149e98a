"""Row `right` of `tests.bench.bench_cpu`: how far our log-probabilities of the next token are from the exact
ones.

The exact oracle is llama.cpp on the same weights dequantised to an F32 file, with an F32 cache. It writes 32
tokens greedily for each prompt of `tests/golden/prompts.json` (a model without a chat template gets the text
prompts). We are compared after the prompt and after each of these tokens: with the whole text as prefill,
with the 32 tokens one by one, and four at a time, as drafts are checked; llama.cpp on the original file is
compared in the same way, all at once and one by one. "Every position" is prefill, compared after each token
of the prompts, too: text that the model would not have written itself, where 8-bit prompts are further off.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.models.paged import PagedCache
from tests.bench.cpu_kit import Line, Options, opened
from tests.tools.twins import write_twin

Array = np.ndarray[Any, Any]
MARGIN = 0.1
"""Nats between the oracle's two likeliest tokens, above which a greedy choice must be the same."""

_JUDGED = ("prefill", "one by one", "fours")
_SKIPPED = 8
"""Positions at the start of a text whose every other position is compared: too few tokens tell the next."""


@dataclass
class Distance:
    """The distance of one way of computing, over all prompts."""

    differences: list[Array] = field(default_factory=list)
    divergences: list[Array] = field(default_factory=list)
    changed: list[Array] = field(default_factory=list)
    margins: list[Array] = field(default_factory=list)

    def add(self, exact: Array, found: Array) -> None:
        """Add the log-probabilities (T, V) of both."""
        top = np.argsort(-exact, axis=1)[:, :10]
        best = np.take_along_axis(exact, top, 1)
        self.differences.append(np.abs(best - np.take_along_axis(found, top, 1)))
        self.divergences.append((np.exp(exact) * (exact - found)).sum(1))
        self.changed.append(top[:, 0] != found.argmax(1))
        self.margins.append(best[:, 0] - best[:, 1])

    def lines(self, work: str, ours: bool) -> Iterator[Line]:
        """The figures; only ours have bars."""
        differences, changed = np.concatenate(self.differences), np.concatenate(self.changed)
        margins = np.concatenate(self.margins)[changed]
        mean, worst, count = float(differences.mean()), float(differences.max()), len(changed)
        departures = int((margins > MARGIN).sum())
        bar = 0.02 if ours else None
        divergence = float(np.concatenate(self.divergences).mean())
        yield Line(
            "right",
            f"{work}, top 10",
            worst,
            "worst",
            mean,
            "nats",
            bar,
            at_most=True,
            rival="mean KL",
            theirs=divergence,
        )
        yield Line(
            "right", f"{work}, greedy", float(changed.sum()), f"/{count}", float(departures),
            f"above {MARGIN} nats", 0.0 if ours else None, at_most=True, rival="widest margin, nats",
            theirs=float(margins.max(initial=0.0)),
        )  # fmt: skip


def right(options: Options, work: str) -> Iterator[Line]:
    """Compare us and llama.cpp with the exact oracle."""
    from tests.tools.oracle_llama_cpp import CONTINUATION, GOLDEN, greedy, log_softmax, open_llama, prompt_ids

    path = options.model(work)
    exact_path = options.keep / f"{path.stem}-f32.gguf"
    if not exact_path.is_file():
        exact_path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = exact_path.with_suffix(".part")
        write_twin(path, unfinished)
        unfinished.rename(exact_path)
    others = "every position", "llama.cpp prefill", "llama.cpp one by one"
    found = {name: Distance() for name in (*_JUDGED, *others)}
    with ExitStack() as stack:
        _, cache = stack.enter_context(opened(path, options.threads, 1024, prompt_bits=options.prompt_bits))
        oracle, rival = (
            stack.enter_context(closing(open_llama(file, exact)))
            for file, exact in ((exact_path, True), (path, False))
        )
        prompts = json.loads((GOLDEN / "prompts.json").read_text("utf-8"))
        asked = [
            prompt for prompt in prompts if "text" in prompt or "tokenizer.chat_template" in oracle.metadata
        ]
        for prompt in asked:
            ids = prompt_ids(oracle, prompt)
            first = len(ids) - 1
            whole = ids + greedy(oracle, ids)
            exact = log_softmax(oracle.scores[first : len(whole)])
            ours = _rows(cache, whole, 0, cache.rows)
            found["prefill"].add(exact, log_softmax(ours[first:]))
            found["every position"].add(
                log_softmax(oracle.scores[_SKIPPED : len(whole)]), log_softmax(ours[_SKIPPED:])
            )
            for name, step in (("one by one", 1), ("fours", 4)):
                found[name].add(exact, log_softmax(_rows(cache, whole, len(ids), step)))
            rival.reset()
            rival.eval(whole)
            found["llama.cpp prefill"].add(exact, log_softmax(rival.scores[first : len(whole)]))
            rival.reset()
            rival.eval(ids)
            for token in whole[len(ids) :]:
                rival.eval([token])
            found["llama.cpp one by one"].add(exact, log_softmax(rival.scores[first : len(whole)]))
    print(f"    {len(asked)} prompts, {CONTINUATION + 1} positions each", flush=True)
    for name, distance in found.items():
        yield from distance.lines(f"{work} {name}", name in _JUDGED)


def _rows(cache: PagedCache, ids: list[int], prompt: int, step: int) -> Array:
    """Logits (T, V) after the last token of the prompt (0: none) and after every following one, `step` at a
    time.
    """
    lease, rows = cache.table.open(()), []
    for at in range(0, prompt, cache.rows):
        last = cache.run(lease, ids[at : min(at + cache.rows, prompt)]).copy()
    if prompt:
        rows.append(last)
    for at in range(prompt, len(ids), step):
        piece = ids[at : at + step]
        rows.append(cache.run(lease, piece, len(piece)).copy())
    lease.close()
    return np.concatenate(rows)
