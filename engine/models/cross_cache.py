"""Passes of a model with layers that look at pictures (`engine.models.layers.attention.cross`).

What these layers see lies in a cache of its own: keys and values of the rows of pictures, which passes over
texts attend to. A token sees the last picture before it, and those right before that one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from engine.backends.base import KVCache, Program, Step
from engine.backends.cross import CrossKeys
from engine.core import FIRST_PICTURE_ID
from engine.errors import NotEnoughMemory
from engine.kv_cache.lease import Lease
from engine.kv_cache.page_pool import pages_for
from engine.models.base import Model
from engine.models.memory.estimate import picture_pages
from engine.models.picture_tokens import PictureTokens
from engine.tensors import Floats
from engine.units import size_text
from engine.words import _

Group = tuple[int, ...]
"""The ids of pictures that are seen together; empty: none is."""
_NOTHING = CrossKeys(np.zeros(1, np.int32), 1)
"""What rows see that see no picture: the first page, whose keys and values are zeros."""


def group_after(ids: Sequence[int], group: Group, last: bool) -> tuple[Group, bool]:
    """What the next token sees after these, and whether the last one is a picture, where the first of them
    saw `group`, and whether the one before it was a picture is `last`.
    """
    for id in ids:
        picture = id >= FIRST_PICTURE_ID
        if picture:
            group = (*group, id) if last else (id,)
        last = picture
    return group, last


class CrossCache:
    """The pictures of one model's sequences, for passes over the cache `store` of up to `rows` rows and
    contexts of up to `context` tokens. Used by one thread.
    """

    def __init__(
        self, model: Model, store: KVCache, rows: int, context: int, pictures: PictureTokens
    ) -> None:
        self._model, self._store, self._rows, self._context = model, store, rows, context
        self._pictures = pictures
        self._seen: WeakKeyDictionary[Lease, tuple[int, Group, bool]] = WeakKeyDictionary()
        self._kept: OrderedDict[Group, CrossKeys] = OrderedDict()
        self._free: list[int] = []
        self._cache: KVCache | None = None
        self._programs: tuple[Program, Program] | None = None
        self._given: Floats = np.zeros((rows, model.config.width), np.float32)

    def group(self, lease: Lease, ids: Sequence[int]) -> Group:
        """What the tokens `ids` after a lease see, of which only the first may be a picture."""
        known, group, last = self._seen.get(lease, (0, (), False))
        length = len(lease.ids)
        if known > length:
            known, group, last = 0, (), False
        if known < length:
            group, last = group_after(lease.ids[known:length], group, last)
            self._seen[lease] = length, group, last
        assert max(ids[1:], default=0) < FIRST_PICTURE_ID
        return group_after(ids[:1], group, last)[0]

    def ready(self, step: Step, groups: Sequence[Group]) -> tuple[Program, Step]:
        """The program for a step in which each sequence sees one of `groups`, and the step as it runs it.
        Raises `BadPicture` and `NotEnoughMemory`.
        """
        self._hold(groups)
        assert self._programs is not None
        token = self._pictures.spec.looked_at
        assert token is not None
        ids = np.where(step.token_ids < FIRST_PICTURE_ID, step.token_ids, np.int32(token))
        cross = [self._kept[group] if group else _NOTHING for group in groups]
        return self._programs[0], replace(step, token_ids=ids, cross=cross)

    def _hold(self, groups: Sequence[Group]) -> None:
        """Have the keys and values of all groups in the cache."""
        asked = dict.fromkeys(group for group in groups if group)
        for group in asked:
            if group in self._kept:
                self._kept.move_to_end(group)
        for group in asked:
            if group not in self._kept:
                self._add(group, asked)

    def _add(self, group: Group, asked: dict[Group, None]) -> None:
        rows = [self._pictures.rows(id).states for id in group]
        length = sum(map(len, rows))
        needed = pages_for(length)
        while len(self._free) < needed and (old := next(iter(self._kept), None)) not in (None, *asked):
            assert old is not None
            self._free += self._kept.pop(old).pages.tolist()
        if len(self._free) < needed:
            others = [each for each in asked if each in self._kept]
            self._grow(needed + sum(len(self._kept[each].pages) for each in others))
            for each in others:
                self._add(each, asked)
        pages = np.array([self._free.pop() for _unused in range(needed)], np.int32)
        self._write(np.concatenate(rows), pages)
        self._kept[group] = CrossKeys(pages, length)

    def _write(self, states: Floats, pages: np.ndarray[tuple[int], np.dtype[np.int32]]) -> None:
        """Write the rows (L, E) of pictures to these pages."""
        assert self._programs is not None
        for start in range(0, len(states), self._rows):
            part = states[start : start + self._rows]
            self._given[: len(part)] = part
            places = np.arange(start, start + len(part), dtype=np.int32)
            self._programs[1].run(Step(np.zeros(len(part), np.int32), places, pages))

    def _grow(self, asked: int) -> None:
        """Make the cache, or a larger one, with room for as many pages again as are `asked`, or as there is
        memory for, and that of zeros; it is empty then.
        """
        self.close()
        model = self._model
        each = model.cross_page_bytes()
        free = model.backend.free_memory()
        pages = min(picture_pages(asked), free // each)
        if pages <= asked:
            raise NotEnoughMemory(
                _(
                    "The pictures of this chat need {size} of memory, but {size_2} are free; close other "
                    "programs, or send fewer pictures.",
                    size=size_text(each * (asked + 1)),
                    size_2=size_text(free),
                )
            )
        self._cache = self._store.cross = model.new_cross_cache(pages)
        self._programs = (
            model.record_looking(self._store, self._rows, self._context),
            model.record_writing(self._cache, self._rows, self._given),
        )
        self._free = list(range(pages - 1, 0, -1))

    def close(self) -> None:
        """Release the programs and the keys and values; they are made again when they are needed."""
        for program in self._programs or ():
            program.close()
        if self._cache is not None:
            self._cache.close()
        self._cache = self._store.cross = self._programs = None
        self._kept.clear()
        self._free = []
