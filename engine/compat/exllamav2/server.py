"""`ExLlamaV2WebSocketServer` is refused by name."""

from __future__ import annotations

from typing import Any

from engine.errors import NotSupportedYet


class ExLlamaV2WebSocketServer:
    """Raises `NotSupportedYet`: other programs are served over HTTP, by `engine.server`."""

    def __init__(self, *_arguments: Any, **_more: Any) -> None:
        raise NotSupportedYet(
            "`ExLlamaV2WebSocketServer` is not supported here: run `inglenook-engine serve MODEL`, which "
            "serves other programs over HTTP."
        )
