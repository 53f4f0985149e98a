"""A call with a large stack: llguidance compiles by recursion, and a chain of some hundred rules would
overflow a usual one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

STACK_BYTES = 64 * 1024 * 1024  # addresses only; what is not used takes no memory

T = TypeVar("T")
_lock = threading.Lock()


def with_room(call: Callable[[], T]) -> T:
    """What `call` returns, or what it raises, from a thread with a stack of 64 MiB that ends with it."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        # raised again below; a panic of the Rust library is not an Exception
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    with _lock:
        before = threading.stack_size(STACK_BYTES)
        thread = threading.Thread(target=run, name="grammar")
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
