"""What tokenizers have in common that the `tokenizers` library does not know."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from engine.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Encoding:
    """What the `tokenizers` library calls the result of encoding."""

    ids: list[int]


class OwnKind(ABC):
    """Encodes as the `tokenizers` library does, as far as it is used, from a definition of its kind."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        names = {entry["content"]: entry["id"] for entry in definition["added_tokens"]}
        self._added = {text: i for text, i in names.items() if text}
        found = sorted(map(re.escape, self._added), key=len, reverse=True)
        self._pattern = re.compile(f"({'|'.join(found)})" if found else "(?!)")

    def token_to_id(self, text: str) -> int | None:
        """The id of an added token."""
        return self._added.get(text)

    def encode(self, text: str, add_special_tokens: bool = True) -> Encoding:
        """The ids of a text, whose added tokens are found first."""
        ids: list[int] = []
        for part in self._pattern.split(text):
            own = self._added.get(part)
            if own is None:
                self._append(ids, part)
            else:
                ids.append(own)
        return Encoding(ids)

    def encode_batch_fast(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[Encoding]:
        """`encode` of each text."""
        return [self.encode(text) for text in texts]

    @abstractmethod
    def _append(self, ids: list[int], text: str) -> None:
        """Add the ids of a text without added tokens."""
