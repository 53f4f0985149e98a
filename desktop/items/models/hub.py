"""Search results of the hub, and the quantisations of one model, as Qt list models with two lines a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from PySide6.QtCore import QObject, Qt

from desktop.items.models.local_models import count_text
from desktop.items.rows_model import RowsModel
from engine.units import number_text, size_text
from engine.words import _, dotted

if TYPE_CHECKING:
    from engine.hub import HubChoice, HubModel

__all__ = ["ChoicesModel", "HubModels", "choice_lines", "model_lines"]

T = TypeVar("T")


def model_lines(model: HubModel) -> tuple[str, str]:
    """A model's name, and what it drafts for, its size, downloads, licence and age."""
    parts = [
        _drafter(model),
        _("{count} parameters", count=count_text(model.parameters)) if model.parameters else "",
        " + ".join(model.formats).upper(),
        _("{count} downloads", count=_short(model.downloads)),
        model.licence,
        _("updated {updated}", updated=model.updated[:10]) if model.updated else "",
        _("terms to accept") if model.gated else "",
    ]
    return model.id, dotted(*parts)


def _drafter(model: HubModel) -> str:
    if not model.drafter:
        return ""
    if not model.base:
        return _("{kind} drafter", kind=model.drafter)
    return _("{kind} drafter for {model}", kind=model.drafter, model=model.base)


def choice_lines(choice: HubChoice) -> tuple[str, str]:
    """A choice's name with the recommendation, and its size with whether it fits."""
    if not choice.fits_disk:
        verdict = _("not enough disk space")
    else:
        verdict = (
            _("fits, needs about {size}", size=size_text(choice.memory_bytes))
            if choice.fits_memory
            else _("too large for this computer's memory")
        )
    return (
        _("{title}  ★ recommended", title=choice.title) if choice.recommended else choice.title,
        _(
            "{size} to download, {part} of it to read pictures · {verdict}",
            size=size_text(choice.bytes),
            part=size_text(choice.vision_bytes),
            verdict=verdict,
        )
        if choice.vision_bytes
        else _("{size} to download · {verdict}", size=size_text(choice.bytes), verdict=verdict),
    )


def _short(count: int) -> str:
    """For example "950", "12 k", "3.4 M"."""
    for size, unit in ((1_000_000, " M"), (1_000, " k")):
        if count >= size:
            return number_text(count / size, ".2g") + unit if count < 100 * size else f"{count // size}{unit}"
    return str(count)


class _Lines(RowsModel[T]):
    """Rows of two lines of text, which `lines` makes."""

    def __init__(self, lines: Callable[[T], tuple[str, str]], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lines = lines

    def value(self, row: T, role: int) -> object:
        """Both lines; as one sentence for a screen reader."""
        first, second = self._lines(row)
        if role == Qt.ItemDataRole.DisplayRole:
            return f"{first}\n{second}"
        if role in (Qt.ItemDataRole.AccessibleTextRole, Qt.ItemDataRole.ToolTipRole):
            return f"{first}, {second}"
        return None


class HubModels(_Lines["HubModel"]):
    """The models of a search."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(model_lines, parent)

    def models(self) -> tuple[HubModel, ...]:
        """All models, from the first row to the last."""
        return tuple(self._rows)

    def model(self, row: int) -> HubModel | None:
        """The model of a row."""
        return self._rows[row] if 0 <= row < len(self._rows) else None


class ChoicesModel(_Lines["HubChoice"]):
    """What can be downloaded of one model."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(choice_lines, parent)

    def choice(self, row: int) -> HubChoice | None:
        """The choice of a row."""
        return self._rows[row] if 0 <= row < len(self._rows) else None

    def recommended(self) -> int:
        """The row of the recommended choice; -1 for none."""
        return next((row for row, choice in enumerate(self._rows) if choice.recommended), -1)
