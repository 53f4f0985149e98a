"""Checkpoints of a sequence: the states before its newest tokens, to which a banned string takes it back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from engine.backends.decode_loop import KEPT_LOGITS
from engine.lazy_dataclass import dataclass
from engine.tensors import Floats

Late = Callable[[], Floats]
"""Logits that the device still has, for a few steps."""
_LATEST = KEPT_LOGITS // 2


class Restorable(Protocol):
    """A part of a sequence whose state can be taken and put back."""

    def snapshot(self) -> Any: ...

    def restore(self, snapshot: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state before a token, of which the ban gate still holds some text.

    `place` is the token's, `fed` the number of characters before it, `accepted` the number of tokens that the
    filters had taken in, and `logits` (V,) those that the token was chosen from.
    """

    place: int
    fed: int
    accepted: int
    states: tuple[Any, ...]
    logits: Floats | Late | None
    token: int = -1
    text: str = ""


class Checkpoints:
    """The checkpoints of one sequence, oldest first.

    `fed` is the number of characters given to the ban gate; `blocked` are the tokens that led to a banned
    string, by their place.
    """

    def __init__(self, parts: Sequence[Restorable]) -> None:
        self._parts = parts
        self._kept: list[Checkpoint] = []
        self.fed = 0
        self.blocked: dict[int, set[int]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, place: int, accepted: int, logits: Floats | Late) -> Checkpoint:
        """The present state. The logits still belong to the caller: `forget` copies them where needed."""
        return Checkpoint(place, self.fed, accepted, tuple([part.snapshot() for part in self._parts]), logits)

    def add(self, checkpoint: Checkpoint, token: int, text: str) -> None:
        """Keep a checkpoint, now that its token and the token's text are known."""
        self._kept.append(replace(checkpoint, token=token, text=text))

    def at(self, character: int) -> int:
        """The index of the checkpoint whose token wrote this character."""
        return next(i for i, kept in enumerate(self._kept) if kept.fed + len(kept.text) > character)

    def forget(self, held: int, length: int) -> None:
        """Drop the checkpoints of tokens whose text is out, all but the last `held` characters, in a sequence
        of `length` tokens; the newest one gets its own copy of the logits.
        """
        cleared = self.fed - held
        self._kept = [kept for kept in self._kept if kept.fed + len(kept.text) > cleared]
        if not self._kept or self._kept[-1].place != length - 1:
            return
        last = self._kept[-1]
        if not callable(last.logits):
            assert last.logits is not None
            self._kept[-1] = replace(last, logits=last.logits.copy())
        elif last.place - self._kept[0].place >= _LATEST:
            self.keep_logits()

    def keep_logits(self) -> None:
        """Fetch the logits that are still on the device."""
        self._kept = [
            replace(kept, logits=kept.logits()) if callable(kept.logits) else kept for kept in self._kept
        ]

    def back_to(self, index: int) -> tuple[Checkpoint, str]:
        """Restore the parts to a checkpoint and block its token there; returns it and the text taken back."""
        found, text = self._kept[index], "".join(kept.text for kept in self._kept[index:])
        for part, state in zip(self._parts, found.states, strict=True):
            part.restore(state)
        del self._kept[index:]
        self.fed = found.fed
        self.blocked = {place: ids for place, ids in self.blocked.items() if place <= found.place}
        self.blocked.setdefault(found.place, set()).add(found.token)
        return found, text
