"""A decode loop on a device that does nothing before somebody waits for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.backends.cuda.runtime.decode_loop import decode_loop_kernels
from engine.backends.cuda.runtime.uploads import Uploads
from engine.backends.decode_loop import KEPT_LOGITS, SamplingPlan
from tests.simt.fake import FakeDevice
from tests.simt.toy import Toy

SIZE = 600
GREEDY = SamplingPlan(SIZE, greedy=True)
PAGES = np.arange(10, 16, dtype=np.int32)


def answer(token: int, place: int, page: int) -> Any:
    """The next token is a function of the token, its place and the page that place lies in."""
    return np.random.default_rng([token, place, page]).normal(0, 3, SIZE).astype(np.float32)


def said(ids: list[int], count: int, pages: Any = PAGES) -> list[int]:
    ids = list(ids)
    for _ in range(count):
        place = len(ids) - 1
        ids.append(int(answer(ids[-1], place, int(pages[place // 256])).argmax()))
    return ids[-count:]


def begun(ids: list[int], plan: SamplingPlan = GREEDY) -> tuple[Toy, Any]:
    toy = Toy(answer, SIZE)
    decode_loop = toy.decode_loops.decode_loop(plan)
    assert decode_loop is not None
    decode_loop.start(ids, PAGES, lambda place: 0.5)
    return toy, decode_loop


def test_the_host_is_one_step_behind() -> None:
    toy, decode_loop = begun([3, 4])
    assert toy.seen == []
    for turn, expected in enumerate(said([3, 4], 5)):
        assert decode_loop.next(1).id == expected
        # the step after it was given to the device, but nobody has waited for it
        assert len(toy.seen) == turn + 1
        assert toy.device.graph_launches == turn + 2
    assert decode_loop.next(0).id == said([3, 4], 6)[-1]
    assert toy.device.graph_launches == 6
    with pytest.raises(ValueError, match="start"):
        decode_loop.next(1)


def test_rope_positions_go_along() -> None:
    toy, decode_loop = begun([3, 4, 5])
    for shift in (0, 2):
        decode_loop.start([3, 4, 5], PAGES, lambda place: 0.5, shift=shift)
        for _ in range(3):
            decode_loop.next(1)
        places = [place for _, place, _ in toy.seen]
        assert [place - rope for place, rope in zip(places, toy.ropes, strict=True)][-3:] == [shift] * 3


def test_going_back_and_on() -> None:
    """A step in flight is forgotten, and what it changed does no harm."""
    toy, decode_loop = begun([3, 4], replace(GREEDY, repetition=1.5, reach=4))
    first = [decode_loop.next(1).id for _ in range(5)]
    decode_loop.start([3, 4, first[0], 77], PAGES, lambda place: 0.5)
    again = [decode_loop.next(1).id for _ in range(3)]
    other, fresh = begun([3, 4, first[0], 77], replace(GREEDY, repetition=1.5, reach=4))
    assert [fresh.next(1).id for _ in range(3)] == again
    decode_loop.close()
    decode_loop.start([3, 4], PAGES, lambda place: 0.5)
    assert [decode_loop.next(1).id for _ in range(5)] == first
    assert toy.seen[-5:] == [(token, 1 + i, 10) for i, token in enumerate([4, *first[:4]])]
    assert other.device is not toy.device


def test_new_pages_reach_only_the_steps_that_begin_later() -> None:
    ids = [3] * 255
    toy, decode_loop = begun(ids)
    drawn = [decode_loop.next(1).id]  # the step at place 255 is under way
    changed = PAGES.copy()
    changed[0], changed[1] = 98, 99
    decode_loop.set_pages(changed)
    changed[:] = 0  # what was given is not looked at later
    drawn += [decode_loop.next(1).id for _ in range(3)]
    assert [(place, page) for _, place, page in toy.seen[:4]] == [(254, 10), (255, 10), (256, 99), (257, 99)]
    assert drawn[1] == int(answer(drawn[0], 255, 10).argmax())


def test_logits_of_the_latest_steps() -> None:
    _, decode_loop = begun([3])
    ids = [3]
    for _ in range(KEPT_LOGITS + 5):
        ids.append(decode_loop.next(1).id)
    for place in range(len(ids) + 1 - KEPT_LOGITS, len(ids) + 1):
        expected = answer(ids[place - 1], place - 1, 10)
        assert decode_loop.logits(place).tobytes() == expected.tobytes()
    for place in (len(ids) - KEPT_LOGITS, len(ids) + 1):
        with pytest.raises(ValueError, match="latest"):
            decode_loop.logits(place)


def test_another_plan_and_the_end() -> None:
    """Plans follow each other on the same memory, with and without what only some of them need."""
    toy, decode_loop = begun([3, 4])
    decode_loop.next(1)
    banned = np.zeros(SIZE, np.float32)
    banned[said([3, 4], 1)] = -np.inf
    other = toy.decode_loops.decode_loop(replace(GREEDY, bias=banned, alternatives=3))
    assert other is decode_loop
    decode_loop.start([3, 4], PAGES, lambda place: 0.5)
    sampled = decode_loop.next(1)
    order = np.argsort(-answer(4, 1, 10), kind="stable")
    assert sampled.id == order[1]
    assert [token for token, *_ in sampled.alternatives] == order[:3].tolist()
    assert [final for *_, final in sampled.alternatives] == [0.0, 1.0, 0.0]
    assert toy.decode_loops.decode_loop(GREEDY) is decode_loop
    decode_loop.start([3, 4], PAGES, lambda place: 0.5)
    assert decode_loop.next(1).id == order[0]
    toy.decode_loops.close()
    assert len(toy.seen) == 6  # nothing is under way any more
    assert toy.device.prepared <= set(decode_loop_kernels(SIZE))


def test_plans_that_no_kernel_knows() -> None:
    toy = Toy(answer, SIZE)
    for plan in (
        SamplingPlan(SIZE),  # nothing is dropped: more tokens stay than are sorted
        SamplingPlan(SIZE, ((1, 513),)),
        SamplingPlan(SIZE, ((99, 1.0),)),
        SamplingPlan(SIZE, greedy=True, alternatives=65),
        SamplingPlan(SIZE, ((0, 1.1),) * 17, greedy=True),
    ):
        assert toy.decode_loops.decode_loop(plan) is None
    small = Toy(answer, SIZE, device=FakeDevice(total_memory=30000))
    assert small.decode_loops.decode_loop(GREEDY) is None


def test_uploads_keep_what_the_device_has_not_read_yet() -> None:
    device, rng = FakeDevice(), np.random.default_rng(0)
    uploads, arrays = (
        Uploads(device),
        [rng.integers(0, 255, size, np.uint8) for size in (4, 200000, 65536, 65537, *[8] * 20)],
    )
    targets = [device.zeros(array.size) for array in arrays]
    for array, target in zip(arrays, targets, strict=True):
        sent = array.copy()
        uploads.send(sent, target)
        sent[:] = 0
    for array, target in zip(arrays, targets, strict=True):
        assert device.read(target).tobytes() == array.tobytes()
