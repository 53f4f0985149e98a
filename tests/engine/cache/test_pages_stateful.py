"""Random life of a page table, against a model of the memory itself.

The model stores in each (page, slot) the whole prefix that ended with the token written there, salted by the key, as real
keys and values depend on it. A lease must always read exactly its own prefixes through its block table.
"""

from __future__ import annotations

import contextlib

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from engine.cache.pages import Lease, PageTable, pages_for
from engine.core import PAGE_TOKENS as P
from engine.errors import ContextTooLong

# Long runs drawn from few seeds: common beginnings of every length, forks inside pages and at their borders.
run = st.tuples(st.integers(0, 2), st.sampled_from([1, 2, 100, P - 1, P, P + 1, 300, 2 * P, 600]))
text = st.lists(run, min_size=0, max_size=4).map(lambda runs: [seed * 7 + i % 5 for seed, count in runs for i in range(count)])
AFTER_OPENING = ["write", "copy", "copy and clear", "confirm", "nothing"]
Written = tuple[str, int, int]


def prefix(key: str, ids: list[int]) -> list[Written]:
    """What is to be written at each position: (key, token, hash of everything up to it)."""
    found, state = [], hash(key)
    for token in ids:
        state = hash((state, token))
        found.append((key, token, state))
    return found


class PagedMemory(RuleBasedStateMachine):
    """Opens, writes, rewinds and closes leases at random."""

    leases = Bundle("leases")

    @initialize(pages=st.integers(1, 9))
    def begin(self, pages: int) -> None:
        self.table = PageTable(pages)
        self.memory: list[list[Written | None]] = [[None] * P for _ in range(pages)]
        self.keys: dict[Lease, str] = {}

    def perform(self, lease: Lease) -> None:
        for source, target in lease.copies:
            self.memory[target] = self.memory[source].copy()

    def wish(self, lease: Lease, ids: list[int]) -> list[int]:
        """What is left to write after the cached prefix, which must be one."""
        assert lease.ids == ids[: lease.length]
        return ids[lease.length :]

    def write(self, lease: Lease, ids: list[int], junk: int) -> None:
        """As a generator does: reserve, copies, write (a few rejected drafts behind the text too), extend."""
        try:
            lease.reserve(lease.length + len(ids))
        except ContextTooLong:
            blocked = {page for other in self.keys for page in other.pages}
            blocked |= {source.index for other in self.keys if other is not lease for source, _ in other._copying}
            assert pages_for(lease.length + len(ids)) - len(lease.pages) > self.table.page_count - len(blocked)
            return
        self.perform(lease)
        values = prefix(self.keys[lease], lease.ids + ids)[lease.length :] + [("junk", -1, -1)] * junk
        for position, value in enumerate(values[: len(lease.pages) * P - lease.length], lease.length):
            self.memory[lease.pages[position // P]][position % P] = value
        lease.extend(ids)

    @rule(target=leases, ids=text, key=st.sampled_from(["", "adapter"]), then=st.sampled_from(AFTER_OPENING))
    def open(self, ids: list[int], key: str, then: str) -> Lease:
        best = max((self.common(lease, ids, key) for lease in self.keys), default=0)
        lease = self.table.open(ids, key=key)
        assert lease.length >= best - best % P  # full pages of living leases are always found
        self.keys[lease] = key
        rest = self.wish(lease, ids)
        if then == "write":
            self.write(lease, rest, junk=0)
        elif then != "nothing":
            self.perform(lease)
            if then == "confirm":
                lease.copied()
            elif then == "copy and clear":
                lease.copies.clear()
        return lease

    def common(self, lease: Lease, ids: list[int], key: str) -> int:
        if self.keys[lease] != key:
            return 0
        return next((i for i, (a, b) in enumerate(zip(lease.ids, ids, strict=False)) if a != b), min(lease.length, len(ids)))

    @rule(lease=leases, ids=text, junk=st.integers(0, 3))
    def go_on(self, lease: Lease, ids: list[int], junk: int) -> None:
        self.write(lease, ids, junk)

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
        assert lease.ids == before[0][:length]
        assert len(lease.pages) == pages_for(length)

    @rule(lease=leases)
    def copy_twice(self, lease: Lease) -> None:
        self.perform(lease)
        self.perform(lease)

    @rule(target=leases, lease=consumes(leases))
    def close(self, lease: Lease) -> object:
        lease.close()
        self.keys.pop(lease, None)
        return multiple()

    @rule()
    def forget(self) -> None:
        self.table.forget()

    @invariant()
    def every_lease_reads_its_own_prefix(self) -> None:
        if not hasattr(self, "table"):
            return
        self.table.check()
        for lease, key in self.keys.items():
            read = [list(row) for row in self.memory]
            for source, target in lease.copies:  # what it would read once it had performed its copies
                read[target] = list(self.memory[source])
            values = [read[lease.pages[position // P]][position % P] for position in range(lease.length)]
            assert values == prefix(key, lease.ids)

    @invariant()
    def idle_content_is_what_the_table_says(self) -> None:
        if not hasattr(self, "table"):
            return
        for page in self.table.pool.idle:
            assert [value and value[1] for value in self.memory[page.index][: len(page.ids)]] == page.ids


TestPagedMemory = PagedMemory.TestCase
TestPagedMemory.settings = settings(max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
