"""Source of the compiled passes; `engine.sampling.kernels` documents their arguments and results.

They share one file because they call each other and a kernel's cache is invalidated only by changes of its
own file.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

BLOCK = 4096
LONGEST_HEAD = 256
INT, FLOAT = np.int32, np.float32
NOTHING = -8388608
"""The bits of float32 -inf, as int32."""

# Offsets, in 64-bit words, into the array of `_pick`: three sums, parameters, alternatives, then arrays.
HEAD, STEPS, PROGRAM = 3, 4, 5
ALTERNATIVES = 32
IDS = ALTERNATIVES + 3 * LONGEST_HEAD
SCORES, WEIGHTS, MAXIMA = (IDS + LONGEST_HEAD * n for n in (1, 2, 3))
SUM_LANES = 64
"""The number of sums that the softmax is added up in, so that compilers need not reorder an addition."""
LANES = MAXIMA + BLOCK // 2
ROOM = LANES + SUM_LANES

_GROUP = 16
"""Maxima tested together."""

# Codes of the steps of `_pick`.
SCALE, KEEP_TOP, KEEP_NUCLEUS, KEEP_REACHING, KEEP_SQUARED = range(5)

# Written for auto-vectorisation: no branches in the inner loops, and 32-bit numbers and indices.


def _allow(scores: Any, words: Any, out: Any, maxima: Any) -> None:
    maxima[:] = -np.inf
    bits, out_bits = scores.view(INT), out.view(INT)
    for start in range(0, scores.shape[0], BLOCK):
        source, target, values = (
            bits[start : start + BLOCK],
            out_bits[start : start + BLOCK],
            out[start : start + BLOCK],
        )
        for k in range(source.shape[0] // 32):
            word, part, result = (
                INT(words[start // 32 + k]),
                source[32 * k : 32 * k + 32],
                target[32 * k : 32 * k + 32],
            )
            for b in range(32):
                keep = -((word >> INT(b)) & INT(1))
                result[b] = (part[b] & keep) | (INT(NOTHING) & ~keep)
        for j in range(source.shape[0] // 32 * 32, source.shape[0]):
            keep = -((INT(words[(start + j) // 32]) >> INT(j % 32)) & INT(1))
            target[j] = (source[j] & keep) | (INT(NOTHING) & ~keep)
        for j in range(values.shape[0]):
            maxima[j] = max(values[j], maxima[j])


def _moments(scores: Any, pivot: Any, maxima: Any) -> tuple[float, float, float]:
    maxima[:] = -np.inf
    count: Any = 0.0
    total: Any = 0.0
    squares: Any = 0.0
    bits = scores.view(INT)
    for start in range(0, scores.shape[0], BLOCK):
        values, part = scores[start : start + BLOCK], bits[start : start + BLOCK]
        number, first, second = INT(0), FLOAT(0), FLOAT(0)
        for j in range(values.shape[0]):
            keep = INT(part[j] != INT(NOTHING))
            value = FLOAT(keep) * max(values[j] - pivot, FLOAT(-3.4e38))
            first += value
            second += value * value
            number += keep
        for j in range(values.shape[0]):
            maxima[j] = max(values[j], maxima[j])
        count += number
        total += first
        squares += second
    return count, total, squares


def _from_bits(bits: Any) -> Any:
    raise AssertionError("only compiled code calls this")  # compiled code gets `_bits_to_float`


def _exponential(logit: Any, largest: Any) -> tuple[Any, Any]:
    # exp d, and d = logit - largest, at least -87. exp d = 2^n exp r, n = round(d / ln 2): n becomes the
    # exponent bits, exp r a polynomial (Cephes expf).
    depth = logit - largest
    exponent = INT(max(depth, FLOAT(-87)) * FLOAT(1.44269504) + FLOAT(127.5))
    # NaN stays NaN and propagates to the sums
    depth = FLOAT(-87) if depth < FLOAT(-87) else depth
    power = FLOAT(exponent - INT(127))
    r = depth - power * FLOAT(0.693147181)
    value = FLOAT(1.9875691500e-4) * r + FLOAT(1.3981999507e-3)
    value = value * r + FLOAT(8.3334519073e-3)
    value = value * r + FLOAT(4.1665795894e-2)
    value = value * r + FLOAT(1.6666665459e-1)
    value = value * r + FLOAT(5.0000001201e-1)
    return (value * r * r + r + FLOAT(1)) * _from_bits(exponent << INT(23)), depth


def _softmax_lanes(part: Any, largest: Any, lanes: Any) -> None:
    # The sums of one block into `lanes` (2 * SUM_LANES,). Each has an order of its own, the same in all that
    # call this: left to a compiler, it would depend on what it is compiled into, and on the processor.
    weights, products = lanes[:SUM_LANES], lanes[SUM_LANES : 2 * SUM_LANES]
    weights[:] = FLOAT(0)
    products[:] = FLOAT(0)
    whole = part.shape[0] // SUM_LANES * SUM_LANES
    for at in range(0, whole, SUM_LANES):
        some = part[at : at + SUM_LANES]
        for j in range(SUM_LANES):
            weight, depth = _exponential(some[j], largest)
            weights[j] += weight
            products[j] += weight * depth
    for j in range(part.shape[0] - whole):
        weight, depth = _exponential(part[whole + j], largest)
        weights[j] += weight
        products[j] += weight * depth


def _add_lanes(lanes: Any, total: float, inner: float) -> tuple[float, float]:
    # One block's lanes added to the sums so far.
    for j in range(SUM_LANES):
        total += lanes[j]
        inner += lanes[SUM_LANES + j]
    return total, inner


def _softmax_sums(logits: Any, largest: Any, lanes: Any) -> tuple[float, float]:
    # `lanes` (2 * SUM_LANES,) are overwritten.
    total: Any = 0.0
    inner: Any = 0.0
    for start in range(0, logits.shape[0], BLOCK):
        _softmax_lanes(logits[start : start + BLOCK], largest, lanes)
        total, inner = _add_lanes(lanes, total, inner)
    return total, inner


def _column_maxima(logits: Any, first: int, last: int, maxima: Any) -> None:
    # Those of the columns from `first` to `last`.
    some = maxima[first:last]
    some[:] = -np.inf
    for start in range(0, logits.shape[0], BLOCK):
        part = logits[start + first : min(start + last, logits.shape[0])]
        for j in range(part.shape[0]):
            some[j] = max(part[j], some[j])


def _largest(maxima: Any, lanes: Any) -> Any:
    # The largest of the maxima (BLOCK,); the first SUM_LANES of `lanes` are overwritten.
    some = lanes[:SUM_LANES]
    some[:] = -np.inf
    for start in range(0, BLOCK, SUM_LANES):
        part = maxima[start : start + SUM_LANES]
        for j in range(SUM_LANES):
            some[j] = max(part[j], some[j])
    largest = FLOAT(-np.inf)
    for j in range(SUM_LANES):
        largest = max(some[j], largest)
    return largest


def _bound(maxima: Any, largest: Any, count: Any) -> float:
    # A bound that at least `count` of the maxima reach, usually only a few more; -inf if fewer are finite.
    low, step, reached = largest, FLOAT(1), _reaching(maxima, largest)
    while reached < count:
        low -= step
        step *= FLOAT(2)
        if not low > FLOAT(-3.4e38):
            return -np.inf
        reached = _reaching(maxima, low)
    high = min(largest, low + step)
    for _ in range(12):
        if reached <= count + 8:
            break
        middle = low + (high - low) * FLOAT(0.5)
        number = _reaching(maxima, middle)
        if number >= count:
            low, reached = middle, number
        else:
            high = middle
    return float(low)


def _reaching(maxima: Any, bound: Any) -> int:
    number = INT(0)
    for j in range(BLOCK):
        number += INT(maxima[j] >= bound)
    return int(number)


def _scan(logits: Any, count: Any, maxima: Any, ids: Any, scores: Any, sums: Any, lanes: Any) -> int:
    # Returns how many of the likeliest were found; -1 if the logits hold NaN or +inf or are all -inf.
    _column_maxima(logits, 0, BLOCK, maxima)
    largest = _largest(maxima, lanes)
    if not (largest > -np.inf and largest < np.inf):
        return -1
    sums[0] = largest
    sums[1], sums[2] = _softmax_sums(logits, largest, lanes)
    return -1 if math.isnan(sums[1]) else _likeliest(logits, count, largest, maxima, ids, scores)


def _finish_scan(logits: Any, count: Any, maxima: Any, ids: Any, scores: Any, sums: Any, lanes: Any) -> int:
    # As `_scan`, after others have written the maxima, and each block's sums to a row of its own in `lanes`,
    # which has one row more.
    blocks = (logits.shape[0] + BLOCK - 1) // BLOCK
    largest = _largest(maxima, lanes[2 * SUM_LANES * blocks :])
    if not (largest > -np.inf and largest < np.inf):
        return -1
    total: Any = 0.0
    inner: Any = 0.0
    for block in range(blocks):
        total, inner = _add_lanes(lanes[2 * SUM_LANES * block : 2 * SUM_LANES * (block + 1)], total, inner)
    sums[0], sums[1], sums[2] = largest, total, inner
    return -1 if math.isnan(total) else _likeliest(logits, count, largest, maxima, ids, scores)


def _likeliest(logits: Any, count: Any, largest: Any, maxima: Any, ids: Any, scores: Any) -> int:
    # Returns how many were found.
    if count <= 0:
        return 0
    # At least `count` column maxima reach the bound, so a logit below it is not among the likeliest.
    bound, found = _bound(maxima, largest, count), 0
    for group in range(0, BLOCK, _GROUP):
        some = INT(0)
        for j in range(group, group + _GROUP):
            some |= INT(maxima[j] >= bound)
        if some == 0:
            continue
        for j in range(group, group + _GROUP):
            if maxima[j] < bound:
                continue
            for place in range(j, logits.shape[0], BLOCK):
                value = np.float64(logits[place])
                if value < bound or value == -np.inf:
                    continue
                if found == count:
                    last = scores[count - 1]
                    if value < last or (value == last and place > ids[count - 1]):
                        continue
                else:
                    found += 1
                i = found - 1
                while i > 0 and (scores[i - 1] < value or (scores[i - 1] == value and ids[i - 1] > place)):
                    scores[i], ids[i] = scores[i - 1], ids[i - 1]
                    i -= 1
                scores[i], ids[i] = value, place
    return found


Picked = tuple[int, float, float, float, int]
"""What `_pick` returns."""


def _weigh(scores: Any, count: Any, weights: Any) -> float:
    # The weights of ordered candidates, and their sum, added sequentially as in `Candidates.mass`.
    total = 0.0
    for i in range(count):
        weights[i] = math.exp(scores[i] - scores[0])
        total += weights[i]
    return total


def _pick(
    logits: Any, uniform: Any, alternatives: Any, block: Any, ids: Any, maxima: Any, lanes: Any
) -> Picked:
    # Returns the token (-1 for invalid logits), its final and raw probability, the entropy and the number of
    # alternatives reported. `ids`, `maxima` and `lanes` are parts of `block`. With ~n for `alternatives` it
    # only scans for the n likeliest, and returns how many were found as the token.
    scores = block[SCORES:WEIGHTS]
    head = ~alternatives if alternatives < 0 else int(block[HEAD])
    found = _scan(logits, head, maxima, ids, scores, block[:3], lanes)
    if found < 0 or alternatives < 0:
        return found, 0.0, 0.0, 0.0, 0
    largest, total, inner = block[0], block[1], block[2]
    reported, weights = min(alternatives, found), block[WEIGHTS:MAXIMA]
    for i in range(reported):  # before the scores are changed
        block[ALTERNATIVES + 3 * i] = ids[i]
        block[ALTERNATIVES + 3 * i + 1] = math.exp(scores[i] - largest) / total
        block[ALTERNATIVES + 3 * i + 2] = 0.0
    steps = int(block[STEPS])
    chosen, count = 0, 1 if steps < 0 else found
    mass: Any = 1.0
    weights[0] = 1.0
    for step in range(steps):
        code, value = int(block[PROGRAM + 2 * step]), block[PROGRAM + 2 * step + 1]
        if code == SCALE:
            for i in range(found):
                scores[i] *= value
        elif code == KEEP_TOP:
            count = min(count, int(value))
        elif code == KEEP_NUCLEUS:
            target = value * _weigh(scores, count, weights)
            mass = weights[0]
            kept = 1
            while kept < count and mass < target:
                mass += weights[kept]
                kept += 1
            count = kept
        else:
            bound = scores[0] + (
                math.log(value / _weigh(scores, count, weights)) if code == KEEP_SQUARED else value
            )
            bound = min(bound, scores[0])
            while scores[count - 1] < bound:
                count -= 1
    if steps >= 0:
        mass = _weigh(scores, count, weights)
        sums: Any = 0.0
        for i in range(count):
            weights[i] /= mass
            sums += weights[i]
        target, running = uniform * sums, weights[0]
        # The first token whose running sum exceeds `target`, at the latest the last with a nonzero weight.
        while running <= target and running < sums:
            chosen += 1
            running += weights[chosen]
    for i in range(min(reported, count)):
        block[ALTERNATIVES + 3 * i + 2] = weights[i]
    token = ids[chosen]
    own = math.exp(logits[token] - largest) / total
    entropy = max(0.0, math.log(total) - inner / total) if alternatives else 0.0
    return token, weights[chosen], own, entropy, reported
