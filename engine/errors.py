"""The exceptions of the engine.

    EngineError                  any expected error; its text is one sentence for the user
    ├── ModelNotFound            no such file or folder, or nothing in it that is a model
    ├── BadCheckpoint            a model file is truncated, corrupt or contradicts itself
    ├── UnsupportedModel         the architecture, weight type or tokenizer is not supported
    ├── NotEnoughMemory          weights and cache do not fit into free memory
    ├── DeviceLost               a GPU stopped working, and the content of its memory is lost
    ├── NotFinite                the model computed infinities or NaN
    ├── BadSetting               the value of a setting is out of range or of a wrong type
    ├── BadTemplate              the chat template cannot be compiled or refuses the messages
    ├── BadPicture               a picture file cannot be read
    ├── ContextTooLong           the prompt does not fit into the context
    ├── NothingAllowed           filters, bans and allowed tokens leave no token to generate
    ├── NotSupportedYet          an argument that is known but not implemented
    ├── DownloadError            a download failed: no network, disk full, wrong hash
    ├── RemoteError              a server that runs a model was not reached, refused, or broke off
    ├── BenchmarkError           a benchmark cannot be run, for example because a rival is not installed
    └── Cancelled                the user stopped loading

Each message says what was found, what was expected and what to do. Any other exception is a bug.
"""

from __future__ import annotations

import traceback

from engine.printable import one_line
from engine.words import english


class EngineError(Exception):
    """The base of all expected errors.

    `str(error)` is one sentence for the user, in which quotes from files are safe to show. `report` holds
    details for a bug report, if there are any.
    """

    report = ""

    def __str__(self) -> str:
        return one_line(super().__str__())

    @property
    def english(self) -> str:
        """The sentence in the source language, for programs and logs."""
        return one_line(str(english(self.args[0]))) if self.args else ""


class ModelNotFound(EngineError):
    """No such file or folder, or nothing in it that is a model."""


class BadCheckpoint(EngineError):
    """A model file is truncated, corrupt or contradicts itself."""


class UnsupportedModel(EngineError):
    """The architecture, weight type or tokenizer is not supported."""


class NotEnoughMemory(EngineError):
    """Weights and cache do not fit into free memory."""


class DeviceLost(EngineError):
    """A GPU stopped working. The content of its memory is lost, and the model must be loaded again."""

    def __init__(self, sentence: str, report: str = "") -> None:
        super().__init__(sentence)
        self.report = report


class NotFinite(EngineError):
    """The model computed infinities or NaN: the file is damaged, or numbers overflowed, or the device is
    faulty.
    """


class BadSetting(EngineError, ValueError):
    """The value of a setting is out of range or of a wrong type."""


class BadTemplate(EngineError):
    """The chat template cannot be compiled or refuses the messages."""


class BadPicture(EngineError):
    """A picture file cannot be read."""


class ContextTooLong(EngineError):
    """The prompt does not fit into the context."""


class NothingAllowed(EngineError):
    """Filters, bans and allowed tokens leave no token that the model could generate next."""


class NotSupportedYet(EngineError, NotImplementedError):
    """An argument that is known but not implemented."""


class DownloadError(EngineError):
    """A download failed: no network, disk full, wrong hash."""


class RemoteError(EngineError):
    """A server that runs a model could not be reached, refused the request, or broke off."""


class BenchmarkError(EngineError):
    """A benchmark cannot be run."""


class Cancelled(EngineError):
    """The user stopped loading.

    A stopped reply is not an error: it ends with reason "cancelled".
    """


def forget_frames(error: BaseException | None) -> None:
    """Clear the local variables in an error's traceback, which may keep gigabytes alive."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
