"""What cannot be saved at the moment: replies, drafts, their files, a notebook's text."""

from __future__ import annotations

from collections.abc import Callable

from engine.words import _

__all__ = ["SavingTrouble"]


class SavingTrouble:
    """Each part that saves reports its failures and their ends here, under a name of its own. `notice` says
    once that everything is saved, when the last failure has ended.
    """

    def __init__(self, notice: Callable[[str, str], object]) -> None:
        self._notice = notice
        self._failing: set[str] = set()
        self._works = False  # something was saved since the last failure

    def began(self, part: str) -> None:
        """A part cannot save; it has said so."""
        self._failing.add(part)
        self._works = False

    def ended(self, part: str) -> None:
        """A part has saved everything."""
        self._works = self._works or part in self._failing
        self.forget(part)

    def proved(self) -> None:
        """Something was saved that had not failed: a message that was sent."""
        self._works = self._works or bool(self._failing)

    def forget(self, part: str) -> None:
        """The user has removed what a part could not save, which says nothing about saving."""
        self._failing.discard(part)
        if self._works and not self._failing:
            self._works = False
            self._notice(_("Saving works again, and everything is saved."), "info")

    def clear(self) -> None:
        """Nothing waits any more: another file has replaced the one that could not be written."""
        self._failing.clear()
        self._works = False
