"""Several filters at once, their masks computed while the model works."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import numpy as np

from engine.constraint.budget import Budget
from engine.constraint.completion import GIVEN_UP
from engine.constraint.filter import Filter
from engine.constraint.vocabulary import Mask, allows
from engine.errors import BadSetting
from engine.words import _

R = TypeVar("R")


class Busy(Exception):
    """The thread of a `FilterSet` needs longer. Once `task` is done, the same call has its result."""

    def __init__(self, task: Future[Any]) -> None:
        super().__init__("the filters' thread needs longer")
        self.task = task


class FilterSet:
    """All `filters` of one sequence: a token must be allowed by each. Empty, it allows everything and is
    false.

    With `prefer_end` the reply ends as soon as it may. `drawable` is a mask of the tokens that can be chosen
    at all (None: all), used only for endings. `prepare` computes the next mask on a thread of its own, which
    starts with the first call and ends with `close`; in between, one thread uses the set.

    With a `patience`, all that can take long runs on that thread: `begin`, `needed`, `fits` and `mask` raise
    `Busy` after that many seconds, and are called again later.
    """

    def __init__(
        self, filters: Sequence[Filter], *, prefer_end: bool = False, drawable: Mask | None = None
    ) -> None:
        self._filters = tuple(filters)
        self._budget = Budget(self._filters, drawable)
        self._prefer_end = prefer_end
        self._worker: ThreadPoolExecutor | None = None
        self._closed = threading.Event()
        self._coming: Future[Mask | None] | None = None
        self._tasks: dict[Hashable, Future[Any]] = {}
        self._waited: Future[Any] | None = None
        self.patience: float | None = None
        self._known = False
        self._mask: Mask | None = None
        self._whole: Mask | None = None
        self.remaining: int | None = None
        """How many tokens may still be written, set before a mask is computed; near the end it is narrowed.

        None: no limit.
        """

    def begin(self, prefix: bytes = b"", given: Sequence[int] = ()) -> bool:
        """Start a new reply with the bytes of a healed token, see `Filter.begin`, and the tokens `given`;
        False if these are not allowed.
        """
        if "begin" not in self._tasks:
            self._forget()
        return self._elsewhere("begin", lambda: self._begun(prefix, given))

    def _begun(self, prefix: bytes, given: Sequence[int]) -> bool:
        for one in self._filters:
            one.begin(prefix)
        self._budget.begin()
        for token in given:
            mask = self._whole_now()
            if mask is not None and not allows(mask, token):
                return False
            for one in self._filters:
                one.accept(token)
            self._budget.accept(token)
        return True

    def prepare(self) -> None:
        """Start computing the next mask in the background, unless it is known or under way; `mask` waits for
        it.
        """
        if self._known or self._coming is not None or not self._filters:
            return
        self._coming = self._pool().submit(self._computed)

    def mask(self) -> Mask | None:
        """The tokens that all filters allow; None allows all. Do not write to it.

        Raises `BadSetting` if a filter fails (its grammar is too complex) or its mask has the wrong shape.
        """
        if not self._known:
            if self.patience is not None:
                self.prepare()
            if self._coming is None:
                self._mask = self._computed()
            else:
                coming, self._coming = self._done(self._coming), None
                self._mask = coming.result()
            self._known = True
        return self._mask

    def accept(self, token: int) -> None:
        """Continue with a token. Raises ValueError, and changes nothing, if a filter does not allow it."""
        self._settle()
        done: list[Filter] = []
        try:
            for one in self._filters:
                one.accept(token)
                done.append(one)
        except ValueError:
            for one in done:
                one.rollback(1)
            raise
        self._budget.accept(token)
        self._forget()

    def rollback(self, tokens: int) -> None:
        """Take back the last accepted tokens."""
        if tokens:
            self._forget()
            for one in self._filters:
                one.rollback(tokens)
            self._budget.rollback(tokens)

    def needed(self) -> int:
        """The number of tokens of the shortest reply from here if known, else 0."""
        ending = self._elsewhere("needed", self._budget.ending)
        return len(ending.tokens) if ending is not None else 0

    def least(self) -> int:
        """A number of tokens that a whole reply has at least. Found without a search."""
        return self._budget.least()

    def fits(self, token: int) -> bool:
        """Whether the reply can still end in time after this allowed token."""
        remaining = self.remaining
        return remaining is None or self._elsewhere(
            ("fits", token), lambda: self._budget.fits(token, remaining)
        )

    def forced(self) -> Mask | None:
        """A mask of only the next token of the known ending, if there is one."""
        mask = self.whole_mask()
        return None if mask is None else self._budget.forced(mask)

    def whole_mask(self) -> Mask | None:
        """The mask without regard to how many tokens remain."""
        self.mask()
        return self._whole

    @property
    def may_end(self) -> bool:
        """Whether the text satisfies all filters as it is."""
        self._settle()
        return all(one.may_end for one in self._filters)

    @property
    def ended(self) -> bool:
        """Whether the reply ends without a stop token: nothing may follow, or with `prefer_end` it may end.

        Also if the mask is known to allow nothing, see `stuck`. Never without filters.
        """
        if not self._filters:
            return False
        self._settle()
        return (
            any(one.ended for one in self._filters)
            or (self._prefer_end and self.may_end)
            or self._nothing_follows()
        )

    @property
    def stuck(self) -> bool:
        """Whether nothing can follow an incomplete text, as filters contradict each other or the vocabulary
        lacks characters. Known once the mask is.
        """
        return self._nothing_follows() and not self.may_end

    def close(self) -> None:
        """End the thread. The set can still be used; a later `prepare` starts another. A thread that needs
        longer than the patience ends by itself.
        """
        worker, self._worker = self._worker, None
        self._closed.set()
        if worker is None:
            return
        left = set[Future[Any]]()
        if self.patience is not None:
            worker.shutdown(wait=False, cancel_futures=True)
            tasks = [task for task in (self._coming, *self._tasks.values()) if task and not task.cancelled()]
            left = wait(tasks, self.patience).not_done
            self._coming = None
            self._tasks.clear()
        worker.shutdown(wait=not left)

    def __len__(self) -> int:
        return len(self._filters)

    def _nothing_follows(self) -> bool:
        return self._known and self._mask is not None and not self._mask.any()

    def _pool(self) -> ThreadPoolExecutor:
        """The thread; its searches end once the set is closed."""
        if self._worker is None:
            self._closed = threading.Event()
            self._worker = ThreadPoolExecutor(
                1, thread_name_prefix="filters", initializer=GIVEN_UP.set, initargs=(self._closed,)
            )
        return self._worker

    def _elsewhere(self, key: Hashable, call: Callable[[], R]) -> R:
        """What `call` returns or raises; with a patience on the other thread. `key` names it until the next
        token.
        """
        if self.patience is None:
            self._settle()
            return call()
        task: Future[R] | None = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = self._pool().submit(call)
        return self._done(task).result()

    def _done(self, task: Future[R]) -> Future[R]:
        """A task that is done. Raises `Busy`, at once where it has been waited for before."""
        if not task.done():
            waited, self._waited = self._waited is task, task
            if waited or not wait([task], self.patience).done:
                raise Busy(task)
        return task

    def _computed(self) -> Mask | None:
        both = self._whole = self._whole_now()
        if both is None or self.remaining is None:
            return both
        return self._budget.narrowed(both, self.remaining)

    def _whole_now(self) -> Mask | None:
        """The mask without regard to how many tokens remain, computed on this thread."""
        masks = [mask for mask in (one.mask() for one in self._filters) if mask is not None]
        if any(mask.dtype != np.uint32 or mask.shape != masks[0].shape or mask.ndim != 1 for mask in masks):
            raise BadSetting(
                _(
                    "A filter's mask has the wrong format; it must be uint32 with one bit for each token "
                    "of the vocabulary."
                )
            )
        if not masks:
            return None
        both: Mask = np.bitwise_and.reduce(masks) if len(masks) > 1 else masks[0]
        return both

    def _settle(self) -> None:
        """Wait until the other thread uses no filter. Its result or error is kept for `mask`."""
        if self._coming is not None:
            wait([self._coming])

    def _forget(self) -> None:
        self._settle()
        self._tasks.clear()
        self._coming, self._known, self._mask = None, False, None
