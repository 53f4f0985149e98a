"""KeptFiles: pictures that LM Studio's clients upload before the messages that name them, in memory only."""

from __future__ import annotations

import secrets
from collections import OrderedDict

from engine.lazy_dataclass import dataclass

MOST_BYTES = 64 << 20
"""How much memory all kept files may take together."""


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A picture as a data: address; `size` is that of the file, in bytes."""

    id: str
    address: str
    size: int


class KeptFiles:
    """The least recently used files are forgotten first. Used on the server's thread."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._found: OrderedDict[str, KeptFile] = OrderedDict()

    def keep(self, address: str, size: int) -> KeptFile:
        """Keep a file, and forget others if there are too many."""
        file = KeptFile(secrets.token_hex(16), address, size)
        self._found[file.id] = file
        while len(self._found) > 1 and sum(len(one.address) for one in self._found.values()) > self._most:
            self._found.popitem(last=False)
        return file

    def get(self, id: str) -> KeptFile | None:
        """A file; None if it is not kept, or no longer."""
        if id in self._found:
            self._found.move_to_end(id)
        return self._found.get(id)
