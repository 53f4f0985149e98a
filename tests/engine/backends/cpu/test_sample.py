"""Sampling as the last part of a pass: the host's results bit for bit, and how many steps run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from engine.backends.base import AttentionShape, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.kernels.sample import MIN_SCANNED
from engine.backends.cpu.program import CpuProgram
from engine.backends.cpu.runtime.sampling_block import MOST_ENDS, MOST_STEPS, SamplingBlock
from engine.sampling import passes
from engine.sampling.kernels import Pick, ScanBuffers
from engine.weights.tensor import FileTensor

WARM = ((passes.KEEP_TOP, 40.0), (passes.SCALE, 0.8), (passes.KEEP_NUCLEUS, 0.95))
SIZES = [MIN_SCANNED, 5 * passes.BLOCK + 403, 49_152, 100_004]


@contextmanager
def recorded(table: np.ndarray, threads: int) -> Iterator[CpuProgram]:
    """A program whose logits after a token are the token's row of a table (tokens, V) float32."""
    backend = CpuBackend(threads)
    rows = backend.load_weight(FileTensor("rows", "F32", table.shape, table.view(np.uint8)))
    cache = backend.new_cache([AttentionShape(1, 1, 16, 1.0)], 1, "fp32")
    program = backend.record(lambda ops: ops.last_rows(ops.embed(rows)), cache, 8)
    assert isinstance(program, CpuProgram)
    try:
        yield program
    finally:
        program.close()


def block_of(program: CpuProgram) -> SamplingBlock:
    found = program._sampling
    assert found is not None
    return found


def rows_of(size: int) -> np.ndarray:
    """Usual logits, equal ones, few that are allowed, and none that can be sampled from."""
    random = np.random.default_rng(size)
    rows = (random.standard_normal((7, size)) * 3).astype(np.float32)
    rows[1] = np.round(rows[1])
    rows[2, random.integers(0, size, size)] = -np.inf
    rows[3] = -np.inf
    rows[3, [7, size - 200]] = 1.5, 2.5
    rows[4, size // 2] = np.nan
    rows[5, 1] = np.inf
    rows[6] = -np.inf
    return rows


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_pass_samples_what_the_host_samples(size: int, threads: int) -> None:
    rows = rows_of(size)
    with recorded(rows, threads) as program:
        block = block_of(program)
        for head, steps, alternatives in ((40, WARM, 5), (16, None, 0), (256, ((0, 1.0),), 256)):
            pick = Pick(ScanBuffers(), head, steps)
            block.plan(head, steps, alternatives)
            for token in range(len(rows)):
                for inside in (size, size - 131):  # of padded logits, only the vocabulary's are looked at
                    block.begin([0.37 + token / 20])
                    program.decode(token, 0, 1, inside)
                    found = block.drawn()
                    assert found == [pick(rows[token, :inside], 0.37 + token / 20, alternatives)]
                    assert (found[0][0] >= 0) == (token < 4)


def chain(size: int = MIN_SCANNED) -> np.ndarray:
    """After each of 12 tokens, the next one is the likeliest."""
    rows = np.zeros((12, size), np.float32)
    rows[np.arange(11), np.arange(1, 12)] = 30.0
    return rows


@pytest.mark.parametrize("threads", [1, 2])
def test_steps_run_in_a_row_until_a_token_ends_them(threads: int) -> None:
    with recorded(chain(), threads) as program:
        block = block_of(program)
        time.sleep(0.05)  # helper threads sleep, and are woken

        def decoded(steps: int, ends: tuple[int, ...]) -> list[int]:
            block.plan(16, None, 0, ends)
            block.begin([0.0] * steps)
            program.decode(2, 5, steps, MIN_SCANNED)
            return [found[0] for found in block.drawn()]

        assert decoded(MOST_STEPS, ()) == [3, 4, 5, 6, 7, 8, 9, 10]
        assert decoded(3, (9, 6)) == [3, 4, 5]
        assert decoded(MOST_STEPS, (9, 6)) == [3, 4, 5, 6]
        # more ends than there is room for only cost steps
        many = (*range(1000, 1000 + MOST_ENDS), 4)
        assert decoded(3, many) == [3, 4, 5]
        assert decoded(MOST_STEPS, many[1:]) == [3, 4]


def test_each_step_has_its_random_number_and_its_place() -> None:
    """Of two equally likely tokens, the number of the step decides; a row's place is that of its step."""
    rows = np.full((3, MIN_SCANNED), -np.inf, np.float32)
    rows[:, 1:3] = 0.0
    with recorded(rows, 1) as program:
        block = block_of(program)
        block.plan(40, ((passes.SCALE, 1.0),), 2)
        block.begin([0.6, 0.4, 0.7, 0.2])
        program.decode(1, 9, 4, MIN_SCANNED)
        found = block.drawn()
        assert [token for token, *_ in found] == [2, 1, 2, 1]
        assert [others for *_, others in found] == [[1.0, 0.5, 0.5, 2.0, 0.5, 0.5]] * 4
        assert program._places[0] == 13


def test_a_pass_that_is_not_asked_samples_nothing() -> None:
    rows = chain()
    with recorded(rows, 2) as program:
        block = block_of(program)
        block.plan(16, None, 0)
        block.begin([0.0])
        program.decode(2, 0, 1, MIN_SCANNED)
        first = block.drawn()
        token = np.array([5], np.int32)
        assert program.run(Step(token, token, np.array([0], np.int32), 1))[0].argmax() == 6
        assert program.run_row(7, 3).argmax() == 8
        assert block.drawn() == first


def test_a_small_vocabulary_is_not_surveyed() -> None:
    with recorded(np.zeros((2, MIN_SCANNED - 16), np.float32), 1) as program:
        assert program._sampling is None
        assert not {"sample", "column_maxima"} & {call.kernel for stage in program.stages for call in stage}
