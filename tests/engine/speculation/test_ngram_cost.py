"""What n-gram drafting costs where there is nothing to guess."""

from __future__ import annotations

from typing import Any

from engine.speculation.ngram import NgramDrafter


class _Watched(list[int]):
    """A list that counts the elements that slices of it copied."""

    copied = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        self.copied += len(found) if isinstance(key, slice) else 0
        return found


def test_a_token_costs_the_same_after_a_long_reply_and_asks_for_no_cost() -> None:
    def asked(count: int) -> float:
        raise AssertionError(f"nothing repeats, so what {count} guesses cost is of no interest")

    drafter = NgramDrafter()
    drafter.extra_cost = asked
    ids = _Watched(range(100))
    drafter.begin(ids)
    for token in range(100, 12_000):
        ids.append(token)
        before = ids.copied
        assert drafter.propose(ids, 5) == []
        assert ids.copied - before < 1000


def test_a_change_further_back_than_the_end_is_noticed() -> None:
    drafter = NgramDrafter()
    drafter.extra_cost = lambda count: 0.0
    drafter.begin([1, 2, 3])
    ids = [1, 2, 3, *range(10, 400)]
    drafter.propose(ids, 3)
    changed = [*ids[:200], 7, 8, 9]  # rewound and written otherwise
    drafter.propose(changed, 3)
    assert drafter.propose([*changed, 5, 1, 2, 7], 1)[0] == 8
