"""Random life of a page table, against a model of the memory itself.

The model stores in each (page, slot) the whole prefix that ended with the token written there, salted by the
key, as real keys and values depend on it; a state of recurrent layers is what was written at the last
position that it sums up. A lease must always read exactly its own prefixes through its block
table. Now and then the content is saved and goes on living in a second table, of another size, from whose
file some pages may have been lost.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from engine.core import PAGE_TOKENS as P
from engine.errors import ContextTooLong
from engine.kv_cache.lease import Lease
from engine.kv_cache.page_pool import pages_for
from engine.kv_cache.pages import PageTable
from engine.kv_cache.prefix_index import take_up, worth_keeping

# Long runs drawn from few seeds: common beginnings of every length, forks inside pages and at their borders.
run = st.tuples(st.integers(0, 2), st.sampled_from([1, 2, 100, P - 1, P, P + 1, 300, 2 * P, 600]))
text = st.lists(run, min_size=0, max_size=4).map(
    lambda runs: [seed * 7 + i % 5 for seed, count in runs for i in range(count)]
)
AFTER_OPENING = ["write", "copy", "copy and clear", "confirm", "nothing"]
Written = tuple[str, int, int]


def prefix(key: str, ids: list[int]) -> list[Written]:
    """What is to be written at each position: (key, token, hash of everything up to it)."""
    found, state = [], hash(key)
    for token in ids:
        state = hash((state, token))
        found.append((key, token, state))
    return found


@dataclass(eq=False)
class World:
    """A table with its memory and leases, and the file it was taken up from: the content of each page,
    None for a lost one.
    """

    table: PageTable
    memory: list[list[Written | None]]
    file: list[list[Written | None] | None]
    states: list[Written | None]
    keys: dict[Lease, str] = field(default_factory=dict)

    @classmethod
    def empty(cls, pages: int, states: int, file: list[list[Written | None] | None]) -> World:
        return cls(
            PageTable(pages, states), [[None] * P for _ in range(pages)], file, [None for _ in range(states)]
        )

    def perform(self, lease: Lease) -> None:
        for source, target in lease.copies:
            self.memory[target] = self.memory[source].copy()

    def read(self, lease: Lease) -> None:
        """As `PagedCache` does: what still lies in the file is brought in, or the lease is cut before it."""
        for depth, page, number in sorted(lease.unread):
            content = self.file[number]
            if content is None:
                lease.truncate(depth * P)
                self.table.lose(page)
                return
            self.memory[page] = content.copy()
            self.table.read(page)

    def write(self, lease: Lease, ids: list[int], junk: int) -> None:
        """As a generator does: reserve, copies, write (a few rejected drafts behind the text too), extend."""
        try:
            lease.reserve(lease.length + len(ids))
        except ContextTooLong:
            if self.states and not lease._targets:
                held = {state for other in self.keys for state in other.held_states()}
                assert len(held) == len(self.states)
                return
            blocked = {page for other in self.keys for page in other.pages}
            blocked |= {
                source.index for other in self.keys if other is not lease for source, _ in other.copying
            }
            assert pages_for(lease.length + len(ids)) - len(lease.pages) > self.table.page_count - len(
                blocked
            )
            return
        self.perform(lease)
        values = prefix(self.keys[lease], lease.ids + ids)[lease.length :] + [("junk", -1, -1)] * junk
        for position, value in enumerate(values[: len(lease.pages) * P - lease.length], lease.length):
            self.memory[lease.pages[position // P]][position % P] = value
        if self.states:
            before, after = lease.states
            assert (None if before < 0 else self.states[before]) == self.summed(lease)
            assert before != after
            self.states[after] = values[len(ids) - 1] if ids else ("junk", -1, -1)
        lease.extend(ids)

    def summed(self, lease: Lease) -> Written | None:
        """What the state at the end of a lease must be; None at the beginning."""
        return prefix(self.keys[lease], lease.ids)[-1] if lease.ids else None

    def common(self, lease: Lease, ids: list[int], key: str) -> int:
        if self.keys[lease] != key:
            return 0
        return next(
            (i for i, (a, b) in enumerate(zip(lease.ids, ids, strict=False)) if a != b),
            min(lease.length, len(ids)),
        )


class PagedMemory(RuleBasedStateMachine):
    """Opens, writes, rewinds, closes and saves at random."""

    leases = Bundle("leases")

    @initialize(pages=st.integers(1, 9))
    def begin(self, pages: int) -> None:
        self.worlds = [World.empty(pages, 0, [])]

    def of(self, lease: Lease) -> World:
        return next(world for world in self.worlds if lease in world.keys)

    @rule(
        target=leases,
        ids=text,
        key=st.sampled_from(["", "adapter"]),
        leave=st.integers(0, 2),
        then=st.sampled_from(AFTER_OPENING),
    )
    def open(self, ids: list[int], key: str, leave: int, then: str) -> Lease:
        world = self.worlds[-1]
        best = max((world.common(lease, ids, key) for lease in world.keys), default=0)
        lease = world.table.open(ids, key=key, leave=leave)
        world.keys[lease] = key
        world.read(lease)
        best = min(best, max(0, len(ids) - leave))
        if world.states:  # a living lease has kept a state of its last full page, unless it was forked
            best = 0
        # full pages of living leases are always found
        assert best - best % P <= lease.length <= max(0, len(ids) - leave)
        assert lease.ids == ids[: lease.length]
        rest = ids[lease.length :]
        if then == "write":
            world.write(lease, rest, junk=0)
        elif then != "nothing":
            world.perform(lease)
            if then == "confirm":
                lease.copied()
            elif then == "copy and clear":
                lease.copies.clear()
        return lease

    @rule(lease=leases, ids=text, junk=st.integers(0, 3))
    def go_on(self, lease: Lease, ids: list[int], junk: int) -> None:
        self.of(lease).write(lease, ids, junk)

    @rule(lease=leases, total=st.integers(0, 8 * P))
    def reserve(self, lease: Lease, total: int) -> None:
        with contextlib.suppress(ContextTooLong):
            lease.reserve(total)

    @rule(lease=leases, share=st.floats(0, 1), border=st.booleans())
    def rewind(self, lease: Lease, share: float, border: bool) -> None:
        length = int(share * lease.length)
        if border:
            length -= length % P
        before = (lease.ids.copy(), lease.pages.copy(), lease.copies.copy())
        try:
            lease.truncate(length)
        except ContextTooLong:
            assert (lease.ids, lease.pages, lease.copies) == before
            return
        if self.of(lease).states:
            assert lease.length <= length
            length = lease.length
        assert lease.ids == before[0][:length]
        assert len(lease.pages) == pages_for(length)

    @rule(lease=leases)
    def copy_twice(self, lease: Lease) -> None:
        self.of(lease).perform(lease)
        self.of(lease).perform(lease)

    @rule(target=leases, lease=consumes(leases))
    def close(self, lease: Lease) -> object:
        world = self.of(lease)
        lease.close()
        del world.keys[lease]
        return multiple()

    @rule()
    def forget(self) -> None:
        self.worlds[-1].table.forget()

    @rule(
        pages=st.integers(1, 9),
        limit=st.integers(0, 10),
        lost=st.sets(st.integers(0, 9), max_size=2),
        reported=st.booleans(),
    )
    def save_and_take_up(self, pages: int, limit: int, lost: set[int], reported: bool) -> None:
        """A lost page is known when the file is opened, or comes to light when it is read."""
        old = self.worlds[-1]
        kept = worth_keeping(old.table, limit)
        assert len(kept) <= limit
        if limit >= old.table.page_count and not old.keys:
            assert len(kept) == old.table.idle
        file = [old.memory[page.page] if page.unread < 0 else old.file[page.unread] for page in kept]
        file = [None if number in lost else content and content.copy() for number, content in enumerate(file)]
        world = World.empty(pages, len(old.states), file)
        entries = [None if reported and number in lost else page.entry for number, page in enumerate(kept)]
        taken = take_up(world.table, entries)
        assert taken == world.table.idle <= pages
        if not (reported and lost) and len(kept) <= pages and not old.keys:
            assert taken == len(kept)
        self.worlds = [world for world in self.worlds if world.keys] + [world]

    @invariant()
    def every_lease_reads_its_own_prefix(self) -> None:
        for world in getattr(self, "worlds", ()):
            world.table.check()
            for lease, key in world.keys.items():
                assert not lease.unread
                read = [list(row) for row in world.memory]
                for source, target in lease.copies:  # what it would read once it had performed its copies
                    read[target] = list(world.memory[source])
                values = [read[lease.pages[position // P]][position % P] for position in range(lease.length)]
                assert values == prefix(key, lease.ids)
                if world.states and lease.ids:
                    assert world.states[lease._marks[-1][1].number] == world.summed(lease)

    @invariant()
    def kept_states_sum_up_what_their_pages_hold(self) -> None:
        for world in getattr(self, "worlds", ()):
            for page in world.table.pool.pages:
                for place, state in page.states.items():
                    assert (
                        page.unread >= 0
                        or page.pending
                        or (world.memory[page.index][place - 1] == world.states[state.number])
                    )

    @invariant()
    def idle_content_is_what_the_table_says(self) -> None:
        for world in getattr(self, "worlds", ()):
            for page in world.table.pool.idle:
                content = world.memory[page.index] if page.unread < 0 else world.file[page.unread]
                if content is not None:
                    assert [value and value[1] for value in content[: len(page.ids)]] == page.ids


class PagedMemoryAndStates(PagedMemory):
    """The same with states of recurrent layers."""

    @initialize(pages=st.integers(1, 9), states=st.sampled_from([2, 5, 12]))
    def begin(self, pages: int, states: int) -> None:
        self.worlds = [World.empty(pages, states, [])]

    @rule(lease=PagedMemory.leases, seed=st.integers(0, 2), count=st.sampled_from([1, 3, 40]))
    def go_on_and_keep(self, lease: Lease, seed: int, count: int) -> None:
        self.of(lease).write(lease, [seed * 7 + i % 5 for i in range(count)], 0)
        lease.keep_state()

    @rule(lease=PagedMemory.leases, counts=st.lists(st.booleans(), min_size=1, max_size=5))
    def decode_on_the_device(self, lease: Lease, counts: list[bool]) -> None:
        """A step begins before the one before it is taken in, and may turn out to be one too many."""
        world = self.of(lease)
        try:
            for _ in counts:
                ahead = lease.reserve_ahead()
                held = [state.number for state in lease.held_states()]
                assert len(set(held)) == len(held) <= 4
                world.write(lease, [3], 0)
                world.states[ahead] = ("surplus", -1, -1)
        except ContextTooLong:
            taken = {state for other in world.keys for state in other.held_states()}
            assert len(taken) == len(world.states)


LIFE = settings(max_examples=40, stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow])


class TestPagedMemory(PagedMemory.TestCase):  # type: ignore[misc]
    settings = LIFE


class TestPagedMemoryAndStates(PagedMemoryAndStates.TestCase):  # type: ignore[misc]
    settings = LIFE


@pytest.mark.slow
class TestManyLivesOfPagedMemory(PagedMemory.TestCase):  # type: ignore[misc]
    settings = settings(LIFE, max_examples=300)


@pytest.mark.slow
class TestManyLivesOfPagedMemoryAndStates(PagedMemoryAndStates.TestCase):  # type: ignore[misc]
    settings = settings(LIFE, max_examples=300)
