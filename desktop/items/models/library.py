"""The model library as a sorted and filtered Qt table model: one row per model, one column per property."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from desktop.items.models.local_models import ModelEntry, count_text
from engine.units import number_text, size_text
from engine.words import N_, _, translate

if TYPE_CHECKING:
    from engine.models.memory.fit import Fit

__all__ = [
    "ARCHITECTURE", "BITS", "COLUMNS", "CONTEXT", "ENTRY_ROLE", "FORMAT", "LICENCE", "MEMORY", "NAME",
    "QUANTISATION", "SIZE", "SPEED", "TEMPLATE", "TONE_ROLE", "WHERE", "LibraryModel", "fit_text",
    "speed_text",
]  # fmt: skip

COLUMNS = (
    N_("Name"),
    N_("Memory"),
    N_("Speed"),
    N_("Size"),
    N_("Quantisation"),
    N_("Bits"),
    N_("Context"),
    N_("Architecture"),
    N_("Format"),
    N_("Template"),
    N_("Licence"),
    N_("Where"),
)
NAME, MEMORY, SPEED, SIZE, QUANTISATION, BITS, CONTEXT, ARCHITECTURE, FORMAT, TEMPLATE, LICENCE, WHERE = (
    range(len(COLUMNS))
)
HEADER_HELP = {
    MEMORY: N_(
        "Memory needed for weights, one context and work space, compared with free memory. Estimated "
        "from the file headers."
    ),
    SPEED: N_("Measured in earlier replies, or estimated (≈). Long chats are slower."),
    BITS: N_("Average bits per weight."),
    CONTEXT: N_("The number of tokens that the model can process at once."),
    TEMPLATE: N_(
        "Whether the model has a chat template. A model without one is a base model, for notebooks."
    ),
}
ENTRY_ROLE = int(Qt.ItemDataRole.UserRole) + 1
"""The row's `ModelEntry`."""
TONE_ROLE = int(Qt.ItemDataRole.UserRole) + 2
"""The tone of the text: "", "muted" or "danger"."""

_NUMBERS = (SPEED, SIZE, BITS, CONTEXT)
_VERDICTS = {
    "fits": N_("Fits"),
    "tight": N_("Just fits"),
    "on disk": N_("Partly on disk"),
    "too large": N_("Too large"),
}
_FORMATS = {"gguf": "GGUF", "safetensors": "Safetensors"}
_NO_PARENT = QModelIndex()
Index = QModelIndex | QPersistentModelIndex


def fit_text(fit: Fit | None) -> str:
    """For example "Fits, 5.2 GB"; empty while it is not known."""
    return f"{translate(_VERDICTS[fit.verdict])}, {size_text(fit.total)}" if fit is not None else ""


def speed_text(fit: Fit | None) -> str:
    """For example "12 tokens/s", "≈ 12 tokens/s" for an estimate, with two significant digits; empty while it
    is not known.
    """
    if fit is None or fit.tokens_per_second <= 0:
        return ""
    number = float(f"{fit.tokens_per_second:.2g}")
    if fit.measured:
        return _("{number:,g} tokens/s", number=number)
    return _("≈ {number:,g} tokens/s", number=number)


class _Row:
    """A model; its texts are made when it is first shown, searched or sorted."""

    def __init__(self, entry: ModelEntry, fit: Fit | None, loaded: bool) -> None:
        self.entry, self.fit, self.loaded = entry, fit, loaded

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The text of each column."""
        entry, info = self.entry, self.entry.info
        texts = [""] * len(COLUMNS)
        texts[NAME], texts[WHERE] = entry.name, self.source
        if info is None:
            texts[MEMORY] = _("Unusable")
        else:
            texts[MEMORY] = fit_text(self.fit)
            writes = not (info.embedding or info.assistant)
            texts[SPEED] = speed_text(self.fit) if writes else ""
            texts[SIZE], texts[QUANTISATION] = size_text(info.size), info.quantisation
            texts[BITS], texts[CONTEXT] = (
                number_text(info.bits_per_weight, ".3g"),
                number_text(info.context_length),
            )
            texts[ARCHITECTURE] = f"{info.architecture} {count_text(info.parameters)}".strip()
            if info.embedding:
                texts[ARCHITECTURE] = _("{architecture}, embedding model", architecture=texts[ARCHITECTURE])
            elif info.reads_pictures:
                texts[ARCHITECTURE] = _("{architecture}, reads pictures", architecture=texts[ARCHITECTURE])
            texts[FORMAT] = _FORMATS.get(info.format, info.format)
            texts[TEMPLATE], texts[LICENCE] = _("Yes") if info.has_chat_template else _("No"), info.licence
        return tuple(texts)

    @cached_property
    def words(self) -> str:
        """All texts in lower case, for searching."""
        return " ".join((*self.texts, self.entry.path, self.entry.trouble)).casefold()

    @property
    def source(self) -> str:
        """Where it was found."""
        return self.entry.source or _("Recently opened")

    def key(self, column: int) -> tuple[float, str, str]:
        """The sort key of a column: a number or a text, then the name."""
        name, info, fit = self.entry.name.casefold(), self.entry.info, self.fit
        if column == MEMORY:
            unknown = 2e15 if info is not None else 3e15
            return (
                (unknown if fit is None else fit.total + (1e15 if fit.verdict == "too large" else 0.0)),
                "",
                name,
            )
        if column == SPEED:
            return (fit.tokens_per_second if fit is not None else -1.0), "", name
        if column in _NUMBERS:
            numbers = (
                {SIZE: info.size, BITS: info.bits_per_weight, CONTEXT: info.context_length}
                if info is not None
                else {}
            )
            return float(numbers.get(column, -1.0)), "", name
        return 0.0, "" if column == NAME else self.texts[column].casefold(), name


class LibraryModel(QAbstractTableModel):
    """All models, of which the matching ones are shown in order.

    Sorting a thousand models with Python keys takes a millisecond; a proxy's comparisons would take a
    hundred. `modelReset` is emitted when other rows are shown, `layoutChanged` when only their order changes.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._all: dict[str, _Row] = {}
        self._rows: list[_Row] = []
        self._fits: dict[str, Fit] = {}
        self._loaded = ""
        self._words: list[str] = []
        self._source = ""
        self._hidden: frozenset[str] = frozenset()
        self._column, self._order = NAME, Qt.SortOrder.AscendingOrder

    @property
    def count(self) -> int:
        """The number of models, shown or not."""
        return len(self._all)

    def show_entries(self, entries: Iterable[ModelEntry]) -> None:
        """Set the models."""
        before, self._all = self._all, {}
        for entry in entries:
            row = before.get(entry.path)
            self._all[entry.path] = row if row is not None and row.entry == entry else self._make(entry)
        self._arrange()

    def show_fits(self, fits: Mapping[str, Fit]) -> None:
        """Set the estimated memory and speed of models, by path."""
        self._fits |= fits
        for path, fit in fits.items():
            row = self._all.get(path)
            if row is not None and row.fit != fit:
                self._all[path] = self._make(row.entry)
        self._arrange()

    def show_loaded(self, path: str) -> None:
        """Mark the loaded model; "" for none."""
        before, self._loaded = self._loaded, path
        for each in {before, path} & self._all.keys():
            self._all[each] = self._make(self._all[each].entry)
        self._arrange()

    def show_matching(self, query: str, source: str, hidden: Iterable[str] = ()) -> None:
        """Show the models with all words of the query, from one source ("" for all), except the paths in
        `hidden`.
        """
        shown = (query.casefold().split(), source, frozenset(hidden))
        if shown != (self._words, self._source, self._hidden):
            self._words, self._source, self._hidden = shown
            self._arrange()

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Sort by a column; names break ties."""
        if 0 <= column < len(COLUMNS):
            self._column, self._order = column, order
            self._arrange()

    def entry(self, path: str) -> ModelEntry | None:
        """The model at `path`."""
        return self._all[path].entry if path in self._all else None

    def fit(self, path: str) -> Fit | None:
        """The estimated memory and speed of the model at `path`."""
        return self._fits.get(path)

    def row_of(self, path: str) -> int:
        """The row in which a model is shown; -1 when it is not."""
        return next((at for at, row in enumerate(self._rows) if row.entry.path == path), -1)

    def sources(self) -> tuple[str, ...]:
        """The sources of the models, each once, by name."""
        return tuple(sorted({row.source for row in self._all.values()}, key=str.casefold))

    def _make(self, entry: ModelEntry) -> _Row:
        return _Row(entry, self._fits.get(entry.path), bool(entry.path) and entry.path == self._loaded)

    def _matches(self, row: _Row) -> bool:
        if self._source and row.source != self._source:
            return False
        return row.entry.path not in self._hidden and (
            not self._words or all(word in row.words for word in self._words)
        )

    def _arrange(self) -> None:
        """Show the matching models in order, with the smallest change for views."""
        column = self._column
        shown = [row for row in self._all.values() if self._matches(row)]
        shown.sort(key=lambda row: row.key(column), reverse=self._order == Qt.SortOrder.DescendingOrder)
        paths, before = [row.entry.path for row in shown], [row.entry.path for row in self._rows]
        if paths == before:
            changed = [
                at for at, (row, old) in enumerate(zip(shown, self._rows, strict=True)) if row is not old
            ]
            self._rows = shown
            if changed:
                self.dataChanged.emit(self.index(changed[0], 0), self.index(changed[-1], len(COLUMNS) - 1))
        elif len(paths) == len(before) and set(paths) == set(before):
            self.layoutAboutToBeChanged.emit()
            self._rows = shown
            places = {path: at for at, path in enumerate(paths)}
            for index in self.persistentIndexList():
                self.changePersistentIndex(index, self.index(places[before[index.row()]], index.column()))
            self.layoutChanged.emit()
        else:
            self.beginResetModel()
            self._rows = shown
            self.endResetModel()

    # -- the item model

    def rowCount(self, parent: Index = _NO_PARENT) -> int:
        """The number of models shown."""
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: Index = _NO_PARENT) -> int:
        """The number of columns."""
        return 0 if parent.isValid() else len(COLUMNS)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> object:
        """The columns' names, and explanations of the less obvious ones."""
        if orientation != Qt.Orientation.Horizontal or not 0 <= section < len(COLUMNS):
            return None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(section)
        if role == Qt.ItemDataRole.ToolTipRole:
            return translate(HEADER_HELP.get(section, COLUMNS[section]))
        return translate(COLUMNS[section]) if role == Qt.ItemDataRole.DisplayRole else None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Texts, tool tips (the problem of an unusable model), `ENTRY_ROLE` and `TONE_ROLE`."""
        if not index.isValid() or not 0 <= index.row() < len(self._rows):
            return None
        row, column = self._rows[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return (
                _("{texts}  (loaded)", texts=row.texts[NAME])
                if column == NAME and row.loaded
                else row.texts[column]
            )
        if role == ENTRY_ROLE:
            return row.entry
        if role == TONE_ROLE:
            return _tone(row, column)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        if role == Qt.ItemDataRole.ToolTipRole:
            return row.entry.trouble or (
                row.fit.sentence if row.fit is not None and column == MEMORY else row.texts[column]
            )
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return (
                f"{translate(COLUMNS[column])}: {row.texts[column] or _('unknown')}"
                if column != NAME
                else row.texts[NAME]
            )
        return None


def _alignment(column: int) -> Qt.AlignmentFlag:
    side = Qt.AlignmentFlag.AlignRight if column in _NUMBERS else Qt.AlignmentFlag.AlignLeft
    return side | Qt.AlignmentFlag.AlignVCenter


def _tone(row: _Row, column: int) -> str:
    if row.entry.trouble:
        return "danger" if column == MEMORY and row.entry.info is None else "muted"
    too_large = row.fit is not None and row.fit.verdict == "too large"
    return "danger" if too_large and column == MEMORY else "" if column in (NAME, MEMORY, SPEED) else "muted"
