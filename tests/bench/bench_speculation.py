"""Tokens per second with and without drafting, on code editing and chat, interleaved in one run.

    python -m tests.bench.bench_speculation [MODEL.gguf] [--repeat 3] [--tokens 200] [--twin F16]

MODEL defaults to $INGLENOOK_STARTER. There are two targets: the model itself, with n-gram drafting; and its
twin with all matrices in float16 (about three times a 4-bit file) or float32, written to a temporary folder,
for which the model also drafts. Each prompt is answered once with each method before the next one. Ratios are
medians over prompts and repetitions of the speed relative to the plain reply. The time in which the draft
model reads the prompt counts. Greedy replies must be the same with every method, which is checked. The last
line is one JSON object: {"target": {"work": {"temperature": {"method": {"tokens_per_second", "ratio",
"acceptance", "tokens_per_pass"}}}}}.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.chat import LocalChat, finished, open_chat
from engine.core import Done, Message, Text
from engine.generator.request import GenerationRequest
from engine.settings import CacheSettings, SamplerSettings, SpeculationSettings, StopSettings
from engine.text.template.encoding import encode_chat
from tests.tools.twins import TYPES, write_twin

CHAT = (
    "What is the capital of France, and what is it known for?",
    "Explain to a child how rainbows form.",
    "Give me ten tips for learning a new language.",
    "What are the pros and cons of working from home?",
)
PIECES = (
    ("items", "entries", '''\
def group_by_length(items, limit):
    """Put words of equal length together, those longer than the limit last."""
    groups = {}
    rest = []
    for word in items:
        if len(word) > limit:
            rest.append(word)
        else:
            groups.setdefault(len(word), []).append(word)
    ordered = [groups[length] for length in sorted(groups)]
    if rest:
        ordered.append(rest)
    return ordered


def print_groups(items, limit):
    for group in group_by_length(items, limit):
        print(len(group), ", ".join(sorted(group)))
'''),
    ("balance", "amount", '''\
class Account:
    """Money of one customer, in cents."""

    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance
        self.history = []

    def deposit(self, cents):
        if cents <= 0:
            raise ValueError("a deposit must be positive")
        self.balance += cents
        self.history.append(("deposit", cents))

    def withdraw(self, cents):
        if cents > self.balance:
            raise ValueError("not enough money")
        self.balance -= cents
        self.history.append(("withdraw", cents))

    def __str__(self):
        return f"{self.owner}: {self.balance / 100:.2f}"
'''),
    ("path", "filename", '''\
import json


def read_settings(path, defaults):
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return dict(defaults)
    unknown = set(found) - set(defaults)
    if unknown:
        raise KeyError(f"{path} has unknown settings: {sorted(unknown)}")
    return {**defaults, **found}


def write_settings(path, settings):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(settings, file, indent=2, sort_keys=True)
        file.write("\\n")
'''),
)  # fmt: skip
TASK = "Rewrite this code with `{}` renamed to `{}`. Answer with the code only.\n\n```python\n{}```"
CODE = tuple(TASK.format(*piece) for piece in PIECES)
WORK = {"code editing": CODE, "chat": CHAT}
TEMPERATURES = (0.0, 0.7)


class Departed(RuntimeError):
    """A greedy reply with drafting differs from the one without."""


@dataclass
class Figures:
    """All replies of one method: speeds in tokens/s, and relative to the plain reply."""

    speeds: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0
    passes: int = 0
    tokens: int = 0

    def add(self, done: Done, plain: float) -> float:
        """Add a reply next to a plain one of this speed (0: it is the plain one); returns its speed."""
        stats = done.stats
        speed = stats.decode_tokens_per_second
        self.speeds.append(speed)
        self.ratios.append(speed / (plain or speed))
        self.drafted, self.accepted = (
            self.drafted + stats.drafted_tokens,
            self.accepted + stats.accepted_tokens,
        )
        self.passes, self.tokens = self.passes + stats.passes, self.tokens + stats.new_tokens - 1
        return speed

    def summary(self) -> dict[str, float]:
        """Medians and shares."""
        return {
            "tokens_per_second": round(statistics.median(self.speeds), 2),
            "ratio": round(statistics.median(self.ratios), 3),
            "acceptance": round(self.accepted / self.drafted, 3) if self.drafted else 0.0,
            "tokens_per_pass": round(self.tokens / self.passes, 3) if self.passes else 0.0,
        }


def write_reply(
    chat: LocalChat, ids: list[int], temperature: float, method: str, tokens: int
) -> tuple[list[int], Done]:
    """One reply: its ids and its last event."""
    sampler, stops = SamplerSettings(temperature=temperature, seed=11), StopSettings(max_tokens=tokens)
    reply, done = list[int](), None
    request = GenerationRequest(ids, sampler, stops, SpeculationSettings(method=method))
    for event in chat.generator.stream(request):
        if isinstance(event, Text):
            reply += (token.id for token in event.tokens)
        elif isinstance(event, Done):
            done = event
    assert done is not None
    return reply, done


def measure(chat: LocalChat, methods: tuple[str, ...], repeat: int, tokens: int) -> dict[str, Any]:
    """All kinds of work at all temperatures."""
    found: dict[str, Any] = {}
    for work, prompts in WORK.items():
        for temperature in TEMPERATURES:
            figures = {method: Figures() for method in methods}
            prepared = [
                list(encode_chat(chat.tokenizer, chat.template, [Message("user", prompt)])[1])
                for prompt in prompts
            ]
            for _ in range(repeat):
                for ids in prepared:
                    measure_prompt(chat, ids, temperature, figures, tokens)
            results = {method: each.summary() for method, each in figures.items()}
            found.setdefault(work, {})[str(temperature)] = results
            for method, result in results.items():
                print(
                    f"  {work:13} T {temperature:3.1f} {method:6} {result['tokens_per_second']:7.1f} "
                    f"tokens/s  x {result['ratio']:5.2f}  accepted {100 * result['acceptance']:3.0f} %  "
                    f"{result['tokens_per_pass']:4.2f} tokens/pass", flush=True,
                )  # fmt: skip
    return found


def measure_prompt(
    chat: LocalChat, ids: list[int], temperature: float, figures: dict[str, Figures], tokens: int
) -> None:
    """Every method once on one prompt, the plain one first."""
    plain, expected = 0.0, list[int]()
    for method, each in figures.items():
        reply, done = write_reply(chat, ids, temperature, method, tokens)
        if done.stats.new_tokens < 8:
            continue
        if method == "none":
            plain, expected = each.add(done, 0.0), reply
            continue
        each.add(done, plain)
        if temperature == 0.0 and reply != expected:
            place = next(
                (i for i, pair in enumerate(zip(reply, expected, strict=False)) if pair[0] != pair[1]), -1
            )
            raise Departed(
                f"The greedy reply with {method} drafting differs from the plain one at token {place}."
            )


def measure_target(model: Path, twin: str, repeat: int, tokens: int) -> dict[str, Any]:
    """Measure the model (`twin` empty), or its twin of this type, for which the model drafts, too. Raises
    `Departed`.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        target = model
        if twin:
            target = Path(folder) / f"twin-{twin}.gguf"
            write_twin(model, target, twin)
        chat = finished(open_chat(target, cache=CacheSettings(context_length=2048)))
        stack.callback(chat.close)
        if twin:
            draft = finished(open_chat(model, cache=CacheSettings(context_length=2048)))
            stack.callback(draft.close)
            chat.generator.drafters.set_model(draft.generator.model, draft.generator.cache)
        return measure(chat, ("none", "ngram", "model") if twin else ("none", "ngram"), repeat, tokens)


def main() -> None:
    """Print a line for each figure, then the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "model", nargs="?", type=Path, default=os.environ.get("INGLENOOK_STARTER"), help="a GGUF file"
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=200, help="the longest reply")
    parser.add_argument("--twin", default="F16", choices=list(TYPES), help="type of the twin's matrices")
    options = parser.parse_args()
    if options.model is None:
        parser.error("give a model, or set INGLENOOK_STARTER")
    results = {}
    for name, twin in (("itself", ""), (f"{options.twin} twin", options.twin)):
        print(name)
        results[name] = measure_target(Path(options.model), twin, options.repeat, options.tokens)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
