"""The gain of n-gram drafting and of draft lengths, computed from recorded replies and so independent of
load.

    python -m tests.bench.simulate_drafting [MODEL.gguf ...] [--tokens 200]

MODEL defaults to $INGLENOOK_STARTER. Each model writes its replies once without drafting; then a drafter
guesses them again pass by pass, and the cost of each pass, in plain passes, comes from a table: rows that
cost the same each, and rows in blocks of four as kernels take them. A draft model is simulated by a coin: it
is right with a given probability, and each guess costs a third of a pass. The last line is one JSON object:
{"ngram": {model: {costs: {work: [median, least]}}}, "model": {costs: {rate: [by clocks, with an explicit
seed]}}}, speeds relative to plain passes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engine.chat import finished, open_chat
from engine.core import Message
from engine.settings import CacheSettings
from engine.speculation.draft_length import DraftLengthController
from engine.speculation.ngram import NgramDrafter
from engine.text.template.encoding import encode_chat
from tests.bench.bench_speculation import TEMPERATURES, WORK, write_reply

Cost = Callable[[int], float]
_BLOCKS = (1.0, 1.05, 1.1, 1.2, 1.9, 1.95, 2.0, 2.1)
COSTS: dict[str, Cost] = {
    "0.1 a row": lambda guessed: 1 + 0.1 * guessed,
    "0.3 a row": lambda guessed: 1 + 0.3 * guessed,
    "1.0 a row": lambda guessed: 1 + 1.0 * guessed,
    "blocks of 4": lambda guessed: _BLOCKS[guessed],
}
_LONGEST = 5
_SHARE = 1 / 3
_SECONDS = 0.02


def replayed(
    prompt: Sequence[int], reply: Sequence[int], cost: Cost, pace: DraftLengthController, draw: random.Random
) -> float:
    """The speed, relative to plain passes, at which n-gram drafting writes a known reply."""
    drafter, ids, spent = NgramDrafter(), [*prompt, reply[0]], 0.0
    drafter.extra_cost = pace.extra_cost
    drafter.begin(prompt)
    while (written := len(ids) - len(prompt)) < len(reply):
        count = min(pace.next_length(), len(reply) - written - 1)
        guesses = [proposal.id for proposal in drafter.propose(ids, count)] if count else []
        right = next(
            (i for i, (one, other) in enumerate(zip(guesses, reply[written:], strict=False)) if one != other),
            len(guesses),
        )
        ids += reply[written : written + right + 1]
        spent += cost(len(guesses))
        pace.record(
            len(guesses), right, right + 1, _SECONDS * cost(len(guesses)) * draw.lognormvariate(0.0, 0.15)
        )
    return (len(reply) - 1) / spent


def tossed(rate: float, tokens: int, cost: Cost, pace: DraftLengthController, draw: random.Random) -> float:
    """The relative speed with a draft model that is right with this probability."""
    written, spent = 0, 0.0
    while written < tokens:
        count = pace.next_length()
        right = next((i for i in range(count) if draw.random() >= rate), count)
        passed = cost(count) + _SHARE * count
        written, spent = written + right + 1, spent + passed
        pace.record(count, right, right + 1, _SECONDS * passed * draw.lognormvariate(0.0, 0.15))
    return written / spent


def recorded(model: Path, tokens: int) -> list[tuple[str, list[int], list[int]]]:
    """(work, prompt, reply) of plain replies."""
    chat, found = finished(open_chat(model, cache=CacheSettings(context_length=2048))), []
    try:
        for work, prompts in WORK.items():
            for prompt in prompts:
                ids = list(encode_chat(chat.tokenizer, chat.template, [Message("user", prompt)])[1])
                replies = [
                    write_reply(chat, ids, temperature, "none", tokens)[0] for temperature in TEMPERATURES
                ]
                found += [(work, ids, reply) for reply in replies if len(reply) >= 8]
    finally:
        chat.close()
    return found


def of_ngrams(model: Path, tokens: int) -> dict[str, Any]:
    """Median and least speed for each table of costs and kind of work; the draft length carries over between
    replies, as in a session.
    """
    replies, found = recorded(model, tokens), dict[str, Any]()
    for name, cost in COSTS.items():
        for work in WORK:
            pace, draw = DraftLengthController(_LONGEST, free=True), random.Random(1)
            speeds = [
                replayed(prompt, reply, cost, pace, draw) for kind, prompt, reply in replies if kind == work
            ]
            found.setdefault(name, {})[work] = [round(statistics.median(speeds), 3), round(min(speeds), 3)]
            print(
                f"  n-grams      {name:12} {work:13} x {statistics.median(speeds):5.2f}, least "
                f"{min(speeds):5.2f}",
                flush=True,
            )
    return found


def of_models(tokens: int) -> dict[str, Any]:
    """Median speed by clocks and with an explicit seed, for each table of costs and acceptance rate."""
    found: dict[str, Any] = {}
    for name, cost in COSTS.items():
        for rate in (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95):
            both = []
            for fixed in (False, True):
                paces = [
                    DraftLengthController(_LONGEST, deterministic=fixed, guess_cost=_SHARE + 0.1)
                    for _ in range(21)
                ]
                both.append(
                    statistics.median(
                        tossed(rate, tokens, cost, pace, random.Random(i)) for i, pace in enumerate(paces)
                    )
                )
            found.setdefault(name, {})[str(rate)] = [round(speed, 3) for speed in both]
            print(
                f"  draft model  {name:12} right {rate:4.0%}  x {both[0]:5.2f} by clocks, {both[1]:5.2f} "
                "with a seed",
                flush=True,
            )
    return found


def main() -> None:
    """Print a line for each figure, then the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path, help="GGUF files")
    parser.add_argument("--tokens", type=int, default=200, help="the longest reply")
    options = parser.parse_args()
    models = (
        options.models or [Path(os.environ["INGLENOOK_STARTER"])]
        if options.models or "INGLENOOK_STARTER" in os.environ
        else []
    )
    if not models:
        parser.error("give a model, or set INGLENOOK_STARTER")
    ngrams = {}
    for model in models:
        print(model.name)
        ngrams[model.name] = of_ngrams(model, options.tokens)
    print(json.dumps({"ngram": ngrams, "model": of_models(options.tokens)}))


if __name__ == "__main__":
    main()
