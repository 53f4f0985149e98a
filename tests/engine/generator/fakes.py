"""A model whose answers depend on every token in its cache, so that any mistake with pages changes what it
says.
"""

from __future__ import annotations

import hashlib
import threading
import zlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.backends.base import Step
from engine.backends.main_memory import free_memory
from engine.backends.runs import run_singly
from engine.backends.states import NO_STATES, ConvolutionShape, States
from engine.compat.exllamav2.step_by_step import StepByStep
from engine.core import PAGE_TOKENS
from engine.generator.dynamic import DynamicGenerator
from engine.generator.request import GenerationRequest
from engine.generator.streaming import StreamingGenerator, TokenEvent
from engine.models.base import SPARE_PAGES
from engine.models.paged import PagedCache
from engine.settings import CacheSettings, SamplerSettings, StopSettings
from engine.tensors import Floats
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.text.tokenizer.vocabularies import byte_level_metadata

Answering = Callable[[list[int]], Floats]


@lru_cache
def tokenizer() -> Tokenizer:
    """A real byte-level tokenizer, small."""
    return Tokenizer.from_gguf(byte_level_metadata())


def random_logits(sequence: list[int]) -> Floats:
    """Logits drawn from a generator seeded with the whole sequence; control tokens are out of reach."""
    seed = zlib.crc32(np.array(sequence, np.int64).tobytes())
    logits = np.random.default_rng(seed).normal(size=tokenizer().vocab_size).astype(np.float32)
    logits[sorted(tokenizer().special_ids)] = -50.0
    return logits


class Scripted:
    """Says given ids after a prompt of a given length, whatever the prompt says."""

    def __init__(self, prompt_tokens: int, ids: Sequence[int]) -> None:
        self.prompt_tokens, self.ids = prompt_tokens, list(ids)

    def __call__(self, sequence: list[int]) -> Floats:
        logits = np.zeros(tokenizer().vocab_size, np.float32)
        logits[self.ids[len(sequence) - self.prompt_tokens]] = 30.0
        return logits


_SAVED_TEXTS: dict[bytes, list[int]] = {}
"""The texts of states by what a file has of them."""


class FakeStore:
    """Keeps the token id where a real cache keeps keys and values; -1 was never written. A state is the text
    that it sums up; None was never written.
    """

    dtype = "fake"
    page_bytes = 8 * PAGE_TOKENS

    def __init__(self, page_count: int, states: int = 0) -> None:
        self.states = States((ConvolutionShape(1, 2),), states) if states else NO_STATES
        self.texts: list[list[int] | None] = [None] * states
        self.page_count = page_count
        self.nbytes = page_count * self.page_bytes
        self.slots = np.full((page_count, PAGE_TOKENS), -1, np.int64)

    def read_page(self, page: int) -> npt.NDArray[np.uint8]:
        return self.slots[page].view(np.uint8).copy()

    def write_page(self, page: int, content: npt.NDArray[np.uint8]) -> None:
        self.slots[page] = content.view(np.int64)

    def read_state(self, number: int) -> npt.NDArray[np.uint8]:
        text = self.texts[number]
        assert text is not None, "a state that was never written would be saved"
        content = np.frombuffer(
            hashlib.blake2b(np.array(text, np.int64).tobytes()).digest(), np.uint8
        )  # 64 bytes, as many as the state's shape says
        _SAVED_TEXTS[content.tobytes()] = list(text)
        return content

    def write_state(self, number: int, content: npt.NDArray[np.uint8]) -> None:
        self.texts[number] = _SAVED_TEXTS[content.tobytes()]

    def close(self) -> None:
        """Nothing to release."""

    def copy_page(self, runner: int, target: int) -> None:
        self.slots[target] = self.slots[runner]


class FakeProgram:
    """Runs steps over a `FakeStore`; `ran` has the rows of each run."""

    def __init__(self, model: FakeModel, store: FakeStore, max_rows: int) -> None:
        self.model, self.store, self.max_rows, self.batch_rows = model, store, max_rows, 8
        self.ran: list[int] = []
        self.before_run: Callable[[], None] = lambda: None
        self._latest: Floats = np.empty(0, np.float32)  # logits hold until the next run

    def run(self, step: Step) -> Floats:
        if step.runs:
            assert len(step.token_ids) <= self.batch_rows
            return run_singly(self.run, step)
        self.before_run()
        count = len(step.token_ids)
        assert 0 < count <= self.max_rows
        self.ran.append(count)
        places = step.pages[step.positions // PAGE_TOKENS], step.positions % PAGE_TOKENS
        self.store.slots[places] = step.token_ids
        length = int(step.positions[-1]) + 1
        everywhere = np.arange(length)
        sequence = self.store.slots[step.pages[everywhere // PAGE_TOKENS], everywhere % PAGE_TOKENS].tolist()
        assert -1 not in sequence, "the model would read keys that were never written"
        if self.store.texts:
            ((before, after),) = step.states
            text = [] if before < 0 else self.store.texts[before]
            assert text is not None, "the model would read a state that was never written"
            assert len(text) == step.positions[0], "the model would read the state of another position"
            sequence = [*text, *step.token_ids.tolist()]
            self.store.texts[after] = sequence
        self._latest.fill(np.nan)
        self._latest = np.stack(
            [self.model.answering(sequence[: length - back]) for back in reversed(range(step.logit_rows))]
        )
        return self._latest

    def close(self) -> None:
        pass


class FakeModel:
    """Just enough of `engine.models` for the generator."""

    def __init__(
        self, answering: Answering = random_logits, context_length: int = 4096, states: int = 0
    ) -> None:
        self.answering, self.states = answering, states
        shape = {"layers": 1, "width": 8, "heads": 1, "kv_heads": 1, "head_dim": 8, "ffn_width": 8}
        self.config = SimpleNamespace(
            vocab_size=tokenizer().vocab_size,
            context_length=context_length,
            advised_context=context_length,
            kv_shapes=((1, 8),),
            bidirectional=False,
            headless=False,
            **shape,
        )
        self.backend = SimpleNamespace(name="fake", free_memory=free_memory)
        self.own_vocabulary = self.config.vocab_size
        self.weight_bytes_per_token = 1000
        self.kept = self.features = None
        self.program: FakeProgram
        self.closed = False

    def page_bytes(self, dtype: str) -> int:
        return 1 << 62  # so that the automatic memory holds one context

    def new_cache(self, tokens: int, dtype: str, further_pages: int = 0) -> FakeStore:
        return FakeStore(-(-tokens // PAGE_TOKENS) + SPARE_PAGES + further_pages, self.states)

    def record(self, cache: FakeStore, max_rows: int, context: int = 0) -> FakeProgram:
        self.program = FakeProgram(self, cache, max_rows)
        return self.program

    def close(self) -> None:
        self.closed = True


def make(
    answering: Answering = random_logits, context: int = 1024, rows: int | None = None
) -> tuple[StreamingGenerator, FakeModel]:
    """A generator over a fresh fake; `rows` makes prefill chunks small."""
    model: Any = FakeModel(answering)
    cache = PagedCache(model, CacheSettings(context_length=context))
    if rows:
        cache.rows = rows
    return StreamingGenerator(model, cache, tokenizer()), model


def make_dynamic(
    answering: Answering = random_logits, context: int = 1024
) -> tuple[DynamicGenerator, FakeModel]:
    """A dynamic generator over a fresh fake."""
    model: Any = FakeModel(answering)
    return DynamicGenerator(
        model, PagedCache(model, CacheSettings(context_length=context)), tokenizer()
    ), model


def stream(
    generator: StreamingGenerator,
    ids: Sequence[int],
    sampler: SamplerSettings = SamplerSettings(),
    stops: StopSettings = StopSettings(),
    *,
    stop: threading.Event | None = None,
    **more: Any,
) -> Generator[TokenEvent, None, None]:
    """The events of a `GenerationRequest` of these fields."""
    return generator.stream(GenerationRequest(ids, sampler, stops, **more), stop)


def stepping(generator: StreamingGenerator, ids: Sequence[int], *more: Any, **fields: Any) -> StepByStep:
    """A sequence that has begun, to be gone through step by step."""
    steps = StepByStep(generator)
    begin(steps, ids, *more, **fields)
    return steps


def begin(
    steps: StepByStep,
    ids: Sequence[int],
    *more: Any,
    stop: threading.Event | None = None,
    probabilities: bool = False,
    max_new_tokens: int = 0,
    **fields: Any,
) -> None:
    """Begin the sequence of a `GenerationRequest` of these fields, under the present stop rules."""
    rules = replace(steps.rules, max_tokens=max_new_tokens)
    steps.begin(GenerationRequest(ids, *more, stops=rules, **fields), stop, probabilities=probabilities)


def all_steps(steps: StepByStep) -> list[dict[str, Any]]:
    """The results of every step to the end."""
    results: list[dict[str, Any]] = []
    while not results or not results[-1]["eos"]:
        results.append(steps.step())
    return results


def fresh_reply(ids: Sequence[int], count: int) -> list[int]:
    """What the fake says greedily after `ids`, worked out without any cache."""
    sequence = list(ids)
    for _ in range(count):
        sequence.append(int(random_logits(sequence).argmax()))
    return sequence[len(ids) :]
