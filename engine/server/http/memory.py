"""Memory: a bound on what the requests of all clients hold together."""

from __future__ import annotations

from engine.server.failure import ApiError, Failure, busy


class Memory:
    """Up to `most` bytes are held at a time. Used on the server's thread."""

    def __init__(self, most: int) -> None:
        self._most, self.held = most, 0

    def share(self) -> Share:
        """What one request holds: nothing yet."""
        return Share(self)

    def take(self, size: int, own: int) -> None:
        """Hold more, for a request that holds `own` bytes. Raises `ApiError`."""
        if own + size > self._most:
            raise ApiError(
                Failure(
                    413, f"The request and its answer would take more than {self._most:,} bytes of memory."
                )
            )
        if self.held + size > self._most:
            raise busy("The requests of all clients together are too large; try again in a moment.")
        self.held += size


class Share:
    """What one request holds of the memory."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._own = memory, 0

    def take(self, size: int) -> None:
        """Hold more. Raises `ApiError`."""
        self._memory.take(size, self._own)
        self._own += size

    def release(self) -> None:
        """Hold nothing any more."""
        self._memory.held -= self._own
        self._own = 0
