"""Progress: how far the prompts of a request are read, as llama.cpp's server reports it (`return_progress`).

Source: llama.cpp's `tools/server/README.md`, "POST /completion".
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from engine.server.replies import Reading, ReplyEvent


class Progress:
    """The reports of one stream; none unless they are `asked` for."""

    def __init__(self, asked: bool) -> None:
        self._asked = asked
        self._since: dict[int, float] = {}

    def of(self, number: int, event: ReplyEvent) -> Mapping[str, Any]:
        """What a chunk of a choice reports: tokens of the prompt, how many were in the `cache` and are
        `processed` (with those), and the milliseconds since the first report. Empty for other events.
        """
        if not (self._asked and isinstance(event, Reading)):
            return {}
        now = time.monotonic()
        spent = now - self._since.setdefault(number, now)
        counts = {"total": event.total, "cache": event.cached, "processed": event.done}
        return {"prompt_progress": {**counts, "time_ms": round(1e3 * spent)}}
