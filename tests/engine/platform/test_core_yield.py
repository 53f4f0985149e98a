"""core_yield: the priority of a model's threads."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from engine.platform import core_yield

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a niceness for each thread")


def _niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_a_thread_and_those_it_starts_get_a_lower_priority_and_no_other_thread_does() -> None:
    before, found = _niceness(), list[int]()

    def work() -> None:
        core_yield.lower_priority()
        core_yield.lower_priority()  # twice is once
        found.append(_niceness())
        started = threading.Thread(target=lambda: found.append(_niceness()))
        started.start()
        started.join()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    expected = max(before, core_yield.NICENESS)
    assert found == [expected, expected]
    assert _niceness() == before


def test_a_thread_of_an_even_lower_priority_keeps_it() -> None:
    found = list[int]()

    def work() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        core_yield.lower_priority()
        found.append(_niceness())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [19]
