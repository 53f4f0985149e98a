"""Everything the engine raises on purpose.

    EngineError                  any known trouble; its text is one plain sentence for people
    ├── ModelNotFound            no such file or folder, or nothing in it that is a model
    ├── BadCheckpoint            a model file is truncated, corrupt or contradicts itself
    ├── UnsupportedModel         the architecture, weight type or tokenizer kind is not known
    ├── NotEnoughMemory          weights and cache do not fit into free memory
    ├── DeviceLost               a GPU stopped working; what was in its memory is gone
    ├── NotFinite                what the model computed is no number
    ├── BadSetting               a setting's value is outside its range, or of a wrong type
    ├── BadTemplate              the chat template cannot be compiled or refuses the messages
    ├── ContextTooLong           the prompt does not fit into the context
    ├── NothingAllowed           filters, bans and allowed tokens together leave no token to write
    ├── NotSupportedYet          an argument this version knows but does not implement
    ├── DownloadError            a download failed: no network, no room, wrong hash
    ├── BenchmarkError           a benchmark cannot be run as asked (a peer is not installed)
    └── Cancelled                loading was stopped by the user before it was done

Each message says what was found, what was expected and what to do. Anything else that escapes is a bug.
"""

from __future__ import annotations

import traceback

from engine.printable import one_line


class EngineError(Exception):
    """Base of all known trouble. `str(error)` is one sentence for the user's eyes: what it quotes from a file
    is made fit for them. `report` is more of it, for those who mend the program, where there is more.
    """

    report = ""

    def __str__(self) -> str:
        return one_line(super().__str__())


class ModelNotFound(EngineError):
    """No such file or folder, or nothing in it that is a model."""


class BadCheckpoint(EngineError):
    """A model file is truncated, corrupt or contradicts itself."""


class UnsupportedModel(EngineError):
    """The architecture, weight type or tokenizer kind is not known."""


class NotEnoughMemory(EngineError):
    """Weights and cache do not fit into free memory."""


class DeviceLost(EngineError):
    """A GPU stopped working; what was in its memory is gone, and the model must be loaded again."""

    def __init__(self, sentence: str, report: str = "") -> None:
        super().__init__(sentence)
        self.report = report


class NotFinite(EngineError):
    """What the model computed is no number: a damaged file, sums beyond the numbers' range, or a device
    that computes wrongly.
    """


class BadSetting(EngineError, ValueError):
    """A setting's value is outside its range, or of a wrong type."""


class BadTemplate(EngineError):
    """The chat template cannot be compiled or refuses the messages."""


class ContextTooLong(EngineError):
    """The prompt does not fit into the context."""


class NothingAllowed(EngineError):
    """Filters, bans and allowed tokens together leave no token that the model could write next."""


class NotSupportedYet(EngineError, NotImplementedError):
    """An argument this version knows but does not implement."""


class DownloadError(EngineError):
    """A download failed: no network, no room, wrong hash."""


class BenchmarkError(EngineError):
    """A benchmark cannot be run as asked."""


class Cancelled(EngineError):
    """Loading was stopped by the user before it was done.

    (A stopped reply is no error: it ends with reason "cancelled".)
    """


def forget_frames(error: BaseException | None) -> None:
    """Let go of the local variables of the functions that an error came through: they may hold gigabytes
    as long as it is looked at.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
