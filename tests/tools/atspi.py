"""A screen reader's hands and ears: finds, reads and presses what a program shows through AT-SPI alone.

Runs in the system's own Python, which has `gi` (Debian: `python3-gi gir1.2-atspi-2.0`); it imports nothing of
the project.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import gi

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi, GLib  # noqa: E402 - the version has to be named first

__all__ = ["Reader", "tree"]

_KEYS = {
    "Return": 0xFF0D, "Escape": 0xFF1B, "Right": 0xFF53, "Down": 0xFF54, "Tab": 0xFF09, "F7": 0xFFC4,
}  # fmt: skip
Node = Any  # Atspi.Accessible has no types
Found = TypeVar("Found")
WAIT_S = 60.0
_LOOK_S = 0.05
_DEEPEST = 40
_SAID = ("focused", "checked", "selected", "expanded", "modal", "busy")
_FACES = ("action", "text", "editable_text", "selection", "table", "value", "hypertext")
_EVENTS = ("object:announcement", "object:text-caret-moved", "object:state-changed:focused",
           "object:state-changed:showing")  # fmt: skip


def _states(node: Node) -> set[str]:
    return {state.value_nick for state in node.get_state_set().get_states()}


def _children(node: Node) -> Iterator[Node]:
    for place in range(node.get_child_count()):
        child = node.get_child_at_index(place)
        if child is not None:
            yield child


def tree(node: Node, depth: int = 0) -> Iterator[str]:
    """What is shown under `node`, a line each: role, name, states, interfaces, and the beginning of its text.
    Fillers without a name are left out.
    """
    try:
        states, name, role = _states(node), node.get_name() or "", node.get_role_name()
        if depth > _DEEPEST or (depth > 0 and "showing" not in states):
            return
        faces = [face for face in _FACES[1:] if getattr(node, f"get_{face}_iface")() is not None]
        told = bool(name) or role not in ("filler", "panel", "unknown")
        if told:
            text = Atspi.Text.get_text(node, 0, 60).replace("\n", "⏎") if "text" in faces else ""
            said = " ".join(state for state in _SAID if state in states)
            interfaces, shown = f"[{', '.join(faces)}]" if faces else "", f"text {text!r}" if text else ""
            yield "  " * depth + " ".join(filter(None, (role, repr(name[:90]), said, interfaces, shown)))
        children = list(_children(node))
    except GLib.Error:  # it went away while it was read
        return
    for child in children:
        yield from tree(child, depth + told)


class Reader:
    """Reads the program named `program` and acts on it; `heard` are the announcements so far."""

    def __init__(self, program: str) -> None:
        Atspi.init()
        self.heard: list[str] = []
        self.carets: list[int] = []
        self.focus: Node = None
        self._popups: list[Node] = []
        self._listener = Atspi.EventListener.new(self._on_event)
        for event in _EVENTS:
            self._listener.register(event)
        self.app: Node = None
        self.app = self.until(lambda: self._program(program), f"the program {program}")

    def _program(self, name: str) -> Node:
        for app in _children(Atspi.get_desktop(0)):
            app.set_cache_mask(Atspi.Cache.NONE)
            if app.get_name() == name and app.get_child_count():
                return app
        return None

    def _on_event(self, event: Any) -> None:
        if event.type.startswith("object:announcement"):
            self.heard.append(str(event.any_data))
        elif event.type.startswith("object:text-caret-moved"):
            self.carets.append(event.detail1)
        elif event.type.startswith("object:state-changed:focused") and event.detail1:
            self.focus = event.source
        elif event.type.startswith("object:state-changed:showing"):
            # a menu is nobody's child: it is known by what is told when it opens
            self._popups = [each for each in self._popups if each != event.source]
            if event.detail1 and event.source.get_role_name() == "popup menu":
                self._popups.append(event.source)

    def listen(self, seconds: float = _LOOK_S) -> None:
        """Take events for this long."""
        end = time.monotonic() + seconds
        while True:
            while GLib.MainContext.default().iteration(False):
                pass
            if time.monotonic() > end:
                return
            time.sleep(0.01)

    def until(self, look: Callable[[], Found], what: str, seconds: float = WAIT_S) -> Found:
        """What `look` returns once it is true. Raises AssertionError, which names `what`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if found := look():
                    return found
            except GLib.Error:  # what is read may go away meanwhile
                pass
            self.listen()
        raise AssertionError(f"not within {seconds:.0f} s: {what}; heard {self.heard[-3:]}\n{self.tree()}")

    def tree(self, place: Node = None) -> str:
        """What the program shows, or one place of it."""
        if place is not None:
            return "\n".join(tree(place))
        return "\n".join(line for place in (self.app, *self._popups) if place for line in tree(place))

    def _all(self, role: str, name: str, within: Node, depth: int = 0) -> Iterator[Node]:
        try:
            if depth > _DEEPEST or (depth > 1 and "showing" not in _states(within)):
                return
            if within.get_role_name() == role and name in (within.get_name() or ""):
                yield within
            children = list(_children(within))
        except GLib.Error:
            return
        for child in children:
            yield from self._all(role, name, child, depth + 1)

    def look(self, role: str, name: str, within: Node = None) -> Node:
        """The first such thing that is shown now, or None."""
        self._popups = [each for each in self._popups if "showing" in _states(each)]
        places = [within] if within else [*reversed(self._popups), self.app]
        return next((found for place in places for found in self._all(role, name, place)), None)

    def find(self, role: str, name: str, within: Node = None) -> Node:
        """The first thing of this role whose name contains `name`, once it is shown."""
        return self.until(lambda: self.look(role, name, within), f"{role} “{name}”")

    def focus_on(self, role: str, name: str) -> Node:
        """Wait until such a thing has the keyboard: keys sent earlier would go elsewhere."""

        def focused() -> Node:
            found = self.look(role, name)
            return found if found and "focused" in _states(found) else None

        return self.until(focused, f"the focus on {role} “{name}”")

    def gone(self, role: str, name: str) -> None:
        """Wait until there is none."""
        self.until(lambda: self.look(role, name) is None, f"the end of {role} “{name}”")

    def press(self, node: Node, *names: str) -> None:
        """Do the first of a thing's actions that has one of these names, or its first."""
        wanted = [name.lower() for name in names]
        count = Atspi.Action.get_n_actions(node)
        offered = [Atspi.Action.get_action_name(node, place).lower() for place in range(count)]
        assert offered, f"{node.get_role_name()} “{node.get_name()}” has no action"
        place = next((offered.index(name) for name in wanted if name in offered), 0)
        assert Atspi.Action.do_action(node, place), f"{node.get_name()}: {offered[place]} was refused"
        self.listen()

    def write(self, node: Node, text: str) -> None:
        """Replace the text of a box."""
        assert Atspi.EditableText.set_text_contents(node, text), f"{node.get_name()} takes no text"
        self.listen()

    def text(self, node: Node) -> str:
        """All of a thing's text."""
        return str(Atspi.Text.get_text(node, 0, Atspi.Text.get_character_count(node)))

    def lines(self, node: Node) -> list[str]:
        """Its text by the lines that are shown, as a screen reader asks for one after the other."""
        return self._by(node, Atspi.TextGranularity.LINE)

    def words(self, node: Node) -> list[str]:
        """Its text by words."""
        return self._by(node, Atspi.TextGranularity.WORD)

    def _by(self, node: Node, size: Any) -> list[str]:
        count, here, found = Atspi.Text.get_character_count(node), 0, []
        while here < count:
            part = Atspi.Text.get_string_at_offset(node, here, size)
            if part.end_offset > here:
                found.append(str(part.content))
            here = max(part.end_offset, here + 1)  # Qt counts the end of a paragraph to none of its lines
        return found

    def cells(self, table: Node) -> list[list[str]]:
        """The cells of a table, the column headings first."""
        rows, columns = Atspi.Table.get_n_rows(table), Atspi.Table.get_n_columns(table)
        head = [str(Atspi.Table.get_column_header(table, column).get_name()) for column in range(columns)]
        return [head, *([str(Atspi.Table.get_accessible_at(table, row, column).get_name())
                         for column in range(columns)] for row in range(rows))]  # fmt: skip

    def set_value(self, node: Node, value: float) -> None:
        """Set the value of a slider or a number box."""
        assert Atspi.Value.set_current_value(node, value), f"{node.get_name()} takes no value"
        self.listen()

    def names(self, node: Node) -> list[str]:
        """The names of all that is shown under a thing."""
        found = []
        for child in _children(node):
            if "showing" in _states(child):
                found += [name for name in [child.get_name()] if name] + self.names(child)
        return found

    def keys(self, *names: str) -> None:
        """Press keys by their X11 names, such as "F7" or "ctrl+r"."""
        for name in names:
            *held, key = name.split("+")
            codes = {"ctrl": 37, "shift": 50, "alt": 64}  # of the usual X11 keyboard
            for each in held:
                Atspi.generate_keyboard_event(codes[each], None, Atspi.KeySynthType.PRESS)
            symbol = Atspi.KeySynthType.SYM
            Atspi.generate_keyboard_event(_symbol(key), None, symbol)
            for each in reversed(held):
                Atspi.generate_keyboard_event(codes[each], None, Atspi.KeySynthType.RELEASE)
            self.listen(0.1)


def _symbol(key: str) -> int:
    """The X11 key symbol."""
    return _KEYS.get(key) or ord(key)
