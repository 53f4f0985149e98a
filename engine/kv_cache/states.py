"""Which of a cache's states holds what, for models with recurrent layers.

A state belongs to one position of a text: it sums up the tokens before it, and cannot be rewound. A lease
writes a new state in each pass and holds the two latest, so that a pass can be taken back. States worth
finding again, at ends of pages above all, are *kept* with the page that has the token before their position;
those that no lease uses are reclaimed when states are short, the least recently used first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from engine.lazy_dataclass import dataclass

Places = dict[int, "State"]
"""The states kept with a page, by the number of the page's tokens (1 ... 256) before their position."""


@dataclass(eq=False, slots=True)
class State:
    """One state: its `number` in the cache, how many leases use it, and where it is kept, if it is."""

    number: int
    users: int = 0
    places: Places | None = None
    place: int = 0


class StatePool:
    """`count` states: free, in use, or kept for later."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.free = [State(number) for number in reversed(range(count))]
        self.kept: OrderedDict[State, None] = OrderedDict()  # without users; the first is reclaimed first

    def acquire(self) -> State | None:
        """A state with one user and no content, if need be the kept one that was used longest ago; None if
        all are in use.
        """
        if not self.free and self.kept:
            self.forget(next(iter(self.kept)))
        if not self.free:
            return None
        state = self.free.pop()
        state.users = 1
        return state

    def hold(self, state: State) -> None:
        """Add a user."""
        self.kept.pop(state, None)
        state.users += 1

    def release(self, state: State) -> None:
        """Remove a user; a state that is not kept is free without any."""
        state.users -= 1
        if not state.users:
            if state.places is None:
                self.free.append(state)
            else:
                self.kept[state] = None

    def keep(self, state: State, places: Places, place: int) -> None:
        """Keep a state with a page's others, unless the page has one of this place."""
        if state.places is None and place not in places:
            places[place] = state
            state.places, state.place = places, place

    def forget(self, state: State) -> None:
        """Do not keep a state any longer."""
        assert state.places is not None
        del state.places[state.place]
        state.places = None
        if not state.users:
            del self.kept[state]
            self.free.append(state)

    def cut(self, places: Places, length: int) -> None:
        """Forget those of a page's states that sum up more than its first `length` tokens."""
        for state in [state for place, state in places.items() if place > length]:
            self.forget(state)

    def move(self, source: Places, target: Places) -> None:
        """Keep a page's states with another page that holds the same tokens."""
        for place, state in list(source.items()):
            if place not in target:
                del source[place]
                target[place] = state
                state.places = target

    def problems(self, pages: Iterable[Places], used: dict[State, int]) -> Iterator[str]:
        """A sentence for each broken invariant; `used` are the users that leases know of."""
        kept = {state: (places, place) for places in pages for place, state in places.items()}
        for state, (places, place) in kept.items():
            if state.places is not places or state.place != place:
                yield f"state {state.number} is not kept where it says"
        for state in {*self.free, *self.kept, *kept, *used}:
            lists = (state in self.free, state in self.kept)
            if state.users != used.get(state, 0):
                yield f"state {state.number} counts {state.users} users, but the leases say otherwise"
            if lists != (not state.users and state not in kept, not state.users and state in kept):
                yield f"state {state.number} is in the wrong list"
        if len({*self.free, *self.kept, *kept, *used}) != self.count or len(set(self.free)) != len(self.free):
            yield "a state is lost or in the free list twice"
