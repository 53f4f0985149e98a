"""The library as a Qt table model: one row a model, one column a fact; and the sorting and filtering before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, QSortFilterProxyModel, Qt

from desktop.items.catalogue import ModelEntry, count_text, size_text

if TYPE_CHECKING:
    from engine.models.fit import Fit

__all__ = ["COLUMNS", "ENTRY_ROLE", "TONE_ROLE", "LibraryFilter", "LibraryModel", "fit_text", "speed_text"]

COLUMNS = (
    "Name", "Memory", "Speed", "Size", "Quantisation", "Bits", "Context", "Architecture", "Format", "Template", "Licence", "Where",
)  # fmt: skip
NAME, MEMORY, SPEED, SIZE, QUANTISATION, BITS, CONTEXT, ARCHITECTURE, FORMAT, TEMPLATE, LICENCE, WHERE = range(len(COLUMNS))
HEADER_HELP = {
    MEMORY: "What weights, one context and work space take together, beside the free memory; from the headers alone.",
    SPEED: "An estimate from the measured speed of this machine's memory; long conversations are slower.",
    BITS: "Bits for each weight, over all tensors.",
    CONTEXT: "Tokens the model can see at once.",
    TEMPLATE: "Whether the model brings its own chat template.",
}
ENTRY_ROLE = int(Qt.ItemDataRole.UserRole) + 1
"""The row's `ModelEntry`."""
TONE_ROLE = int(Qt.ItemDataRole.UserRole) + 2
"""How the text is told: "", "muted" or "danger"."""

_NUMBERS = (SPEED, SIZE, BITS, CONTEXT)
_VERDICTS = {"fits": "Fits", "tight": "Just fits", "too large": "Too large"}
_FORMATS = {"gguf": "GGUF", "safetensors": "Safetensors"}
_NO_PARENT = QModelIndex()
Index = QModelIndex | QPersistentModelIndex


def fit_text(fit: Fit | None) -> str:
    """For example "Fits, 5.2 GB"; empty when nothing is known yet."""
    return f"{_VERDICTS[fit.verdict]}, {size_text(fit.total)}" if fit is not None else ""


def speed_text(fit: Fit | None) -> str:
    """For example "≈ 12 tokens/s", with two digits that count; empty when it is not known."""
    if fit is None or fit.tokens_per_second <= 0:
        return ""
    return f"≈ {float(f'{fit.tokens_per_second:.2g}'):,g} tokens/s"


@dataclass(frozen=True)
class _Row:
    """A model with all that is shown of it, made once."""

    entry: ModelEntry
    fit: Fit | None
    loaded: bool
    texts: tuple[str, ...]
    keys: tuple[tuple[float, str], ...]
    words: str


def _row(entry: ModelEntry, fit: Fit | None, loaded: bool) -> _Row:
    info = entry.info
    texts = [""] * len(COLUMNS)
    texts[NAME], texts[WHERE] = entry.name, entry.source or "Opened before"
    if info is None:
        texts[MEMORY] = "Cannot be used"
        values: dict[int, float] = {MEMORY: 3e15, **dict.fromkeys(_NUMBERS, -1.0)}
    else:
        texts[MEMORY], texts[SPEED] = fit_text(fit), speed_text(fit)
        texts[SIZE], texts[QUANTISATION] = size_text(info.weights_bytes), info.quantisation
        texts[BITS], texts[CONTEXT] = f"{info.bits_per_weight:.3g}", f"{info.context_length:,}"
        parameters = count_text(info.parameters)
        texts[ARCHITECTURE] = f"{info.architecture} {parameters}".strip()
        texts[FORMAT] = _FORMATS.get(info.format, info.format)
        texts[TEMPLATE], texts[LICENCE] = "Yes" if info.has_chat_template else "No", info.licence
        needed = 2e15 if fit is None else fit.total + (1e15 if fit.verdict == "too large" else 0.0)
        values = {
            MEMORY: needed, SPEED: fit.tokens_per_second if fit is not None else 0.0, SIZE: float(info.weights_bytes),
            BITS: info.bits_per_weight, CONTEXT: float(info.context_length),
        }  # fmt: skip
    keys = [(values[column], "") if column in values else (0.0, text.casefold()) for column, text in enumerate(texts)]
    words = " ".join((*texts, entry.path, entry.trouble)).casefold()
    return _Row(entry, fit, loaded, tuple(texts), tuple(keys), words)


class LibraryModel(QAbstractTableModel):
    """Rows stay in the order they came; what is the same keeps its row, so that selection and place stay."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: list[_Row] = []
        self._at: dict[str, int] = {}
        self._fits: dict[str, Fit] = {}
        self._loaded = ""

    def show_entries(self, entries: Iterable[ModelEntry]) -> None:
        """Show these models and no others."""
        wanted = {entry.path: entry for entry in entries}
        if any(row.entry.path not in wanted for row in self._rows):
            for at in range(len(self._rows) - 1, -1, -1):
                if self._rows[at].entry.path not in wanted:
                    self.beginRemoveRows(_NO_PARENT, at, at)
                    del self._rows[at]
                    self.endRemoveRows()
            self._at = {row.entry.path: at for at, row in enumerate(self._rows)}
        changed = [at for at, row in enumerate(self._rows) if wanted[row.entry.path] != row.entry]
        for at in changed:
            self._rows[at] = self._make(wanted[self._rows[at].entry.path])
        self._tell(changed)
        added = [self._make(entry) for path, entry in wanted.items() if path not in self._at]
        if added:
            first = len(self._rows)
            self.beginInsertRows(_NO_PARENT, first, first + len(added) - 1)
            self._rows += added
            self._at |= {row.entry.path: first + at for at, row in enumerate(added)}
            self.endInsertRows()

    def show_fits(self, fits: Mapping[str, Fit]) -> None:
        """What was found out about the memory and speed of models, by path."""
        self._fits |= fits
        changed = [self._at[path] for path, fit in fits.items() if path in self._at and self._rows[self._at[path]].fit != fit]
        for at in changed:
            self._rows[at] = self._make(self._rows[at].entry)
        self._tell(changed)

    def show_loaded(self, path: str) -> None:
        """Mark the loaded model; "" for none."""
        before, self._loaded = self._loaded, path
        changed = [self._at[each] for each in {before, path} if each in self._at]
        for at in changed:
            self._rows[at] = self._make(self._rows[at].entry)
        self._tell(changed)

    def entry(self, path: str) -> ModelEntry | None:
        """The model at `path`."""
        return self._rows[self._at[path]].entry if path in self._at else None

    def fit(self, path: str) -> Fit | None:
        """What was found out about it."""
        return self._fits.get(path)

    def sources(self) -> tuple[str, ...]:
        """Where models were found, each once, by name."""
        return tuple(sorted({row.texts[WHERE] for row in self._rows}, key=str.casefold))

    def words(self, row: int) -> str:
        """All text of a row in lower case, for searching."""
        return self._rows[row].words

    def path(self, row: int) -> str:
        """The path of a row's model."""
        return self._rows[row].entry.path

    def key(self, row: int, column: int) -> tuple[float, str, str]:
        """What a row is sorted by: numbers before texts, and the name where they are equal."""
        return (*self._rows[row].keys[column], self._rows[row].keys[NAME][1])

    def source(self, row: int) -> str:
        """Where the model of a row was found."""
        return self._rows[row].texts[WHERE]

    def _make(self, entry: ModelEntry) -> _Row:
        return _row(entry, self._fits.get(entry.path), bool(entry.path) and entry.path == self._loaded)

    def _tell(self, rows: list[int]) -> None:
        if rows:
            self.dataChanged.emit(self.index(min(rows), 0), self.index(max(rows), len(COLUMNS) - 1))

    # -- what Qt asks

    def rowCount(self, parent: Index = _NO_PARENT) -> int:
        """The number of models."""
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: Index = _NO_PARENT) -> int:
        """The number of facts."""
        return 0 if parent.isValid() else len(COLUMNS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """The columns' names, and what the less plain ones mean."""
        if orientation != Qt.Orientation.Horizontal or not 0 <= section < len(COLUMNS):
            return None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(section)
        if role == Qt.ItemDataRole.ToolTipRole:
            return HEADER_HELP.get(section, COLUMNS[section])
        return COLUMNS[section] if role == Qt.ItemDataRole.DisplayRole else None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Texts, tool tips (the trouble of what cannot be used), `ENTRY_ROLE` and `TONE_ROLE`."""
        if not index.isValid() or not 0 <= index.row() < len(self._rows):
            return None
        row, column = self._rows[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return f"{row.texts[NAME]}  (loaded)" if column == NAME and row.loaded else row.texts[column]
        if role == ENTRY_ROLE:
            return row.entry
        if role == TONE_ROLE:
            return _tone(row, column)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        if role == Qt.ItemDataRole.ToolTipRole:
            return row.entry.trouble or (row.fit.sentence if row.fit is not None and column == MEMORY else row.texts[column])
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return f"{COLUMNS[column]}: {row.texts[column] or 'not known'}" if column != NAME else row.texts[NAME]
        return None


def _alignment(column: int) -> Qt.AlignmentFlag:
    side = Qt.AlignmentFlag.AlignRight if column in _NUMBERS else Qt.AlignmentFlag.AlignLeft
    return side | Qt.AlignmentFlag.AlignVCenter


def _tone(row: _Row, column: int) -> str:
    if row.entry.trouble:
        return "danger" if column == MEMORY else "muted"
    too_large = row.fit is not None and row.fit.verdict == "too large"
    return "danger" if too_large and column == MEMORY else "" if column in (NAME, MEMORY, SPEED) else "muted"


class LibraryFilter(QSortFilterProxyModel):
    """The models with all words of the query, from one source or all, sorted by any column; names break ties."""

    def __init__(self, library: LibraryModel, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._library = library
        self._words: list[str] = []
        self._source = ""
        self._hidden: frozenset[str] = frozenset()
        self.setSourceModel(library)
        self.sort(NAME)

    def show_matching(self, query: str, source: str, hidden: Iterable[str] = ()) -> None:
        """Filter by words, by source ("" is all), and leave out the paths the user removed."""
        wanted = (query.casefold().split(), source, frozenset(hidden))
        if wanted != (self._words, self._source, self._hidden):
            self._words, self._source, self._hidden = wanted
            self.invalidate()

    def filterAcceptsRow(self, source_row: int, source_parent: Index) -> bool:
        """Whether a row is shown."""
        if self._source and self._library.source(source_row) != self._source:
            return False
        if self._hidden and self._library.path(source_row) in self._hidden:
            return False
        words = self._library.words(source_row)
        return all(word in words for word in self._words)

    def lessThan(self, left: QModelIndex | QPersistentModelIndex, right: QModelIndex | QPersistentModelIndex) -> bool:
        """By the column's key; equal ones by name."""
        column = left.column()
        return self._library.key(left.row(), column) < self._library.key(right.row(), column)
