"""Borrowers: what runs passes of a scheduler's model beside its jobs, such as scoring a text."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, final

from engine.core import Waiting
from engine.generator.job import Job, Setup

_MOST_SKIPS = 4
"""How many jobs may start before a borrower that waits."""


class Jobs(Protocol):
    """The jobs of a scheduler."""

    pending: list[Job]
    active: list[Job]

    @property
    def suspended(self) -> Sequence[Job]: ...

    @property
    def setting_up(self) -> object | None:
        """The job whose setup is being brought about."""
        ...


@final
class _Borrower:
    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.skips = 0


class Borrowers:
    """Those that use the model of a scheduler beside its `jobs`; meanwhile it stays as it is."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._using: set[_Borrower] = set()
        self._waiting: list[_Borrower] = []
        self._setting_up: _Borrower | None = None

    @property
    def using(self) -> bool:
        """Whether there is one that uses the model."""
        return bool(self._using)

    @property
    def setting_up(self) -> bool:
        """Whether the setup of one is being brought about: no job may start meanwhile."""
        return self._setting_up is not None

    @property
    def come_first(self) -> bool:
        """Whether one that needs another setup has been overtaken so often that no further job may begin
        before it.
        """
        waiting = (borrower for borrower in self._waiting if borrower.skips >= _MOST_SKIPS)
        return any(not borrower.setup.holds() for borrower in waiting)

    def overtaken(self) -> None:
        """A job begins before those that wait."""
        for borrower in self._waiting:
            borrower.skips += 1

    @contextmanager
    def borrow(self, setup: Setup) -> Iterator[Generator[Waiting, None, None]]:
        """The model as `setup` has it: it is so once the iterator has come to its end, and stays so until the
        context's. The iterator raises what the setup raises.
        """
        borrower = _Borrower(setup)
        try:
            yield self._lent(borrower)
        finally:
            self._using.discard(borrower)
            if borrower in self._waiting:
                self._waiting.remove(borrower)
            if self._setting_up is borrower:
                self._setting_up = None

    def _lent(self, borrower: _Borrower) -> Generator[Waiting, None, None]:
        jobs, setup = self._jobs, borrower.setup
        self._waiting.append(borrower)
        while not self._may_begin(setup):
            begun = jobs.active or jobs.suspended or self.using or jobs.setting_up or self.setting_up
            if not begun and not setup.holds():
                self._setting_up = borrower
                for _step in setup.run(threading.Event()):
                    yield Waiting()
                self._setting_up = None
                break
            yield Waiting(queued=True)
        self._waiting.remove(borrower)
        self._using.add(borrower)

    def _may_begin(self, setup: Setup) -> bool:
        """Whether the model is as it should be, and no job that needs another setup has been overtaken too
        often. If so, this counts.
        """
        jobs = self._jobs
        if jobs.setting_up or self.setting_up or not setup.holds():
            return False
        others = [job for job in jobs.pending if job.setup is not None and not job.setup.holds()]
        if any(job.skips >= job.max_skips for job in others):
            return False
        for job in others:
            job.skips += 1
        return True
