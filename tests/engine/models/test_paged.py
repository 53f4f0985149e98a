"""The cache as the generator uses it: size, limits, rewinds, several sequences; always as if each had run
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core import PAGE_TOKENS as P
from engine.errors import BadSetting, ContextTooLong
from engine.kv_cache.lease import Lease
from engine.models.memory.fit import GPU_ROWS, prefill_rows
from engine.models.paged import PagedCache, chosen_context
from engine.settings import CacheSettings
from tests.engine.generator.fakes import FakeModel, make, random_logits
from tests.engine.models.oracle import load
from tests.tiny import TINY, write_folder

MIB = 2**20


class Sized(FakeModel):
    """A fake whose pages take `page` bytes."""

    def __init__(self, page: int = 1 << 62, context_length: int = 4096) -> None:
        super().__init__(context_length=context_length)
        self.page = page

    def page_bytes(self, dtype: str) -> int:
        return self.page


def new_cache(
    context: int = 1024, memory: int = 0, page: int = 1 << 62, rows: int | None = None
) -> PagedCache:
    model: Any = Sized(page)
    cache = PagedCache(model, CacheSettings(context_length=context, memory=memory))
    cache.rows = rows or cache.rows
    return cache


def read(cache: PagedCache, lease: Lease, ids: Sequence[int]) -> int:
    """Run the ids that a lease lacks, check the logits, and return how many there were."""
    missing = len(ids) - lease.length
    while lease.length < len(ids):
        logits = cache.run(lease, ids[lease.length : lease.length + cache.rows])
    np.testing.assert_array_equal(logits[-1], random_logits(list(ids)))
    return missing


def turn(cache: PagedCache, ids: Sequence[int]) -> int:
    """The same with a new lease."""
    with cache.open(ids) as lease:
        return read(cache, lease, ids)


def shape(layers: int, width: int, heads: int, kv_heads: int, head_dim: int, ffn_width: int) -> Any:
    return SimpleNamespace(
        layers=layers, width=width, heads=heads, kv_heads=kv_heads, head_dim=head_dim, ffn_width=ffn_width,
        bidirectional=False,
    )  # fmt: skip


def test_larger_models_read_in_smaller_steps():
    assert prefill_rows(shape(30, 576, 9, 3, 64, 1536)) == 512  # SmolLM2 135M
    assert prefill_rows(shape(22, 2048, 32, 4, 64, 5632)) == 128  # 1.1B
    assert prefill_rows(shape(32, 4096, 32, 8, 128, 14336)) == 32  # 8B
    assert prefill_rows(shape(32, 4096, 32, 8, 128, 14336), "cuda") == GPU_ROWS == 1024


def test_context_length():
    assert chosen_context(CacheSettings(), 2048) == 2048
    assert chosen_context(CacheSettings(), 131072) == 8192
    assert chosen_context(CacheSettings(context_length=131072), 131072) == 131072
    with pytest.raises(BadSetting, match="16,384 tokens, but this model supports at most 8,192"):
        chosen_context(CacheSettings(context_length=16384), 8192)


@pytest.mark.parametrize("context", [1, 256, 257, 4096])
def test_steps_are_no_larger_than_the_context(context):
    generator, model = make(context=context)
    assert model.program.max_rows == generator.cache.rows == min(512, context)


@pytest.mark.parametrize(
    ("memory", "page", "free", "pages"),
    [
        (0, 1000, 10**12, 6 + 3 * 4),  # three contexts more
        (0, 10**6, 8 * 10 * 10**6, 6 + 10),  # an eighth of what is free
        (0, 10**6, 7 * 10**6, 6),
        (0, 10**6, 6 * 10**6, 6),  # hardly room for one context
        (0, 10**6, 10**6, 6),  # not even that: making the store refuses
        (1, MIB // 8, 10**12, 8),
        (1, MIB, 10**12, 6),  # at least one context
        (100, MIB, 10**12, 100),
    ],
)  # fmt: skip
def test_memory_for_conversations(monkeypatch, memory, page, free, pages):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free))
    assert new_cache(1024, memory, page).store.page_count == pages


def test_one_sequence_ends_at_the_context_however_many_pages_there_are():
    cache = new_cache(context=300, memory=20, page=MIB)
    assert cache.store.page_count == 20
    with cache.open([1]) as lease:
        read(cache, lease, list(range(1, 300)))
        with pytest.raises(
            ContextTooLong, match=r"would have 301 tokens, but the context holds 300; shorten it"
        ):
            cache.run(lease, [7, 8])
        assert (lease.length, len(lease.pages)) == (299, 2)
        read(cache, lease, list(range(1, 301)))
        with pytest.raises(ContextTooLong):
            cache.run(lease, [7])


def test_positions_end_at_the_context_too(tmp_path):
    """The rotary table is as long as one sequence can get, not as all pages together."""
    model = load(write_folder(tmp_path / "m", TINY.but(context_length=6000)))
    cache = PagedCache(model, CacheSettings(context_length=5000, memory=32))
    assert cache.store.page_count > 60
    assert len(model.rope_tables.main.cos) == 5000
    cache.close()
    model.close()


def test_memory_for_several_sequences():
    cache = new_cache(context=1024)  # six pages
    assert [cache.growth(*[0] * count) for count in (1, 2, 3, 6, 7)] == [1024, 768, 512, 256, 0]
    leases = [cache.open([1]) for _ in range(2)]
    for first, lease in enumerate(leases, 1):
        read(cache, lease, [first] * cache.growth(0, 0))
    with pytest.raises(ContextTooLong, match="are available"):
        cache.run(leases[0], [5])
    leases[1].close()
    read(cache, leases[0], [1] * 1024)


def test_rejected_drafts_copy_nothing(monkeypatch):
    """Checks of eight rows, of which some are accepted: the pages stay the same, and nothing is copied."""
    cache, ids = new_cache(), list(range(1, 400))
    monkeypatch.setattr(cache.store, "copy_page", lambda *_: pytest.fail("a page was copied"))
    with cache.open(ids) as lease:
        read(cache, lease, ids)
        rng = np.random.default_rng(0)
        while len(ids) < 900:
            drafts, kept = rng.integers(1, 300, 7).tolist(), int(rng.integers(0, 8))
            token = int(rng.integers(1, 300))
            logits = cache.run(lease, [token, *drafts], logit_rows=8)
            ids.append(token)
            for row in range(8):
                np.testing.assert_array_equal(logits[row], random_logits(ids + drafts[:row]))
            ids += drafts[:kept]
            pages = list(lease.pages)
            lease.truncate(len(ids))
            assert lease.pages == pages[: -(-len(ids) // P)]
            assert cache.table.cached <= len(pages)
    cache.table.check()
    assert turn(cache, [*ids, 5]) == 1


def test_drafts_beside_another_sequence_of_the_same_text():
    """Going back within a shared page copies it; the other sequence is unaffected."""
    cache, ids = new_cache(), [*range(1, 2 * P + 1)]
    turn(cache, ids)
    with cache.open([*ids, 9]) as one, cache.open([*ids, 9]) as two:
        assert one.pages == two.pages
        one.truncate(P + 50)
        read(cache, one, [*ids[: P + 50], *range(700, 750)])
        read(cache, two, [*ids, 9, 9])
        read(cache, one, [*ids[: P + 50], *range(700, 760)])
    cache.table.check()


def test_both_rows_of_guidance_stay_cached_over_turns():
    """The negative row is another sequence of the same model."""
    cache = new_cache(context=1024, memory=40, page=MIB)
    rows, token = [[1, 2, *range(100, 130)], [1, 3, *range(200, 290)]], 0
    for round_ in range(6):
        with cache.open(rows[0]) as positive, cache.open(rows[1]) as negative:
            both = ((positive, rows[0]), (negative, rows[1]))
            ran = [read(cache, lease, ids) for lease, ids in both]
            # the last token of the reply, then the new message
            assert ran == ([21, 21] if round_ else [32, 92])
            for step in range(40):
                token += 1
                for lease, ids in both:
                    ids.append(token % 290)
                    if step < 39:  # the token that ends the reply is drawn, not run
                        assert read(cache, lease, ids) == 1
        for ids in rows:
            ids += range(290, 310)
    cache.table.check()


def test_another_adapter_finds_nothing():
    cache = new_cache()
    turn(cache, range(1, 300))
    with cache.open(range(1, 300), key="adapter") as lease:
        assert lease.length == 0


conversation = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from([1, 5, 100, 250, 256, 257, 300])), min_size=1, max_size=3
).map(lambda runs: [seed * 50 + i % 7 for seed, count in runs for i in range(count)])
visit = st.tuples(
    st.integers(0, 3),  # which conversation
    st.sampled_from(["go on", "go on", "again", "edit", "draft", "stop reading"]),
    conversation,
    st.integers(0, 1 << 16),
)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    visits=st.lists(visit, min_size=1, max_size=12),
    memory=st.sampled_from([0, 8, 12, 30]),
    rows=st.sampled_from([64, 256, 500]),
)
def test_any_order_of_conversations_equals_each_alone(visits, memory, rows):
    """`read` compares the logits with those of the text alone, whatever was cached, cut, copied or reclaimed
    before.
    """
    cache = new_cache(context=1536, memory=memory, page=MIB if memory else 1 << 62, rows=rows)
    texts: list[list[int]] = [[number + 1] for number in range(4)]
    for which, what, new, number in visits:
        ids = texts[which]
        if what == "edit":
            ids = ids[: number % len(ids)]
        if what != "again":
            ids = ids + new
        texts[which] = ids = ids[:1500]
        with cache.open(ids) as lease:
            assert lease.length < len(ids)
            if what == "stop reading":
                cache.run(lease, ids[lease.length :][: 1 + number % rows])
                continue
            read(cache, lease, ids)
            if what == "draft":
                back = number % min(len(ids), 300)
                cache.run(lease, new[:8])
                lease.truncate(len(ids) - back)
                texts[which] = ids = [*ids[: len(ids) - back], 5]
                read(cache, lease, ids)
        cache.table.check()
        assert turn(cache, ids) == 1 or cache.table.free == 0
