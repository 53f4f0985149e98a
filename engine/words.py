"""The words of the program in the user's language, by gettext catalogues in `resources/languages`.

Every text that a user reads is written in English at its place: `_("Close")`, or
`_("{count} of {total:,} files", count=done, total=total)`, which is translated first and formatted then.
Literals of module-level tables are marked by `N_` and translated by `translate` where they are shown.
`ngettext` chooses between singular and plural by the rules of the language. Whole sentences, never parts to
be glued: other languages have another order of words.

English is the source: without a catalogue each text stays as it is written. Log lines, prompts to models,
answers of the local server and what a command prints with --json are English always.
"""

from __future__ import annotations

import gettext
import json
import string
from pathlib import Path
from typing import Any

import resources

__all__ = [
    "N_", "Words", "_", "dotted", "english", "figure", "in_sentence", "isolates", "language",
    "language_names", "languages", "ngettext", "paragraph", "set_language", "translate", "use_catalogue",
]  # fmt: skip

FOLDER = Path(resources.__file__).parent / "languages"
"""`CODE/LC_MESSAGES/inglenook.po` and `.mo` for each language."""

DOMAIN = "inglenook"
_RIGHT_TO_LEFT = {"ar", "fa", "he", "ur"}
_UNSPACED = {"ja", "zh_CN"}
"""Languages that put no blanks between sentences."""


class Words(str):
    """A translated text that remembers its source: `english` is the same text in English."""

    english: str = ""


class _Numbers(string.Formatter):
    """Formats numbers with the separators of a language: `{n:,}` and `{n:.1f}` as it writes them."""

    def __init__(self, group: str, point: str) -> None:
        self._separators = str.maketrans({",": group, ".": point})

    def format_field(self, value: Any, format_spec: str) -> Any:
        text = super().format_field(value, format_spec)
        number = isinstance(value, (int, float)) and bool(format_spec)
        return _isolated(self.localised(text) if number else text)

    def localised(self, text: str) -> str:
        """A number with these separators."""
        return text.translate(self._separators)


class _State:
    """The language in use, its catalogue (None: the source), how it writes numbers, and whether the parts of
    its texts are isolated.
    """

    code = "en"
    catalogue: gettext.NullTranslations | None = None
    numbers = _Numbers(",", ".")
    isolates = False


def languages(folder: Path = FOLDER) -> tuple[str, ...]:
    """The codes of the languages with a catalogue, and "en", sorted."""
    return tuple(sorted({"en", *(found.parts[-3] for found in folder.glob(f"*/LC_MESSAGES/{DOMAIN}.mo"))}))


def language_names() -> tuple[tuple[str, str], ...]:
    """(code, name) of each of these languages, the name in the language itself."""
    names = json.loads((FOLDER / "names.json").read_text(encoding="utf-8"))
    return tuple((code, names.get(code, code)) for code in languages())


def language() -> str:
    """The code of the language in use."""
    return _State.code


def set_language(
    code: str, group: str = ",", point: str = ".", folder: Path = FOLDER, *, terminal: bool = False
) -> None:
    """Translate into the language `code` from now on; `group` and `point` are its separators in numbers.

    In a `terminal` no invisible characters mark the direction of parts: they would be shown, and copied with
    a path. "en" is the source. Raises `FileNotFoundError` if there is no catalogue for `code`.
    """
    use_catalogue(code, None if code == "en" else gettext.translation(DOMAIN, folder, [code]), group, point)
    _State.isolates = _State.isolates and not terminal


def use_catalogue(
    code: str, catalogue: gettext.NullTranslations | None, group: str = ",", point: str = "."
) -> None:
    """The same with a catalogue of the caller; None stands for the source."""
    _State.code, _State.catalogue, _State.numbers = code, catalogue, _Numbers(group, point)
    _State.isolates = code in _RIGHT_TO_LEFT


def figure(text: str) -> str:
    """A number written in the English way, such as "1,024.5", with the separators of the language."""
    return _State.numbers.localised(text)


def isolates() -> bool:
    """Whether invisible characters mark where the parts of a translated text begin and end."""
    return _State.isolates


def _isolated(text: str) -> str:
    """A part of a text: in a language that runs from right to left its own direction disturbs no other part.

    Directional isolates: https://www.unicode.org/reports/tr9/#Explicit_Directional_Isolates
    """
    return f"\u2068{text}\u2069" if text and _State.isolates else text


def dotted(*parts: str) -> str:
    """The parts that are not empty, with dots between them, in the direction of the language."""
    text = " · ".join(_isolated(part) for part in parts if part)
    return f"\u2067{text}\u2069" if text and _State.isolates else text


def N_(text: str) -> str:
    """`text` itself: marks a literal for translation that `translate` gets later."""
    return text


def _(text: str, /, **values: object) -> str:
    """The literal `text` in the user's language; `{name}` in it becomes the value of that name."""
    return translate(text, **values)


def translate(text: str, /, **values: object) -> str:
    """A text marked by `N_`, in the user's language, formatted with `values`."""
    catalogue = _State.catalogue
    if catalogue is None or not text:
        return text.format(**values) if values else text
    return _worded(text, catalogue.gettext(text), values)


def ngettext(one: str, many: str, number: int, /, **values: object) -> str:
    """The sentence for a number: `one` for 1 and `many` for others in English; other languages have up to
    six forms.

    `{n}` in it becomes the number, with separators; other names in braces become `values`. Both are whole
    sentences or labels.
    """
    catalogue = _State.catalogue
    source = one if number == 1 else many
    if catalogue is None:
        return source.format(n=f"{number:,}", **values)
    n = figure(f"{number:,}")
    return _worded(source, catalogue.ngettext(one, many, number), {"n": Words(n), **values}, n=f"{number:,}")


def _worded(source: str, found: str, values: dict[str, object], **plain: object) -> str:
    if not values:
        words = Words(found)
        words.english = source
        return words
    words = Words(_State.numbers.vformat(found, (), values))
    words.english = source.format(**{**{name: english(value) for name, value in values.items()}, **plain})
    return words


def paragraph(*sentences: str) -> str:
    """The sentences that are not empty, side by side as the language puts them; it remembers its source."""
    given = [sentence for sentence in sentences if sentence]
    text = Words(("" if _State.code in _UNSPACED else " ").join(given))
    text.english = " ".join(map(english, given))
    return text


def in_sentence(label: str) -> str:
    """A label within a sentence: in lower case in English; other languages keep their own capitals."""
    return label.lower() if _State.code == "en" else label


def english(text: object) -> Any:
    """The English source of a translated text or of an engine error; anything else as it is."""
    return getattr(text, "english", text)
