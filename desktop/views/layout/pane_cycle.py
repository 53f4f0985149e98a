"""F6 and Shift+F6 move the focus from pane to pane, each time to the control that had it there last."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QApplication, QWidget
from shiboken6 import isValid

__all__ = ["PaneCycle"]


class PaneCycle(QObject):
    """`panes` are (pane, the widget that gets its focus at first), in order; hidden ones are skipped."""

    def __init__(
        self, panes: Sequence[tuple[QWidget, Callable[[], QWidget]]], parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._panes = list(panes)
        self._last: dict[int, QWidget] = {}
        QApplication.instance().focusChanged.connect(self._note)  # type: ignore[union-attr]

    def add(self, pane: QWidget, first: Callable[[], QWidget], after: QWidget) -> None:
        """Add a pane that is made later, after another one."""
        place = [other for other, _ in self._panes].index(after)
        self._panes.insert(place + 1, (pane, first))
        self._last.clear()

    def _note(self, _old: QWidget | None, new: QWidget | None) -> None:
        at = self._at(new)
        if at >= 0 and new is not None:
            self._last[at] = new

    def _at(self, widget: QWidget | None) -> int:
        """The number of the innermost pane that a widget is in; -1 for none."""
        found = [
            number
            for number, (pane, _) in enumerate(self._panes)
            if widget is not None and (pane is widget or pane.isAncestorOf(widget))
        ]
        return found[-1] if found else -1

    def commands(self) -> dict[str, Callable[[], object]]:
        """The commands that go from pane to pane."""
        return {"next_pane": lambda: self.step(1), "previous_pane": lambda: self.step(-1)}

    def step(self, by: int) -> None:
        """Move the focus by this number of panes, round and round."""
        shown = [number for number, (pane, _) in enumerate(self._panes) if pane.isVisible()]
        if not shown:
            return
        at = self._at(QApplication.focusWidget())
        place = shown.index(at) + by if at in shown else (0 if by > 0 else -1)
        self._enter(shown[place % len(shown)])

    def _enter(self, number: int) -> None:
        pane, first = self._panes[number]
        last = self._last.get(number)
        target = (
            last
            if last is not None and isValid(last) and last.isVisibleTo(pane) and last.isEnabled()
            else first()
        )
        target.setFocus(Qt.FocusReason.ShortcutFocusReason)
