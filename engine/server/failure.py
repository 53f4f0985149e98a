"""What a client is told when a request fails: in the form of the API that it asked."""

from __future__ import annotations

import logging
import re
from typing import Any

from engine.errors import (
    BadPicture,
    BadSetting,
    BadTemplate,
    Cancelled,
    ContextTooLong,
    DeviceLost,
    EngineError,
    NotEnoughMemory,
    NothingAllowed,
    NotSupportedYet,
    UnsupportedModel,
)
from engine.lazy_dataclass import dataclass

log = logging.getLogger(__name__)

BAD_REQUEST, SERVER_ERROR = "invalid_request_error", "server_error"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request failed: an HTTP status and what OpenAI's error object holds. `retry_after` is in seconds,
    0 for none.
    """

    status: int
    message: str
    type: str = BAD_REQUEST
    param: str | None = None
    code: str | None = None
    retry_after: int = 0

    def body(self) -> dict[str, Any]:
        """The JSON of the answer."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def body_for(self, path: str) -> dict[str, Any]:
        """The JSON of the answer in the form of the endpoint at `path`."""
        if is_googles(path):
            return {"error": {"code": self.status, "message": self.message, "status": self._google_status}}
        if path.startswith(COHERE_PATH) or path == COHERE_FIRST:
            return {"message": self.message}
        if path in TGI_PATHS:
            return {"error": self.message, "error_type": "validation" if self.status < 500 else "generation"}
        if path.startswith(OLLAMA_PATH) and not path.startswith(STUDIO_PATHS):
            return {"error": self.message}
        if path != MESSAGES_PATH and not path.startswith(MESSAGES_PATH + "/"):
            return self.body()
        kind = _ANTHROPIC_KINDS.get(self.status, BAD_REQUEST if self.status < 500 else "api_error")
        details = {"details": {"error_code": self.code}} if (self.code or "").startswith(_THREAD) else {}
        return {
            "type": "error", "error": {"type": kind, "message": self.message, **details}, "request_id": None,
        }  # fmt: skip

    @property
    def _google_status(self) -> str:
        return _GOOGLE_KINDS.get(self.status, "INVALID_ARGUMENT" if self.status < 500 else "INTERNAL")


GOOGLE_PATH = "/v1beta/"
"""What begins with it answers in Google's form, and so do these methods elsewhere."""
GOOGLE_METHODS = frozenset({
    "generateContent", "streamGenerateContent", "countTokens", "embedContent", "batchEmbedContents",
})  # fmt: skip
_GOOGLE_KINDS = {
    401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 408: "DEADLINE_EXCEEDED",
    429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE",
}  # fmt: skip
MESSAGES_PATH = "/v1/messages"
"""Anthropic's endpoint; what begins with it answers in Anthropic's form."""
COHERE_PATH = "/v2/"
"""What begins with it answers in Cohere's form, as does the chat of the first version of its API."""
COHERE_FIRST = "/v1/chat"
TGI_PATHS = frozenset({"/generate", "/generate_stream", "/embed", "/similarity", "/info"})
"""Those of Hugging Face's servers, which answer in their form."""
OLLAMA_PATH = "/api/"
"""What begins with it answers in Ollama's form."""
STUDIO_PATHS = ("/api/v0/", "/api/v1/chat", "/api/v1/models")
"""LM Studio's among these, which answer in OpenAI's form."""
_THREAD = "thread_"
"""What the codes begin with that Anthropic's clients know, of conversations that the server holds."""
_ANTHROPIC_KINDS = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error",
}  # fmt: skip


def is_googles(path: str) -> bool:
    """Whether only Google's API has this path."""
    return (
        path.startswith((GOOGLE_PATH, "/upload" + GOOGLE_PATH)) or path.rpartition(":")[2] in GOOGLE_METHODS
    )


class ApiError(Exception):
    """A request that cannot be answered."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def bad_request(message: str, param: str | None = None) -> ApiError:
    """An error of status 400."""
    return ApiError(Failure(400, message, param=param))


def busy(message: str) -> ApiError:
    """An error of status 503 that invites another try."""
    return ApiError(Failure(503, message, "overloaded_error", code="server_busy", retry_after=2))


ENDED = Failure(503, "The reply was stopped on the server.", SERVER_ERROR, code="cancelled")
CLOSING = Failure(503, "The server is shutting down.", SERVER_ERROR, code="shutting_down", retry_after=5)
LOADING = Failure(
    503, "A model is being loaded; try again in a moment.", SERVER_ERROR, code="model_loading", retry_after=5
)
CHANGED = Failure(
    503, "The model was changed before the request was answered; send it again.", SERVER_ERROR,
    code="model_changed", retry_after=1,
)  # fmt: skip
TOO_SLOW = Failure(
    503,
    "The reply was stopped, because the client read it too slowly and too much of it was waiting.",
    SERVER_ERROR,
    code="client_too_slow",
)


_SEPARATOR = re.compile(r"(?<=\d),(?=\d{3})")
"""Of thousands, in counts of tokens: clients look for digits."""
_OF_THE_REQUEST = (BadPicture, BadSetting, BadTemplate, NothingAllowed, NotSupportedYet, UnsupportedModel)


def failure_of(error: BaseException) -> Failure:
    """What a client is told of an error of the engine, in English. What was not expected is logged; the
    client learns its kind only.
    """
    if isinstance(error, ApiError):
        return error.failure
    if isinstance(error, ContextTooLong):
        return Failure(400, _SEPARATOR.sub("", error.english), code="context_length_exceeded")
    if isinstance(error, _OF_THE_REQUEST):
        return Failure(400, error.english)
    if isinstance(error, Cancelled):
        return ENDED
    if isinstance(error, NotEnoughMemory | DeviceLost):
        return Failure(503, error.english, SERVER_ERROR)
    if isinstance(error, EngineError):
        return Failure(500, error.english, SERVER_ERROR)
    log.error("a request failed", exc_info=error)
    kind = type(error).__name__
    return Failure(
        500, f"Something went wrong in the server ({kind}). See its log for details.", SERVER_ERROR
    )
