"""Failures as LM Studio's SDKs read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.server.failure import ApiError, Failure

_SAMPLE = 10


class NoSuchModel(ApiError):
    """No loaded model is what `query` names; `loaded` are those there are. The SDKs have an error of their
    own for it.
    """

    def __init__(self, failure: Failure, query: Mapping[str, Any], loaded: Sequence[str]) -> None:
        super().__init__(failure)
        self.query, self.loaded = query, loaded


def serialized(failure: Failure, error: BaseException | None = None) -> dict[str, Any]:
    """A failure in the form of their `SerializedLMSExtendedError`; `error` is what was raised."""
    found: dict[str, Any] = {"title": failure.message, "rootTitle": failure.message}
    if isinstance(error, NoSuchModel):
        found["displayData"] = {
            "code": "generic.noModelMatchingQuery", "query": error.query,
            "loadedModelsSample": [*error.loaded[:_SAMPLE]], "totalLoadedModels": len(error.loaded),
        }  # fmt: skip
    return found
