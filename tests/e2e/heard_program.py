"""The program as a process of its own, for a screen reader: its models say what they are told to.

Run as `python -m tests.e2e.heard_program DATA`. Two models are found on the machine; each reply is the
next of `REPLIES`, and the last again after that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event

from desktop import app as program
from desktop.app import Desktop, EngineApi
from desktop.settings import Behaviour
from engine.core import ChatEvent, ChatRequest
from engine.hub.local.scan import FoundModel
from tests.desktop.fakes import EchoApi, EchoChat
from tests.desktop.hand import no_fetch

MODELS = ("Larch", "Rowan")
REPLIES = (
    "# Sowing peas\n\nSow them when the soil is at **5 °C**.\nCover the bed with fleece.\n\n"
    "| crop | depth |\n|---|---:|\n| peas | 4 cm |\n| beans | 6 cm |\n\n```python\nprint(4)\n```\n\n"
    "See [the calendar](https://example.org/calendar).",
    "Carrots want warmer soil.",
    "Seven degrees are enough for carrots.",
)


@dataclass
class Scripted(EchoChat):
    """Says the next of `REPLIES`."""

    def stream(self, request: ChatRequest, stop: Event) -> Iterator[ChatEvent]:
        self.reply = REPLIES[min(len(self.requests), len(REPLIES) - 1)]
        print(f"temperature {request.sampler.temperature}", flush=True)
        return super().stream(request, stop)


@dataclass
class Scene(EchoApi):
    """Two models in a folder."""

    folder: Path = Path()
    chat: EchoChat = field(default_factory=lambda: Scripted(delay_s=0.02))

    def find(self, folders: Sequence[tuple[str, str]], stop: Event) -> Iterator[FoundModel]:
        for name in MODELS:
            path = self.folder / f"{name}.gguf"
            path.touch()
            yield FoundModel(path, name, "LM Studio")


def main(data: Path) -> int:
    """Run until the window is closed."""
    scene = Scene(folder=data)
    api = EngineApi(scene.open_chat, scene.describe, no_fetch, scene.draft_problem, scene.find)
    start = Desktop.start

    def begin(desktop: Desktop, *given: object, **named: object) -> None:
        behaviour = desktop.session.settings(Behaviour)
        desktop.session.set_settings(replace(behaviour, model_titles=False))
        start(desktop, *given, **named)  # type: ignore[arg-type]

    class Scripting(Desktop):
        def __init__(self, app, folder, lock=None) -> None:  # type: ignore[no-untyped-def]
            super().__init__(app, folder, api, lock)

    program.Desktop = Scripting  # type: ignore[misc]
    Desktop.start = begin  # type: ignore[method-assign]
    return program.run(data=data)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
