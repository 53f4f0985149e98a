"""Passes over several sequences on the CUDA backend: every row's logits are those of its sequence alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from engine.backends.base import Program, Step
from engine.backends.cuda.lowering.call import SMALL_BATCH
from engine.backends.cuda.program import CudaProgram
from engine.backends.decode_loop import SamplingPlan
from engine.core import PAGE_TOKENS
from engine.models import Model
from tests.engine.models.architectures import write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.simt.backend.test_cache import TYPES, some
from tests.simt.fake import FakeDevice
from tests.simt.whole import on_gpu
from tests.tiny import TINY, write_gguf

DEPTHS = (0, 12, 253, 301)
"""What is read of each sequence before: q4 keys take a mean from position 16 on, and from a page's start."""
SHALLOW = (0, 12, 31, 50)
"""The same for models with fewer positions."""
STEPS = ((1, 1, 1, 1), (1, 4, 1, 2), (3, 1, 3, 1), (1, 4, 3, 0), (2, 2, 2, 2), (5, 0, 1, 2), (1, 1, 0, 0))
"""The rows of each sequence in successive passes; one with 0 takes no part."""
PAGES = 2
"""Pages of each sequence."""


class Text:
    """A sequence: its tokens, its block table, and how much of it was read."""

    def __init__(self, seed: int, pages: Sequence[int], vocabulary: int) -> None:
        length = len(pages) * PAGE_TOKENS
        self.ids = np.random.default_rng(seed).integers(3, vocabulary, length).astype(np.int32)
        self.pages, self.length = np.array(pages, np.int32), 0

    def step(self, rows: int) -> Step:
        """The next rows, all with logits, and the pages that they need."""
        place = np.arange(self.length, self.length + rows, dtype=np.int32)
        self.length += rows
        return Step(self.ids[place], place, self.pages[: -(-self.length // PAGE_TOKENS)], rows)


def texts(vocabulary: int, first_page: int) -> list[Text]:
    """The sequences of `DEPTHS`, on pages from `first_page` on, none in order."""
    out, number = [], len(DEPTHS)
    for seed in range(number):
        pages = [first_page + number * at + seed for at in reversed(range(PAGES))]
        out.append(Text(seed, pages, vocabulary))
    return out


def joined(steps: Sequence[Step], logit_rows: int = 0) -> Step:
    """One pass over the sequences of these steps."""
    return Step(
        np.concatenate([step.token_ids for step in steps]),
        np.concatenate([step.positions for step in steps]),
        np.concatenate([step.pages for step in steps]),
        logit_rows or sum(len(step.token_ids) for step in steps),
        tuple((len(step.token_ids), len(step.pages)) for step in steps),
    )


def read(program: Program, text: Text, depth: int) -> None:
    """Read the beginning of a sequence."""
    while text.length < depth:
        program.run(text.step(min(depth - text.length, program.max_rows)))


def check(model: Model, dtype: str, devices: Sequence[FakeDevice], depths: tuple[int, ...] = DEPTHS) -> None:
    """Bit for bit: the sequences stepped together, and each of them alone."""
    vocabulary, pages = model.config.vocab_size, PAGES * len(depths)
    cache = model.backend.new_cache(model.config.cache_shapes, 2 * pages, dtype)
    program = model.record(cache, 64, min(PAGES * PAGE_TOKENS, model.config.context_length))
    together, alone = texts(vocabulary, 0), texts(vocabulary, pages)
    for one, other, depth in zip(together, alone, depths, strict=True):
        read(program, one, depth)
        read(program, other, depth)
    for rows in STEPS:
        parts = [text.step(count) for text, count in zip(together, rows, strict=True) if count]
        found = program.run(joined(parts)).copy()
        singles = [text.step(count) for text, count in zip(alone, rows, strict=True) if count]
        expected = np.concatenate([program.run(step).copy() for step in singles])
        assert np.isfinite(expected).all()
        assert found.tobytes() == expected.tobytes()
        # the logits of the last rows alone; what is written twice is the same
        assert program.run(joined(parts, 2)).tobytes() == expected[-2:].tobytes()
    recorded = [device.records for device in devices]
    for rows in ((4, 2, 1, 1), (7, 1, 0, 0), (1, 0, 7, 0)):
        program.run(joined([text.step(count) for text, count in zip(together, rows, strict=True) if count]))
    assert [device.records for device in devices] == recorded, "a graph serves every mixture of sequences"
    program.close()
    cache.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gpu") / "m.gguf", TINY.but(layers=1), "F32")


@pytest.mark.parametrize("dtype", some(TYPES, "fp32", "q4"))
def test_cache_types(path: Path, dtype: str) -> None:
    device = FakeDevice()
    model = on_gpu(path, device)
    check(model, dtype, [device])
    model.close()


@pytest.mark.parametrize(
    "name", some(("Llama", "Gemma 3", "GPT-OSS", "GPT-2", "Qwen 3", "Mixtral"), "GPT-OSS", "GPT-2")
)
def test_architectures(name: str, tmp_path: Path) -> None:
    """Windows, sinks, norms of heads, learned positions, experts."""
    device = FakeDevice()
    model = on_gpu(write_checkpoint(BY_NAME[name], tmp_path / "model"), device)
    check(model, "fp16", [device], DEPTHS if model.config.context_length > DEPTHS[-1] + 20 else SHALLOW)
    model.close()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", some(("fp16", "q4"), "q4"))
def test_layers_on_several_devices(tmp_path: Path, dtype: str) -> None:
    devices = [FakeDevice(index=index) for index in range(2)]
    model = on_gpu(write_gguf(tmp_path / "m.gguf", TINY, "F32"), devices)
    check(model, dtype, devices)
    assert all(device.done for device in devices)
    model.close()


def test_a_reply_between_passes_over_several_sequences(path: Path) -> None:
    """A decode loop runs steps of one sequence and sends no runs: those of the last pass do not matter."""
    model = on_gpu(path)
    found = []
    for mixed in (False, True):
        cache = model.backend.new_cache(model.config.cache_shapes, 4, "fp16")
        program = model.record(cache, 64, 2 * PAGE_TOKENS)
        assert isinstance(program, CudaProgram)
        one, other = (Text(seed, (2 * seed, 2 * seed + 1), model.config.vocab_size) for seed in range(2))
        program.run(one.step(5))
        if mixed:
            program.run(joined([other.step(5), one.step(3)]))
        loop = program.decode_loop(SamplingPlan(model.config.vocab_size, greedy=True))
        assert loop is not None
        loop.start(one.ids[:5].tolist(), one.pages, lambda place: 0.0)
        samples = [loop.next(further) for further in (1, 1, 0)]
        found.append([sample.id for sample in samples if sample is not None])
        loop.close()
        program.close()
        cache.close()
    assert len(found[0]) == 3
    assert found[0] == found[1]
    model.close()


def test_more_rows_than_a_small_batch_are_refused(path: Path) -> None:
    model = on_gpu(path)
    cache = model.backend.new_cache(model.config.cache_shapes, 2, "fp16")
    program = model.record(cache, 64, PAGE_TOKENS)
    parts = [Text(seed, (seed,), model.config.vocab_size).step(5) for seed in range(2)]
    assert program.batch_rows == SMALL_BATCH < 10
    with pytest.raises(AssertionError):
        program.run(joined(parts))
    program.close()
    cache.close()
    model.close()
