"""The kernels of a draw in NumPy, one vector operation after the other, with float64 inside."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.cuda.kernels.sampling import layout as lay
from engine.backends.cuda.kernels.sampling.sort import BASE, BINS, SHIFT
from engine.sampling import passes
from tests.simt.interpreter import Memory

f32, i32 = np.float32, np.int32


def scan(
    memory: Memory, blocks: Any, constants: Any, logits: int, kept: int, kept_stride: int, state: int,
    plan: int, position: int, bias: int, amounts: int, latest: int, scores: int, groups: int, raw_groups: int,
    partials: int, size: int,
) -> None:  # fmt: skip
    whole, real = memory.view(plan, i32, lay.PLAN_WORDS), memory.view(plan, f32, lay.PLAN_WORDS)
    given = memory.view(logits, f32, size)
    slot = int(memory.view(state, i32, 1)[0]) % lay.SLOTS
    memory.view(kept + slot * kept_stride, f32, size)[:] = given
    inside, room, group = int(whole[lay.INSIDE]), blocks[0] * lay.PART, constants["GROUP"]
    raw = np.full(room, f32(lay.NOTHING))
    raw[:inside] = np.fmax(given[:inside], f32(lay.NOTHING))
    wrong = np.zeros(room, bool)
    wrong[:inside] = np.isnan(given[:inside]) | np.isposinf(given[:inside])
    own = raw
    if constants["EDITS"]:
        added = memory.view(bias, f32, room)
        own = np.where((added <= lay.LOWEST) | (raw <= lay.LOWEST), f32(lay.NOTHING), raw + added)
        if whole[lay.PENALISES]:
            place = int(memory.view(position, i32, 1)[0]) + 1
            own = _penalised(
                own, memory.view(amounts, i32, room), memory.view(latest, i32, room), place, whole, real
            )
        memory.view(scores, f32, room)[:] = own
        memory.view(raw_groups, f32, room // group)[:] = raw.reshape(-1, group).max(axis=1)
    memory.view(groups, f32, room // group)[:] = own.reshape(-1, group).max(axis=1)
    partial = memory.view(partials, f32, blocks[0] * lay.PARTIAL_WORDS).reshape(-1, lay.PARTIAL_WORDS)
    for part, out in enumerate(partial):
        here = slice(part * lay.PART, (part + 1) * lay.PART)
        mine, others = raw[here].astype(float), own[here].astype(float)
        depths = mine[mine > lay.LOWEST] - mine.max()
        out[lay.RAW_MAX], out[lay.RAW_SUM], out[lay.RAW_INNER] = (
            mine.max(),
            np.exp(depths).sum(),
            (np.exp(depths) * depths).sum(),
        )
        out[lay.BAD] = sum(wrong[here].reshape(2, 256, 4).any(axis=(0, 2)))
        out[lay.MAX] = others.max()
        out[lay.SUM] = np.exp((others[others > lay.LOWEST] - others.max()) * real[lay.WHOLE_SCALE]).sum()


def _penalised(scores: Any, amounts: Any, latest: Any, place: int, whole: Any, real: Any) -> Any:
    reach, parts = int(whole[lay.REACH]), int(whole[lay.FADE]) + 1
    strength = (
        np.ones(len(scores)) if reach < 0 else np.minimum(1.0, (parts - (place - reach - latest)) / parts)
    )
    penalty = 1 + (float(real[lay.REPETITION]) - 1) * strength
    less = float(real[lay.FREQUENCY]) * amounts / parts + float(real[lay.PRESENCE]) * strength
    new = scores.astype(float)
    for turn in (1, 0):
        if bool(whole[lay.REPETITION_FIRST]) == bool(turn):
            with np.errstate(divide="ignore", invalid="ignore"):  # of tokens that do not count any more
                new = np.where(new > 0, new / penalty, new * penalty)
        else:
            new = new - less
    return np.where((amounts > 0) & (scores > lay.LOWEST), new, scores).astype(f32)


def _bins(depths: Any) -> Any:
    steps = (depths.astype(f32).view(np.uint32) >> SHIFT).astype(np.int64) - BASE
    return np.clip(steps, 0, BINS - 1)


def sort(
    memory: Memory,
    blocks: Any,
    constants: Any,
    values: int,
    groups: int,
    plan: int,
    requested: int,
    out: int,
    count: int,
    group: int,
) -> None:
    whole = memory.view(plan, i32, lay.PLAN_WORDS)
    maxima = memory.view(groups, f32, count)
    given = memory.view(values, f32, int(whole[lay.INSIDE]))
    largest = maxima.max()
    bins = np.sort(_bins(largest - maxima[maxima > lay.LOWEST]))
    want = int(whole[requested])
    edge = int(bins[want - 1]) if len(bins) >= want else BINS - 1
    with np.errstate(invalid="ignore", over="ignore"):
        found = np.flatnonzero((given > lay.LOWEST) & (_bins(np.fmax(largest - given, 0)) <= edge))
    head = memory.view(out, i32, 3)
    head[lay.COUNT] = len(found) if len(found) <= lay.MOST else -1
    head.view(f32)[lay.DEPTH] = np.uint32(edge + 1 + BASE << SHIFT).view(f32)
    head[lay.WHOLE] = edge == BINS - 1
    if 0 < len(found) <= lay.MOST:
        order = found[np.lexsort((found, -given[found]))]
        memory.view(out + 4 * lay.SCORES, f32, len(found))[:] = given[order]
        memory.view(out + 4 * lay.IDS, i32, len(found))[:] = order


class _Candidates:
    """The list while steps are applied: `sure` as long as no token that was not looked at can matter."""

    def __init__(self, memory: Memory, ordered: int, total: float, vocabulary: int) -> None:
        head = memory.view(ordered, i32, 3)
        count = max(int(head[lay.COUNT]), 0)
        self.scores = memory.view(ordered + 4 * lay.SCORES, f32, lay.MOST)[:count].astype(float)
        self.ids = memory.view(ordered + 4 * lay.IDS, i32, lay.MOST)[:count].astype(int)
        self.depth, self.open = float(head.view(f32)[lay.DEPTH]), not head[lay.WHOLE]
        self.sure, self.total, self.vocabulary = count > 0, total, vocabulary
        self.standing, self.scale = "whole", 1.0

    def weights(self) -> Any:
        return np.exp((self.scores - self.scores[:1]) * self.scale)

    def mass(self) -> float:
        return self.total if self.standing == "whole" and self.open else float(self.weights().sum())

    def keep(self, count: int, standing: str) -> None:
        self.scores, self.ids = self.scores[:count], self.ids[:count]
        self.standing, self.open = standing, False

    def apply(self, code: int, value: float) -> None:
        if code == passes.SCALE:
            self.scale *= value
        elif code == passes.KEEP_TOP:
            present = self.vocabulary if self.standing == "whole" else len(self.ids)
            if int(value) < present:
                self.sure &= not (self.open and int(value) > len(self.ids))
                self.keep(int(value), "ordered")
        elif code == passes.KEEP_NUCLEUS:
            sums, requested = self.weights().cumsum(), value * self.mass()
            self.sure &= not (self.open and len(sums) and sums[-1] < requested)
            self.keep(int((sums < requested).sum()) + 1, "ordered")
        else:
            bound = min(0.0, np.log(value / self.mass()) if code == passes.KEEP_SQUARED else value)
            self.sure &= not (self.open and bound <= -self.depth * self.scale)
            kept = int(((self.scores - self.scores[:1]) * self.scale >= bound).sum())
            self.keep(kept, "ordered" if self.standing == "ordered" else "by id")


def draw(
    memory: Memory, blocks: Any, constants: Any, ordered: int, raw_ordered: int, logits: int, plan: int,
    state: int, partials: int, parts: int, uniforms: int, results: int, tokens: int, position: int,
    rope_position: int, amounts: int, latest: int, history: int,
) -> None:  # fmt: skip
    whole, real = memory.view(plan, i32, lay.PLAN_WORDS), memory.view(plan, f32, lay.PLAN_WORDS)
    partial = (
        memory.view(partials, f32, parts * lay.PARTIAL_WORDS).reshape(-1, lay.PARTIAL_WORDS).astype(float)
    )
    raw_max, own_max = partial[:, lay.RAW_MAX].max(), partial[:, lay.MAX].max()
    share = np.exp(np.maximum(partial[:, lay.RAW_MAX] - raw_max, -1e4))
    raw_total = float((share * partial[:, lay.RAW_SUM]).sum())
    inner = float(
        (
            share
            * (
                partial[:, lay.RAW_INNER]
                + partial[:, lay.RAW_SUM] * np.maximum(partial[:, lay.RAW_MAX] - raw_max, -1e4)
            )
        ).sum()
    )
    own_total = float(
        (
            np.exp(np.maximum(partial[:, lay.MAX] - own_max, -1e4) * real[lay.WHOLE_SCALE])
            * partial[:, lay.SUM]
        ).sum()
    )
    left = _Candidates(memory, ordered, own_total, int(whole[lay.INSIDE]))
    if whole[lay.GREEDY]:
        left.keep(1, "ordered")
    for step in range(int(whole[lay.STEPS])):
        left.apply(int(whole[lay.PROGRAM + 2 * step]), float(real[lay.PROGRAM + 2 * step + 1]))
    raw_count = int(memory.view(raw_ordered, i32, 1)[0])
    sure = (
        left.sure
        and not left.open
        and not partial[:, lay.BAD].any()
        and raw_max > lay.LOWEST
        and raw_count >= 0
    )
    weights = left.weights()
    weights = weights / weights.sum() if len(weights) else weights
    serial = int(memory.view(state, i32, 1)[0])
    uniform = float(memory.view(uniforms, f32, lay.SLOTS)[serial % lay.SLOTS])
    order = np.argsort(left.ids) if left.standing != "ordered" else np.arange(len(left.ids))
    token, final = 0, 0.0
    if len(order):
        sums = weights[order].cumsum()
        chosen = order[
            min(int(np.searchsorted(sums, uniform * sums[-1], "right")), int(np.searchsorted(sums, sums[-1])))
        ]
        token, final = int(left.ids[chosen]), float(weights[chosen])
    result = memory.view(results + 4 * lay.RESULT_WORDS * (serial % lay.SLOTS), i32, lay.RESULT_WORDS)
    numbers = result.view(f32)
    result[lay.STAMP], result[lay.FLAG], result[lay.TOKEN] = serial + 1, not sure, token
    own = float(memory.view(logits, f32, token + 1)[token])
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        numbers[lay.FINAL], numbers[lay.RAW] = final, np.exp(own - raw_max) / raw_total
        asked = int(whole[lay.ALTERNATIVES])
        numbers[lay.ENTROPY] = max(0.0, np.log(raw_total) - inner / raw_total) if asked else 0.0
    others = max(0, min(asked, raw_count))
    raw_scores, raw_ids = (
        memory.view(raw_ordered + 4 * lay.SCORES, f32, lay.MOST),
        memory.view(raw_ordered + 4 * lay.IDS, i32, lay.MOST),
    )
    finals = dict(zip(left.ids.tolist(), weights.tolist(), strict=True))
    for i in range(others):
        at = lay.OTHERS_AT + 3 * i
        result[at], numbers[at + 1] = raw_ids[i], np.exp(float(raw_scores[i]) - raw_max) / raw_total
        numbers[at + 2] = finals.get(int(raw_ids[i]), 0.0)
    requested = min(len(left.ids), int(whole[lay.TOP]))
    for i in range(requested):
        result[lay.TOPS_AT + 2 * i], numbers[lay.TOPS_AT + 2 * i + 1] = left.ids[i], weights[i]
    result[lay.OTHERS], result[lay.TOPS] = others, int((weights[:requested].astype(f32) > 0).sum())
    memory.view(tokens, i32, 1)[0] = token
    memory.view(state, i32, 1)[0] = serial + 1
    where = memory.view(position, i32, 1)
    place = int(where[0]) + 1
    if whole[lay.PENALISES]:
        _remember(memory, token, place, int(whole[lay.REACH]), int(whole[lay.FADE]), amounts, latest, history)
    where[0] = place
    memory.view(rope_position, i32, 1)[0] += 1


def _remember(
    memory: Memory, token: int, place: int, reach: int, fade: int, amounts: int, latest: int, history: int
) -> None:
    memory.view(amounts, i32, token + 1)[token] += fade + 1
    memory.view(latest, i32, token + 1)[token] = place
    if reach > 0:
        text = memory.view(history, i32, place + 1)
        text[place] = token
        for gone in text[max(0, place - reach - fade) : max(0, place - reach + 1)]:
            memory.view(amounts, i32, int(gone) + 1)[gone] -= 1


MODELS = {"scan.scan": scan, "sort.sort": sort, "draw.draw": draw}
