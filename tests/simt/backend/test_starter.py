"""The starter model on the CUDA backend, whose device is the fake one, against the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.base import Backend, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cuda.backend import CudaBackend
from tests.engine.models.oracle import load
from tests.simt.fake import FakeDevice

pytestmark = [pytest.mark.real_model, pytest.mark.slow, pytest.mark.timeout(900)]

RECORDED = json.loads((Path(__file__).parents[2] / "golden" / "starter.json").read_text())
PROMPTS, TOKENS, TEXT = (0, 8), 12, 64
"""Prompts by number, the tokens that each is gone on with, and the length of the text whose perplexity is
reported.
"""
Array = np.ndarray[Any, Any]


def rows_of(
    path: Path, backend: Backend, jobs: list[tuple[list[int], list[int]]], text: list[int]
) -> tuple[list[Array], Array]:
    """Log-probabilities after each prompt and each token that follows it, one step a token; and of a text
    that is read in one.
    """
    model = load(path, backend)
    cache = model.new_cache(512, "auto")
    program = model.record(cache, 256)
    pages = np.arange(2, dtype=np.int32)

    def rows(ids: list[int], start: int, count: int) -> Array:
        positions = np.arange(start, start + len(ids), dtype=np.int32)
        x = program.run(Step(np.array(ids, np.int32), positions, pages, count)).astype(np.float64)
        x -= x.max(-1, keepdims=True)
        return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)))

    found = []
    for prompt, tokens in jobs:
        steps = [rows(prompt, 0, 1)] + [rows([token], len(prompt) + i, 1) for i, token in enumerate(tokens)]
        found.append(np.concatenate(steps))
    whole = rows(text, 0, len(text))
    program.close()
    cache.close()
    model.close()
    return found, whole


def test_the_starter_model(starter_path: Path) -> None:
    """The same choices where the CPU's own are clear, nearly the same log-probabilities, and the same
    perplexity.
    """
    prompts = [RECORDED["prompts"][number] for number in PROMPTS]
    jobs = [(prompt["ids"], prompt["greedy"][:TOKENS]) for prompt in prompts]
    text = [token for prompt in RECORDED["prompts"] for token in prompt["ids"] + prompt["greedy"]][:TEXT]
    device = FakeDevice()
    device.memory.kept = {}
    expected, expected_text = rows_of(starter_path, CpuBackend(2), jobs, text)
    found, found_text = rows_of(starter_path, CudaBackend([device]), jobs, text)
    assert device.taken == 0
    assert not device.memory.kept
    differences = []
    for one, other in zip(found, expected, strict=True):
        for row, oracle in zip(one, other, strict=True):
            top = np.argsort(-oracle)[:10]
            assert row.argmax() == top[0] or oracle[top[0]] - oracle[top[1]] < 0.1
            differences += np.abs(row[top] - oracle[top]).tolist()
    assert np.mean(differences) < 0.02
    places, following = np.arange(TEXT - 1), np.array(text[1:])
    perplexities = [np.exp(-rows[places, following].mean()) for rows in (found_text, expected_text)]
    assert perplexities[0] == pytest.approx(perplexities[1], rel=0.005)
    print(np.mean(differences), max(differences), perplexities)
