"""The ids of pictures' tokens, and the rows in their place."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import numpy as np
import pytest

from engine.core import FIRST_PICTURE_ID, Loading, Picture, Waiting
from engine.drain import drain
from engine.errors import BadPicture
from engine.vision.encoder_cache import EncoderCache
from tests.engine.vision.tiny.fakes import FakeEncoder, picture


def store_of(encoder: FakeEncoder, most_bytes: int = 1 << 20) -> EncoderCache:
    return EncoderCache(encoder, encoder.load, most_bytes)


def ids_of(store: EncoderCache, one: Picture) -> range:
    (ids,) = (piece for piece in store.placed(one) if isinstance(piece, range))
    return ids


def test_ids_are_those_of_the_content() -> None:
    encoder = FakeEncoder(around=("<begin>", "<end>"))
    store, other = store_of(encoder), store_of(FakeEncoder())
    first = store.placed(picture(3, 2))
    assert first[0] == "<begin>"
    assert first[2] == "<end>"
    ids = ids_of(store, picture(3, 2))
    assert first[1] == ids
    assert len(ids) == 6
    assert FIRST_PICTURE_ID <= ids[0] <= ids[-1] < 1 << 31
    assert ids_of(store, picture(3, 2, "another name.png")) == ids
    assert ids_of(other, picture(3, 2)) == ids
    assert ids_of(store, picture(3, 2, more=1)) != ids


def test_what_names_a_picture_without_its_bytes() -> None:
    store = store_of(FakeEncoder())
    kept = replace(picture(3, 2), key="5d")
    assert ids_of(store, kept) == ids_of(store, replace(kept, data=b""))
    assert ids_of(store, kept) != ids_of(store, replace(kept, key="5e"))
    bare = Picture("a.png", "", 3, 2)
    assert ids_of(store, bare) != ids_of(store, Picture("a.png", "", 2, 3))


def test_no_two_pictures_share_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.vision.encoder_cache._LAST_ID", FIRST_PICTURE_ID + 40)
    store = store_of(FakeEncoder())
    seen: set[int] = set()
    for number in range(5):
        ids = set(ids_of(store, picture(2, 2, more=number)))
        assert not ids & seen
        seen |= ids
    assert max(seen) <= FIRST_PICTURE_ID + 40


def test_spans_and_rows_are_found_by_ids() -> None:
    encoder = FakeEncoder()
    store = store_of(encoder)
    small, large = picture(2, 2), picture(4, 3)
    ids = [*ids_of(store, small), 7, *ids_of(store, large)]
    for one, place in ((small, 0), (large, 5)):
        first, span = store.span(ids[place + 2])
        assert (first, span.rows, span.columns) == (ids[place], one.height, one.width)
    events = list(store.encoded(ids))
    assert [type(event) for event in events] == [Loading, Loading, Waiting, Loading, Waiting]
    progress = [event for event in events if isinstance(event, Loading) and "picture" in str(event.stage)]
    assert [(event.done, event.total) for event in progress] == [(0, 2), (1, 2)]
    assert encoder.encoded == [small.data, large.data]
    assert store.rows(ids[5]).states.shape == (12, 8)
    assert list(store.encoded(ids)) == []


def test_an_unknown_id_is_refused_in_a_sentence() -> None:
    store = store_of(FakeEncoder())
    with pytest.raises(BadPicture, match="no longer in memory"):
        store.span(FIRST_PICTURE_ID + 5)
    last = ids_of(store, picture(2, 2))[-1]
    store.span(last)
    for id in (last + 1, last - 4):
        with pytest.raises(BadPicture, match="no longer in memory"):
            store.span(id)


def test_rows_that_were_dropped_are_computed_again() -> None:
    encoder = FakeEncoder()
    store = store_of(encoder, most_bytes=4 * 8 * 6)
    ids, others = ids_of(store, picture(2, 2)), ids_of(store, picture(2, 2, more=1))
    with store.held([*ids]):
        drain(store.encoded([*ids, *others]))
        before = store.rows(ids[0]).states.copy()
        assert len(encoder.encoded) == 2
        assert store.rows(ids[0]).states is store.rows(ids[0]).states
        third = ids_of(store, picture(2, 2, more=2))
        drain(store.encoded([*third]))  # the held one stays, the other goes
        assert encoder.encoded[2:] == [picture(2, 2, more=2).data]
        store.rows(ids[0])
        assert len(encoder.encoded) == 3
    ids_of(store, picture(2, 2))
    drain(store.encoded([*ids_of(store, picture(2, 2, more=3))]))  # now that one goes, too
    ids_of(store, picture(2, 2))
    np.testing.assert_array_equal(store.rows(ids[0]).states, before)
    assert encoder.encoded[4:] == [picture(2, 2).data]


def test_no_more_rows_are_dropped_than_are_in_the_way() -> None:
    encoder = FakeEncoder()
    store = store_of(encoder, most_bytes=2 * 4 * 8 * 4)
    first, second, third = (ids_of(store, picture(2, 2, more=more)) for more in range(3))
    drain(store.encoded([*first, *second, *third]))
    for ids, count in ((second, 3), (third, 3), (first, 4)):
        store.rows(ids[0])
        assert len(encoder.encoded) == count


def test_one_picture_that_takes_more_than_all_may_is_kept_until_the_next() -> None:
    encoder = FakeEncoder()
    store = store_of(encoder, most_bytes=1)
    ids, others = ids_of(store, picture(2, 2)), ids_of(store, picture(2, 2, more=1))
    for _unused in range(2):
        assert store.rows(ids[0]).states.shape == (4, 8)
    assert len(encoder.encoded) == 1
    drain(store.encoded(others))
    store.rows(ids[0])
    assert len(encoder.encoded) == 3


def test_a_picture_is_forgotten_after_its_prompts() -> None:
    encoder = FakeEncoder()
    store = store_of(encoder)
    ids = ids_of(store, picture(2, 2))
    with store.held(ids):
        pass
    with pytest.raises(BadPicture, match="no longer in memory"):
        store.rows(ids[0])
    ids_of(store, picture(2, 2))
    assert len(store.rows(ids[0]).states) == 4
    store.close()
    assert encoder.closed


def test_the_encoder_is_loaded_once_for_prompts_that_begin_together() -> None:
    encoder = FakeEncoder()
    loads: list[str] = []

    def load() -> Generator[Loading, None, FakeEncoder]:
        loads.append("begun")
        yield Loading("", 0, 2)
        yield Loading("", 1, 2)
        return encoder

    store = EncoderCache(encoder, load)
    ids, others = ids_of(store, picture(2, 2)), ids_of(store, picture(2, 2, more=1))
    first, second = store.encoded(ids), store.encoded(others)
    assert isinstance([next(first), next(first)][1], Loading)
    assert isinstance([next(second), next(second)][1], Waiting)
    with pytest.raises(BadPicture, match="not read yet"):
        store.rows(others[0])
    first.close()  # it was stopped, so that the other one loads
    assert isinstance(next(second), Loading)
    drain(second)
    assert loads == ["begun", "begun"]
    assert encoder.encoded == [picture(2, 2, more=1).data]


def test_one_picture_is_encoded_at_a_time() -> None:
    encoder = FakeEncoder()
    store = store_of(encoder)
    ids, others = ids_of(store, picture(2, 2)), ids_of(store, picture(2, 2, more=1))
    steps = [store.encoded(ids), store.encoded(ids), store.encoded(others)]
    for _unused in range(3):  # the encoder is loaded, and has begun
        next(steps[0])
    for waits in steps[1:]:
        assert isinstance([next(waits), next(waits)][1], Waiting)
    assert encoder.encoded == [picture(2, 2).data]
    with pytest.raises(BadPicture, match="not read yet"):
        store.rows(others[0])
    for each in steps:
        drain(each)
    assert encoder.encoded == [picture(2, 2).data, picture(2, 2, more=1).data]
