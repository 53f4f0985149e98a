"""The window over a fake model and a filled store that `tests.tools.pictures` takes pictures of."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from PySide6.QtCore import QPoint, QTimer
from PySide6.QtGui import QContextMenuEvent, QPixmap
from PySide6.QtWidgets import QApplication, QDialog, QMenu, QWidget

from desktop.app import Desktop, EngineApi
from desktop.settings import Appearance
from desktop.store.conversations.folders import FolderStore
from desktop.views.layout.panes import LEFT, RIGHT
from engine.core import Downloaded, Downloading
from tests.desktop.services.models.test_hub import FakeHub
from tests.desktop.views.models.test_library import Shelf

__all__ = ["TALK", "Stage"]

TALK = (
    (
        "When should I sow peas in a cold spring?",
        "Sow them as soon as the soil can be worked and is above **5 °C** a hand deep.\n\n| crop | soil | "
        "depth |\n|---|---:|---:|\n| peas | 5 °C | 4 cm |\n| broad beans | 4 °C | 6 cm |\n| carrots | 7 °C "
        "| 1 cm |\n\n- [x] cover the bed with fleece\n- [ ] soak the seeds for a night\n\n1. [x] dig\n2. [ "
        "] rake\n\nPeas that wait in wet, cold soil rot before they come up.[^1]\n\n[^1]: Below 4 °C "
        "nothing moves for weeks.",
    ),
    (
        "How much rain does a basin under my roof catch?",
        "<think>Roof area times rain, less what is lost on the way. I should give the formula and a small "
        "script.</think>With a roof of area $A$, rain $r$ and a loss of one tenth, the basin gets\n\n$$V = "
        "0.9\\,A\\,r$$\n\n```python\ndef caught(area_m2: float, rain_mm: float, loss: float = 0.1) -> "
        "float:\n    \"\"\"Litres in the basin.\"\"\"\n    return area_m2 * rain_mm * (1 - loss)  # 1 mm "
        "on 1 m² is 1 litre\n\n\nprint(caught(42, 18))  # 680.4\n```\n\nSo 18 mm of rain on 42 m² fill a "
        "basin of 680 litres. See [how gutters are measured](https://example.org/gutters), and keep `loss` "
        "higher for a green roof.",
    ),
)  # fmt: skip
"""What was said, and how the fake model answers it."""
_TITLES = (
    "A kitchen garden", "Letters to the landlord", "Sourdough that does not rise",
    "Train from Lisbon to Porto", "What is a monad?", "Names for a small boat",
    "Repairing a bicycle lamp that flickers when it rains", "A poem about the north wind",
    "Tax on a rented room", "Why is the sky green before hail?", "Refactor the parser",
    "Vocabulary: Portuguese kitchen words", "Plan for the week",
)  # fmt: skip


def _no_fetch(folder: Path, stop: threading.Event) -> Iterator[Downloading | Downloaded]:
    raise AssertionError("nothing asked for a download")
    yield


class Stage:
    """One window over `folder`. `size` is the window's in logical pixels; no dialog may be larger."""

    def __init__(
        self, app: QApplication, folder: Path, size: tuple[int, int], theme: str, text_scale: int
    ) -> None:
        self.app, self.folder, self.size = app, folder, size
        self.echo, self.hub = Shelf(folder, 0), FakeHub()
        self.echo.names = ["Qwen3-8B-Instruct-Q4_K_M", "gemma-3-4b-it-Q4_K_M", "Llama-3.2-1B-Instruct-Q8_0"]
        shelf = self.echo
        api = EngineApi(
            shelf.open_chat,
            shelf.describe,
            _no_fetch,
            shelf.draft_problem,
            shelf.find,
            shelf.measure,
            self.hub,
        )
        self.desktop = Desktop(app, folder, api)
        self.window, self.session = self.desktop.window, self.desktop.session
        self.session.set_settings(Appearance(theme=theme, text_scale=text_scale, motion="none"))
        self.folders: list[int] = []
        self.talk = 0
        self.taken: QPixmap | None = None
        self.window.resize(*size)
        self.desktop.start()
        self.window.resize(*size)
        self.window.activateWindow()
        self.until(lambda: self.desktop.painted)
        self.until_found()
        self.spin(0.5)

    def until_found(self) -> None:
        """Wait for the search for models, which begins after the first paint."""
        self.until(lambda: not self.desktop.services.local_models.searching)
        self.spin()

    def show_theme(self, theme: str) -> None:
        """Switch to the light or dark theme."""
        self.session.set_settings(dataclasses.replace(self.session.settings(Appearance), theme=theme))
        self.spin(0.4)

    def spin(self, seconds: float = 0.12) -> None:
        """Process events for this long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.app.processEvents()
            time.sleep(0.005)

    def until(self, true: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait for a condition. Raises TimeoutError."""
        end = time.monotonic() + seconds
        while not true():
            if time.monotonic() > end:
                raise TimeoutError
            self.spin(0.02)

    def load(self) -> None:
        """Open a fake model."""
        path = self.folder / f"{self.echo.names[0]}.gguf"
        path.touch()
        self.window.model_controller.open(path)
        self.until(lambda: self.session.state == "idle")
        self.spin(0.3)

    def fill(self) -> None:
        """Add folders, chats, something in the trash, and the conversation TALK with its tokens."""
        store, places = self.session.stores.kept, FolderStore(self.session.stores.database)
        made = []
        for title in _TITLES:
            chat = store.create(title)
            asked = store.add_message(
                chat.id, None, "user", f"Tell me of this: {title.lower()}. Are peas of any use for it?"
            )
            store.add_message(
                chat.id,
                asked.id,
                "assistant",
                "Peas are of use for nearly everything, and above all for soup.",
            )
            made.append(chat.id)
        work = places.create("Work")
        garden = places.create("Garden and kitchen")
        inner = places.create("Letters", work.id)
        self.folders = [garden.id, work.id, inner.id]
        store.move([made[0], made[2]], garden.id)
        store.move([made[1]], inner.id)
        store.pin(made[3])
        store.delete(made[8])
        store.delete(made[9])
        self.window.services.chat_list.load()
        self.session.restore()
        self.session.new_conversation()
        self.echo.chat.delay_s = 0.016  # a speed that a reader may believe
        for question, answer in TALK:
            self.echo.chat.reply = answer
            self.session.submit(question, "")
            self.spin(0.1)
            self.until(lambda: self.session.state == "idle")
        self.echo.chat.delay_s = 0.0
        self.talk = self.session.conversation
        self.spin(0.4)

    def open_talk(self) -> None:
        """Show the end of the conversation TALK."""
        self.window.panes.leave_side()
        self.session.open_conversation(self.talk)
        self.spin(0.4)

    def begin_reply(self) -> None:
        """Start a reply that stops halfway."""
        self.echo.chat.reply, self.echo.chat.delay_s = TALK[0][1] * 3, 0.05
        self.session.submit("Write the plan for the whole bed.", "")
        self.spin(0.8)

    def end_reply(self) -> None:
        """Stop the reply."""
        self.session.stop()
        self.until(lambda: self.session.state == "idle")
        self.echo.chat.delay_s = 0.0

    def gate(self) -> None:
        """Let a download of the fake hub get halfway."""
        self.hub.gate = threading.Semaphore(5)

    def show_sidebar(self) -> None:
        """Show the chats, alone if there is no space beside them."""
        if self.window.sidebar.isHidden():
            self.window.panes.toggle(LEFT)
        self.spin()

    def show_inspector(self) -> None:
        """Show the settings."""
        if self.window.inspector.isHidden():
            self.window.panes.toggle(RIGHT)
        self.spin()

    def fit(self, shown: QWidget) -> QWidget:
        """Shrink all windows to the variant's screen."""
        self.spin(0.15)
        if shown.width() > self.size[0] or shown.height() > self.size[1]:
            shown.resize(min(shown.width(), self.size[0]), min(shown.height(), self.size[1]))
            self.spin(0.1)
        return shown

    def take_menu(self, show: Callable[[], object]) -> QWidget | None:
        """Take a picture of the menu that `show` opens, and close it."""

        def take() -> None:
            menu = self.app.activePopupWidget()
            assert isinstance(menu, QMenu), "no menu came up"
            self.taken = menu.grab()
            menu.close()

        self.taken = None
        QTimer.singleShot(250, take)
        show()
        self.until(lambda: self.taken is not None)
        return None

    def focus(self) -> QWidget:
        """The widget that receives keys."""
        return QApplication.focusWidget() or self.window

    def context(self, widget: QWidget, place: QPoint) -> None:
        """Open the context menu at a position of a view."""
        target = widget.viewport() if hasattr(widget, "viewport") else widget
        event = QContextMenuEvent(QContextMenuEvent.Reason.Mouse, place, target.mapToGlobal(place))
        self.app.sendEvent(target, event)

    def shut(self) -> None:
        """Close every window except the main window."""
        for shown in self.app.topLevelWidgets():
            if isinstance(shown, QDialog) and shown.isVisible():
                shown.close()
        self.window.panes.leave_side()
        self.window.activateWindow()
        self.spin()
