"""The sampler's formulas once more, written plainly in Python floats over dictionaries: the oracle of
these tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from engine.settings import SAMPLER_STEP_NAMES, SamplerSettings

Scores = dict[int, float]


@dataclass(frozen=True)
class Case:
    """What a step may look at besides the scores.

    `drops`: whether XTC drops tokens. `surprise` and `average` are what was learnt.
    """

    settings: SamplerSettings
    history: Sequence[int] = ()
    drops: bool = True
    surprise: float | None = None
    average: float | None = None
    breakers: frozenset[int] = frozenset()
    protected: frozenset[int] = frozenset()


def softmax(scores: Scores) -> Scores:
    """Probabilities of scores."""
    largest = max(scores.values())
    weights = {token: math.exp(score - largest) for token, score in scores.items()}
    total = math.fsum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def ranked(scores: Scores) -> list[int]:
    """Ids, likeliest first, ties by lowest id."""
    return sorted(scores, key=lambda token: (-scores[token], token))


def entropy(scores: Scores) -> float:
    return -math.fsum(p * math.log(p) for p in softmax(scores).values() if p > 0)


def strength(age: int, settings: SamplerSettings) -> float:
    """Of an occurrence `age` tokens before the newest."""
    if settings.repetition_range < 0 or age < settings.repetition_range:
        return 1.0
    beyond = age - settings.repetition_range + 1
    return max(0.0, 1 - beyond / (settings.repetition_decay + 1)) if settings.repetition_range else 0.0


def strengths(case: Case) -> dict[int, list[float]]:
    """Of every occurrence of each token, newest first."""
    found: dict[int, list[float]] = {}
    for age, token in enumerate(reversed(case.history)):
        if strength(age, case.settings) > 0:
            found.setdefault(token, []).append(strength(age, case.settings))
    return found


def repetition(scores: Scores, case: Case) -> Scores:
    new = dict(scores)
    for token, all_of_it in strengths(case).items():
        if token in new:
            penalty = 1 + (case.settings.repetition_penalty - 1) * all_of_it[0]
            new[token] = new[token] / penalty if new[token] > 0 else new[token] * penalty
    return new


def occurrence(scores: Scores, case: Case) -> Scores:
    new = dict(scores)
    for token, all_of_it in strengths(case).items():
        if token in new:
            new[token] -= case.settings.presence_penalty * all_of_it[
                0
            ] + case.settings.frequency_penalty * sum(all_of_it)
    return new


def repeats(history: Sequence[int], breakers: frozenset[int], reach: int = 0) -> dict[int, int]:
    """For each token that occurred the length of the longest passage before it that also ends the text."""
    text = list(history)[-reach:] if reach else list(history)
    longest: dict[int, int] = {}
    for place, token in enumerate(text):
        length = 0
        while (
            length < place
            and text[place - 1 - length] == text[-1 - length]
            and text[-1 - length] not in breakers
        ):
            length += 1
        longest[token] = max(longest.get(token, 0), length)
    return longest


def dry(scores: Scores, case: Case) -> Scores:
    new, settings = dict(scores), case.settings
    for token, length in repeats(case.history, case.breakers, settings.dry_range).items():
        if token in new and length >= settings.dry_allowed_length:
            new[token] -= min(
                settings.dry_multiplier * settings.dry_base ** (length - settings.dry_allowed_length), 1e30
            )
    return new


def top_n_sigma(scores: Scores, case: Case) -> Scores:
    if not case.settings.top_n_sigma:
        return scores
    mean = math.fsum(scores.values()) / len(scores)
    deviation = math.sqrt(math.fsum((score - mean) ** 2 for score in scores.values()) / len(scores))
    bound = max(scores.values()) - case.settings.top_n_sigma * deviation
    return {token: score for token, score in scores.items() if score >= bound}


def smoothing(scores: Scores, case: Case) -> Scores:
    if not case.settings.smoothing_factor:
        return scores
    largest = max(scores.values())
    return {
        token: -((score - largest) ** 2) * case.settings.smoothing_factor for token, score in scores.items()
    }


def temperature(scores: Scores, case: Case) -> Scores:
    return {token: score / case.settings.temperature for token, score in scores.items()}


def top_k(scores: Scores, case: Case) -> Scores:
    return {token: scores[token] for token in ranked(scores)[: case.settings.top_k or None]}


def top_p(scores: Scores, case: Case) -> Scores:
    if case.settings.top_p >= 1:
        return scores
    probabilities, mass, kept = softmax(scores), 0.0, list[int]()
    for token in ranked(scores):
        kept.append(token)
        mass += probabilities[token]
        if mass >= case.settings.top_p:
            break
    return {token: scores[token] for token in kept}


def top_a(scores: Scores, case: Case) -> Scores:
    probabilities = softmax(scores)
    bound = case.settings.top_a * max(probabilities.values()) ** 2
    return {token: score for token, score in scores.items() if probabilities[token] >= bound}


def min_p(scores: Scores, case: Case) -> Scores:
    probabilities = softmax(scores)
    bound = case.settings.min_p * max(probabilities.values())
    return {token: score for token, score in scores.items() if probabilities[token] >= bound}


def tail_free(scores: Scores, case: Case) -> Scores:
    if case.settings.tail_free >= 1 or len(scores) < 3:
        return scores
    probabilities = softmax(scores)
    order = ranked(scores)
    falls = [probabilities[a] - probabilities[b] for a, b in pairwise(order)]
    bends = [abs(a - b) for a, b in pairwise(falls)]
    total = math.fsum(bends)
    if not total > 0:
        return scores
    kept, mass = 0, 0.0
    for bend in bends:
        mass += bend / total
        if mass > case.settings.tail_free:
            break
        kept += 1
    return {token: scores[token] for token in order[: kept + 1]}


def typical(scores: Scores, case: Case) -> Scores:
    if case.settings.typical >= 1:
        return scores
    probabilities, expected = softmax(scores), entropy(scores)
    distance = {
        token: abs(-math.log(p) - expected) if p > 0 else math.inf for token, p in probabilities.items()
    }
    mass, kept = 0.0, dict[int, float]()
    for token in sorted(scores, key=lambda token: (distance[token], token)):
        kept[token] = scores[token]
        mass += probabilities[token]
        if mass >= case.settings.typical:
            break
    return kept


def mirostat(scores: Scores, case: Case) -> Scores:
    if not case.settings.mirostat:
        return scores
    surprise = 2 * case.settings.mirostat_tau if case.surprise is None else case.surprise
    probabilities = softmax(scores)
    bound = min(2.0**-surprise, max(probabilities.values()))
    return {token: score for token, score in scores.items() if probabilities[token] >= bound}


def dynamic_temperature(scores: Scores, case: Case) -> Scores:
    settings = case.settings
    if settings.max_temperature <= settings.min_temperature or len(scores) < 2:
        return scores
    doubt = min(1.0, entropy(scores) / math.log(len(scores)))
    heat = (
        settings.min_temperature
        + (settings.max_temperature - settings.min_temperature) * doubt**settings.temperature_exponent
    )
    return {token: score / max(heat, 0.01) for token, score in scores.items()}


def xtc(scores: Scores, case: Case) -> Scores:
    if not case.settings.xtc_probability or not case.drops:
        return scores
    probabilities = softmax(scores)
    likely = [token for token in ranked(scores) if probabilities[token] >= case.settings.xtc_threshold]
    dropped = likely[:-1]
    return (
        scores
        if case.protected & set(dropped)
        else {token: score for token, score in scores.items() if token not in dropped}
    )


def adaptive_p(scores: Scores, case: Case) -> Scores:
    target = case.settings.adaptive_target
    if not target:
        return scores
    adapted = min(max(2 * target - (target if case.average is None else case.average), 0.0), 1.0)
    distances = {token: abs(p - adapted) / 0.3 for token, p in softmax(scores).items()}
    return {token: 5 - 10 * d * d / (1 + d) for token, d in distances.items()}


def skew(scores: Scores, case: Case) -> Scores:
    if not case.settings.skew:
        return scores
    probabilities, before, mass, new = softmax(scores), 0.0, 0.0, dict[int, float]()
    for token in ranked(scores):
        mass += probabilities[token]
        after = min(1.0, mass) ** math.exp(case.settings.skew)
        if after > before:
            new[token] = math.log(after - before)
        before = after
    return new


STEPS: dict[str, Callable[[Scores, Case], Scores]] = {
    function.__name__: function
    for function in (
        repetition, occurrence, dry, top_n_sigma, smoothing, temperature, top_k, top_p, top_a, min_p,
        tail_free, typical, mirostat,
        dynamic_temperature, xtc, adaptive_p, skew,
    )
}  # fmt: skip


def full_order(order: Sequence[str]) -> list[str]:
    """All names: the given ones, and each other one after the nearest earlier default step, or at the
    start.
    """
    names = list(dict.fromkeys(order))
    default = [name for name, _ in SAMPLER_STEP_NAMES]
    for index, name in enumerate(default):
        if name not in names:
            earlier = [names.index(other) for other in default[:index][-1:]]
            names.insert(earlier[0] + 1 if earlier else 0, name)
    return names


def run(scores: Scores, case: Case) -> Scores:
    """The probabilities that the draw uses, of all tokens that remain."""
    greedy = case.settings.temperature < 0.01
    for name in full_order(case.settings.order):
        if not greedy or name in ("repetition", "occurrence", "dry"):
            scores = STEPS[name](scores, case)
    return {ranked(scores)[0]: 1.0} if greedy else softmax(scores)


def final_distribution(
    logits: Sequence[float], history: Sequence[int], settings: SamplerSettings
) -> dict[int, float]:
    """The same for whole logits and nothing learnt."""
    return run(dict(enumerate(map(float, logits))), Case(settings, history))
