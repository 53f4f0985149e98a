"""A whole session by AT-SPI alone, as a screen reader's user has it: no mouse, and nothing is seen.

Run by the system's Python, which has `gi`, inside `dbus-run-session`, with the program's Python and a data
folder: `python3 tests/e2e/screen_reader.py PYTHON DATA`. Prints what happened as one line of JSON; a
step that cannot be done by AT-SPI raises AssertionError with what the program showed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "tools"))

from atspi import Reader  # noqa: E402 - a script of the system's Python has no packages

QUESTION = "When should I sow peas?"
EDITED = "When should I sow carrots?"


class Session:
    """The steps, in their order; `report` is what they found."""

    def __init__(self, reader: Reader, folder: Path) -> None:
        self.reader, self.folder = reader, folder
        self.report: dict[str, object] = {}
        self.trees: dict[str, str] = {}

    def heard(self, words: str, act: Callable[[], object]) -> str:
        """Do `act` and wait for an announcement with `words`."""
        before = len(self.reader.heard)
        act()
        return self.reader.until(
            lambda: next((said for said in self.reader.heard[before:] if words in said), ""),
            f"an announcement with “{words}”",
        )

    def choose_model(self) -> None:
        reader = self.reader
        reader.find("push button", "Load Larch")
        self.trees["main window"] = reader.tree()
        self.command("Edit", "Preferences")
        window = reader.find("dialog", "Preferences")
        self.trees["preferences"] = reader.tree(window)
        reader.until(lambda: "focused" in reader.tree(window), "the focus in the preferences")
        reader.keys("Escape")
        reader.gone("dialog", "Preferences")
        reader.press(reader.find("push button", "Choose a model"), "press")
        entry = reader.find("menu item", "Larch")
        self.report["model"] = self.heard("is ready", lambda: reader.press(entry, "press"))
        reader.find("push button", "Model: Larch")

    def write_and_hear(self) -> None:
        reader = self.reader
        reader.write(reader.find("text", "Message"), QUESTION)
        send = reader.find("push button", "Send message")
        self.report["end"] = self.heard("The reply has ended", lambda: reader.press(send, "press"))

    def read(self) -> None:
        """The reply by line and by word, then its landmarks."""
        reader = self.reader
        self.command("View", "Read messages with the caret")
        self.trees["chat"] = reader.tree(reader.find("filler", "Chat"))
        page = reader.find("text", "Message from Assistant, 2 of 2")
        self.trees["reply"] = reader.tree(reader.find("panel", "Reading view"))
        self.report["lines"], self.report["words"] = reader.lines(page), reader.words(page)
        reader.focus_on("text", "Message from")
        before = len(reader.carets)
        reader.keys("Down", "Down")
        reader.until(lambda: len(reader.carets) >= before + 2, "the caret on the third line")
        self.report["heading"] = self.heard("Heading", lambda: reader.keys("shift+h"))
        self.report["code"] = self.heard("Code block", lambda: reader.keys("c"))
        self.report["link"] = self.heard("Link", lambda: reader.keys("k"))
        self.report["table"] = self.heard("Table", lambda: reader.keys("shift+t"))

    def read_table(self) -> None:
        """Every cell with its headings; then back to the chat."""
        reader = self.reader
        reader.keys("Return")
        table = reader.find("table", "Table with 2 rows")
        self.report["cells"] = reader.cells(table)
        self.trees["table"] = reader.tree(reader.find("dialog", "Table"))
        reader.focus_on("table", "Table with 2 rows")
        before = reader.focus
        reader.keys("Down", "Right")
        reader.until(
            lambda: reader.focus is not before and reader.focus.get_name() == "6 cm", "the last cell"
        )
        reader.keys("Escape")
        reader.gone("table", "Table with 2 rows")
        reader.focus_on("text", "Message from")
        reader.keys("Escape")
        reader.gone("text", "Message from Assistant")

    def edit(self) -> None:
        """Change the question: the model answers the new one."""
        reader = self.reader
        reader.press(reader.find("push button", "Edit message", self.message_actions()), "press")
        editor = reader.find("text", "Edit the message")
        assert reader.text(editor) == QUESTION, reader.text(editor)
        reader.write(editor, EDITED)
        self.heard(
            "The reply has ended", lambda: reader.press(reader.find("push button", "Save & send"), "press")
        )
        self.report["edited"] = self.last_reply()

    def message_actions(self) -> object:
        """The buttons below the question."""
        return self.reader.find("filler", "Message actions")

    def regenerate(self) -> None:
        reader = self.reader
        button = reader.find("push button", "Regenerate the reply")
        self.heard("The reply has ended", lambda: reader.press(button, "press"))
        self.report["regenerated"] = self.last_reply()

    def change_temperature(self) -> None:
        """By its value, as a slider's or a box's is changed; the next reply uses it. The pane is closed at a
        first start.
        """
        reader = self.reader
        reader.press(reader.find("push button", "Show or hide settings"), "press")
        box = reader.find("spin button", "Temperature")
        reader.set_value(box, 0.25)
        reader.until(lambda: reader.text(box) == "0.25", "a temperature of 0.25")
        button = reader.find("push button", "Regenerate the reply")
        self.heard("The reply has ended", lambda: reader.press(button, "press"))

    def search(self) -> None:
        reader = self.reader
        box = reader.find("text", "Search chats")
        reader.write(box, "carrots")
        results = reader.find("list", "Search results")
        self.report["hits"] = reader.until(lambda: reader.names(results), "a hit")
        reader.write(box, "")

    def export(self) -> None:
        """To a Markdown file, through both dialogs."""
        reader, file = self.reader, self.folder / "chat.md"
        self.command("File", "Export")
        dialog = reader.find("dialog", "Export")
        self.trees["export"] = reader.tree(dialog)
        reader.press(reader.find("radio button", "Markdown", dialog), "toggle", "press")
        reader.press(reader.find("push button", "Export", dialog), "press")
        files = reader.find("dialog", "Export to")
        reader.write(reader.find("text", "File name", files), str(file))
        reader.press(reader.find("push button", "Save", files), "press")
        reader.until(file.exists, "the exported file")
        self.report["file"] = reader.until(lambda: file.read_text("utf-8"), "its text")

    def last_reply(self) -> str:
        """The reply as the reading view has it."""
        reader = self.reader
        self.command("View", "Read messages with the caret")
        text = reader.text(reader.focus_on("text", "Message from Assistant"))
        reader.keys("Escape")
        reader.gone("text", "Message from Assistant")
        return text

    def command(self, menu: str, name: str) -> None:
        """Choose a command in the menu bar."""
        reader = self.reader
        reader.press(reader.find("menu item", menu), "press")
        reader.press(reader.find("menu item", name), "press")


STEPS = (
    Session.choose_model, Session.write_and_hear, Session.read, Session.read_table, Session.edit,
    Session.regenerate, Session.change_temperature, Session.search, Session.export,
)  # fmt: skip


def main(python: str, data: Path) -> None:
    """Run the steps; the window manager gives the keyboard to the program's windows."""
    environ = {**os.environ, "QT_LINUX_ACCESSIBILITY_ALWAYS_ON": "1", "QT_QPA_PLATFORM": "xcb"}
    manager = subprocess.Popen(["matchbox-window-manager"])
    program = subprocess.Popen([python, "-m", "tests.e2e.heard_program", str(data)], cwd=ROOT, env=environ,
                               stdout=subprocess.PIPE, text=True)  # fmt: skip
    try:
        session = Session(Reader("Inglenook"), data)
        for step in STEPS:
            print(step.__name__, file=sys.stderr, flush=True)
            step(session)
    finally:
        for process in (program, manager):
            process.terminate()
        printed, _ = program.communicate()
        manager.wait()
    print(
        json.dumps(
            {
                **session.report,
                "trees": session.trees,
                "printed": printed.split("\n"),
                "heard": session.reader.heard,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
