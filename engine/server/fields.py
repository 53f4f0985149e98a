"""Reads the fields of a request's JSON: their types are checked, unknown ones ignored, null is the same as
missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.server.failure import ApiError, bad_request

LONGEST = 1 << 20
"""More tokens than any context holds."""


class Fields:
    """The fields of a JSON object, which stands at `path` of the request. `sent` has, for fields that are
    renamed here, the names that the client sent.
    """

    def __init__(self, values: Mapping[str, Any], path: str = "", sent: Mapping[str, str] = {}) -> None:
        self._values, self._path, self._sent = values, path, sent

    def place(self, name: str) -> str:
        """The field's place in the request, such as "messages[0].role"."""
        name = self._sent.get(name, name)
        return f"{self._path}.{name}" if self._path else name

    def get(self, name: str) -> Any:
        """The field as it is; None if it is missing."""
        return self._values.get(name)

    def renamed(self, names: Mapping[str, str]) -> Fields:
        """The fields, also under the second of each two names; errors name the first."""
        given = {new: old for old, new in names.items() if self.get(old) is not None}
        more = {new: self.get(old) for new, old in given.items()}
        sent = {new: self._sent.get(old, old) for new, old in given.items()}
        return Fields({**self._values, **more}, self._path, {**self._sent, **sent})

    def items(self) -> Iterable[tuple[str, Any]]:
        """All fields, with their names."""
        return self._values.items()

    def changed(self, values: Mapping[str, Any]) -> Fields:
        """The fields, of which some have other values."""
        return Fields({**self._values, **values}, self._path, self._sent)

    def wrong(self, name: str, expected: str) -> ApiError:
        """The error for a field that is not as `expected`."""
        value = self.get(name)
        if value is None:
            return bad_request(f"{self.place(name)} is missing; {expected} was expected.", self.place(name))
        shown = json.dumps(value, ensure_ascii=False)
        shown = shown if len(shown) <= 60 else shown[:59] + "…"
        return bad_request(f"{self.place(name)} is {shown}, but {expected} was expected.", self.place(name))

    def text(self, name: str, default: str = "") -> str:
        """A text."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(name, "a text")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def whole(self, name: str, low: int, high: int) -> int | None:
        """A whole number in a range."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(name, f"a whole number from {low} to {high}")
        return value

    def count(self, name: str, low: int) -> int | None:
        """A number of tokens, `low` or more. Clients write huge ones for no limit: none exceeds `LONGEST`."""
        value = self.whole(name, low, 2**63 - 1)
        return None if value is None else min(value, LONGEST)

    def number(self, name: str, low: float, high: float) -> float | None:
        """A number in a range."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self.wrong(name, f"a number from {low:.12g} to {high:.12g}")
        return float(value)

    def texts(self, name: str, most: int) -> tuple[str, ...]:
        """A text or a list of texts; empty ones are left out."""
        value = self.get(name)
        if value is None:
            return ()
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(item, str) for item in values):
            raise self.wrong(name, "a text or a list of texts")
        if len(values) > most:
            raise bad_request(
                f"{self.place(name)} has {len(values)} texts; at most {most} are accepted.", self.place(name)
            )
        return tuple(item for item in values if item)

    def ids(self, name: str) -> tuple[int, ...]:
        """A list of token ids."""
        value = self.get(name)
        if value is None:
            return ()
        if not is_ids(value):
            raise self.wrong(name, "a list of token ids")
        return tuple(value)

    def part(self, name: str) -> Fields | None:
        """An object."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return Fields(value, self.place(name))

    def parts(self, name: str) -> Sequence[Fields]:
        """A list of objects."""
        value = self.get(name)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.wrong(name, "a list of objects")
        return [Fields(item, f"{self.place(name)}[{index}]") for index, item in enumerate(value)]


_LARGEST_ID = 1 << 31


def is_ids(value: Any) -> bool:
    """Whether a JSON value is a list of whole numbers that may be token ids."""
    return isinstance(value, list) and all(
        isinstance(item, int) and not isinstance(item, bool) and 0 <= item < _LARGEST_ID for item in value
    )
