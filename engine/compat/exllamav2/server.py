"""`ExLlamaV2WebSocketServer` is refused by name."""

from __future__ import annotations

from typing import Any

from engine.errors import NotSupportedYet


class ExLlamaV2WebSocketServer:
    """Raises `NotSupportedYet`: the engine opens no port."""

    def __init__(self, *_arguments: Any, **_more: Any) -> None:
        raise NotSupportedYet(
            "`ExLlamaV2WebSocketServer` is not supported here: the engine opens no port; call a generator "
            "from a server of your own."
        )
