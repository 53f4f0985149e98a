"""The starter model against llama.cpp (`tests/golden/starter.json`, recorded by
`tests/tools/oracle_llama_cpp.py`).

The exact oracle is llama.cpp on the same weights dequantised to F32. Every comparison is given the oracle's
own text so far, so that one near-tie does not decide the rest.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends import make_backend
from engine.backends.base import Step
from engine.core import Message
from engine.drain import drain
from engine.models import read_model
from engine.models.base import Model
from engine.settings import LoadSettings
from engine.text.template.encoding import encode_chat
from engine.text.template.template import ChatTemplate
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.weights import open_checkpoint

pytestmark = [pytest.mark.real_model, pytest.mark.slow]

GOLDEN = Path(__file__).parent.parent / "golden"
RECORDED = json.loads((GOLDEN / "starter.json").read_text())
PROMPTS = json.loads((GOLDEN / "prompts.json").read_text())
CONTINUATION = 32
Array = np.ndarray[Any, Any]


def load(path: Path, backend: str) -> Model:
    checkpoint = open_checkpoint(path)
    return drain(read_model(checkpoint, make_backend(LoadSettings(backend=backend))))


class Scorer:
    """Log-probabilities after each of the last positions of a text."""

    def __init__(self, path: Path, backend: str) -> None:
        self.model = load(path, backend)
        self.program = self.model.record(self.model.new_cache(1024, "auto"), 512)

    def rows(self, ids: list[int], count: int) -> Array:
        pages = np.arange(4, dtype=np.int32)
        step = Step(np.array(ids, np.int32), np.arange(len(ids), dtype=np.int32), pages, count)
        x = self.program.run(step).astype(np.float64)
        x -= x.max(-1, keepdims=True)
        return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)))

    def perplexity(self, ids: list[int], context: int = 512) -> float:
        losses = []
        for start in range(0, len(ids) - context + 1, context):
            window = ids[start : start + context]
            rows = self.rows(window, context // 2)[:-1]
            losses.append(-rows[np.arange(len(rows)), window[context // 2 + 1 :]])
        return float(np.exp(np.concatenate(losses).mean()))

    def close(self) -> None:
        self.program.close()


@pytest.fixture(scope="module")
def tokenizer(starter_path: Path) -> Tokenizer:
    return Tokenizer.from_gguf(open_checkpoint(starter_path).metadata)


@pytest.fixture(scope="module")
def rows(starter_path: Path) -> dict[str, list[Array]]:
    """For both backends and each prompt: log-probabilities after the prompt and after each token of the
    continuation.
    """
    found = {}
    for backend in ("reference", "cpu"):
        scorer = Scorer(starter_path, backend)
        found[backend] = [scorer.rows(p["ids"] + p["greedy"], CONTINUATION + 1) for p in RECORDED["prompts"]]
        scorer.close()
    return found


def test_token_ids(starter_path: Path, tokenizer: Tokenizer) -> None:
    template = ChatTemplate.from_gguf(open_checkpoint(starter_path).metadata, tokenizer)
    for prompt, recorded in zip(PROMPTS, RECORDED["prompts"], strict=True):
        if "text" in prompt:
            ids = tokenizer.encode(prompt["text"])
        else:
            _, ids = encode_chat(tokenizer, template, [Message(**m) for m in prompt["messages"]])
        assert ids == recorded["ids"], prompt["name"]


def test_reference_greedy_choices(rows: dict[str, list[Array]]) -> None:
    """The same 32 choices, except where the oracle's two likeliest tokens are nearer than 0.02 nats."""
    for recorded, found in zip(RECORDED["prompts"], rows["reference"], strict=True):
        for i, (token, gap) in enumerate(zip(recorded["greedy"], recorded["gaps"], strict=True)):
            assert gap < 0.02 or found[i].argmax() == token, (recorded["name"], i)


@pytest.mark.parametrize(("backend", "worst", "mean"), [("reference", 0.01, 0.002), ("cpu", 0.1, 0.02)])
def test_log_probabilities(rows: dict[str, list[Array]], backend: str, worst: float, mean: float) -> None:
    """The oracle's ten likeliest tokens have the oracle's log-probabilities."""
    differences = []
    for recorded, found in zip(RECORDED["prompts"], rows[backend], strict=True):
        for position, top in recorded["top"].items():
            differences += [abs(found[int(position)][token] - value) for token, value in top]
    assert max(differences) <= worst
    assert np.mean(differences) <= mean


def test_cpu_is_no_farther_than_llama_cpp_quantised(rows: dict[str, list[Array]]) -> None:
    """Mean KL divergence from the exact model, and greedy agreement with it, over all prompts and
    positions.
    """
    divergences, agreements = [], []
    for exact, found in zip(rows["reference"], rows["cpu"], strict=True):
        divergences.append((np.exp(exact) * (exact - found)).sum(1))
        agreements.append(exact.argmax(1) == found.argmax(1))
    rival = RECORDED["quantised"]
    kl, agreement = float(np.concatenate(divergences).mean()), float(np.concatenate(agreements).mean())
    print(
        f"mean KL {kl:.2e} (llama.cpp {rival['mean_kl']:.2e}), greedy agreement {agreement:.4f} "
        f"({rival['greedy_agreement']:.4f})"
    )
    assert kl <= rival["mean_kl"]
    assert agreement >= rival["greedy_agreement"]


def test_perplexity(starter_path: Path, tokenizer: Tokenizer) -> None:
    """Within 0.5 % of the exact oracle on a 50 KB text."""
    ids = tokenizer.encode((GOLDEN / "text_50k.txt").read_text())
    scorer = Scorer(starter_path, "cpu")
    found = scorer.perplexity(ids)
    scorer.close()
    assert found == pytest.approx(RECORDED["perplexity"], rel=0.005)
