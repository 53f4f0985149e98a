"""Gemma 3 270M (Q4_K_M) against llama.cpp (`tests/golden/gemma3.json`), by the rules of
`test_starter_oracle.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.text.tokenizer.tokenizer import Tokenizer
from engine.weights import open_checkpoint
from tests.engine.test_starter_oracle import Scorer

pytestmark = [pytest.mark.real_model, pytest.mark.slow]

GOLDEN = Path(__file__).parent.parent / "golden"
CONTINUATION = 32
WINDOW = 512
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((GOLDEN / "gemma3.json").read_text("utf-8"))
    return content


@pytest.fixture(scope="module")
def tokenizer(gemma_path: Path) -> Tokenizer:
    return Tokenizer.from_gguf(open_checkpoint(gemma_path).metadata)


@pytest.fixture(scope="module")
def scorers(gemma_path: Path) -> Iterator[dict[str, Scorer]]:
    """Of both backends."""
    made = {backend: Scorer(gemma_path, backend) for backend in ("reference", "cpu")}
    yield made
    for scorer in made.values():
        scorer.close()


@pytest.fixture(scope="module")
def rows(recorded: dict[str, Any], scorers: dict[str, Scorer]) -> dict[str, list[Array]]:
    """For each prompt: log-probabilities after it and after each token of the oracle's own continuation."""
    return {
        backend: [
            scorer.rows(prompt["ids"] + prompt["greedy"], CONTINUATION + 1).astype(np.float32)
            for prompt in recorded["prompts"]
        ]
        for backend, scorer in scorers.items()
    }


def test_token_ids(recorded: dict[str, Any], tokenizer: Tokenizer) -> None:
    """SentencePiece in every language, with BOS before."""
    texts = {
        prompt["name"]: prompt.get("text")
        for prompt in json.loads((GOLDEN / "prompts.json").read_text("utf-8"))
    }
    assert len(recorded["prompts"]) == sum(text is not None for text in texts.values())
    for prompt in recorded["prompts"]:
        assert tokenizer.encode(texts[prompt["name"]], add_bos=True) == prompt["ids"], prompt["name"]


def test_reference_greedy_choices(recorded: dict[str, Any], rows: dict[str, list[Array]]) -> None:
    """The same 32 choices, except where the oracle's two likeliest tokens are nearer than 0.02 nats."""
    for prompt, found in zip(recorded["prompts"], rows["reference"], strict=True):
        for i, (token, gap) in enumerate(zip(prompt["greedy"], prompt["gaps"], strict=True)):
            assert gap < 0.02 or found[i].argmax() == token, (prompt["name"], i)


@pytest.mark.parametrize(("backend", "worst", "mean"), [("reference", 0.02, 0.004), ("cpu", 0.03, 0.004)])
def test_log_probabilities(
    recorded: dict[str, Any], rows: dict[str, list[Array]], backend: str, worst: float, mean: float
) -> None:
    """The oracle's ten likeliest tokens have the oracle's log-probabilities; its gelu is from a table in
    half precision.
    """
    differences = []
    for prompt, found in zip(recorded["prompts"], rows[backend], strict=True):
        for position, top in prompt["top"].items():
            differences += [abs(found[int(position)][token] - value) for token, value in top]
    print(f"{backend}: worst {max(differences):.4f}, mean {np.mean(differences):.5f}")
    assert max(differences) <= worst
    assert np.mean(differences) <= mean


def test_cpu_is_no_farther_than_llama_cpp_quantised(
    recorded: dict[str, Any], rows: dict[str, list[Array]]
) -> None:
    """Mean KL divergence from the exact model, and greedy agreement with it, over all prompts and
    positions.
    """
    divergences, agreements = [], []
    for exact, found in zip(rows["reference"], rows["cpu"], strict=True):
        divergences.append((np.exp(exact.astype(np.float64)) * (exact - found)).sum(1))
        agreements.append(exact.argmax(1) == found.argmax(1))
    rival = recorded["quantised"]
    kl, agreement = float(np.concatenate(divergences).mean()), float(np.concatenate(agreements).mean())
    print(
        f"mean KL {kl:.2e} (llama.cpp {rival['mean_kl']:.2e}), greedy agreement {agreement:.4f} "
        f"({rival['greedy_agreement']:.4f})"
    )
    assert kl <= rival["mean_kl"]
    assert agreement >= rival["greedy_agreement"]


def test_perplexity(recorded: dict[str, Any], tokenizer: Tokenizer, scorers: dict[str, Scorer]) -> None:
    """Within 0.5 % of the exact oracle on a 50 KB text; each window begins with BOS."""
    ids, losses = tokenizer.encode((GOLDEN / "text_50k.txt").read_text("utf-8")), []
    bos = tokenizer.bos_token_id
    assert bos is not None
    for start in range(0, len(ids) - WINDOW + 1, WINDOW):
        window = [bos, *ids[start + 1 : start + WINDOW]]
        found = scorers["cpu"].rows(window, WINDOW // 2)[:-1]
        losses.append(-found[np.arange(len(found)), window[WINDOW // 2 + 1 :]])
    perplexity = float(np.exp(np.concatenate(losses).mean()))
    print(
        f"perplexity {perplexity:.4f}, exact {recorded['perplexity']:.4f}, llama.cpp "
        f"{recorded['quantised']['perplexity']:.4f}"
    )
    assert perplexity == pytest.approx(recorded["perplexity"], rel=0.005)
