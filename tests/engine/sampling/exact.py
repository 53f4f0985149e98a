"""The sampler's formulas once more, written plainly in Python floats over dictionaries: the oracle of these tests."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from engine.settings import SamplerSettings


def softmax(scores: dict[int, float]) -> dict[int, float]:
    """Probabilities of scores."""
    largest = max(scores.values())
    weights = {token: math.exp(score - largest) for token, score in scores.items()}
    return {token: weight / math.fsum(weights.values()) for token, weight in weights.items()}


def ranked(scores: dict[int, float]) -> list[int]:
    """Ids, likeliest first, ties by lowest id."""
    return sorted(scores, key=lambda token: (-scores[token], token))


def final_distribution(logits: Sequence[float], history: Sequence[int], settings: SamplerSettings) -> dict[int, float]:
    """The probabilities that the draw uses, of all tokens that remain."""
    scores = dict(enumerate(map(float, logits)))
    reach = settings.repetition_range
    seen = Counter(history if reach < 0 else history[len(history) - min(reach, len(history)) :])
    for token, count in seen.items():
        penalty = settings.repetition_penalty
        scores[token] = scores[token] / penalty if scores[token] > 0 else scores[token] * penalty
        scores[token] -= settings.presence_penalty + settings.frequency_penalty * count
    if settings.temperature < 0.01:
        return {ranked(scores)[0]: 1.0}
    scores = {token: score / settings.temperature for token, score in scores.items()}
    if settings.top_k:
        scores = {token: scores[token] for token in ranked(scores)[: settings.top_k]}
    if settings.top_p < 1:
        probabilities, mass, kept = softmax(scores), 0.0, list[int]()
        for token in ranked(scores):
            kept.append(token)
            mass += probabilities[token]
            if mass >= settings.top_p:
                break
        scores = {token: scores[token] for token in kept}
    if settings.min_p:
        probabilities = softmax(scores)
        least = settings.min_p * max(probabilities.values())
        scores = {token: scores[token] for token in scores if probabilities[token] >= least}
    return softmax(scores)
