"""The language of the window: which one is meant, what Qt has to know of it, and how it writes dates."""

from __future__ import annotations

import datetime
import logging

from PySide6.QtCore import QDate, QLibraryInfo, QLocale, QTime, QTranslator
from PySide6.QtGui import QGuiApplication

from engine.words import _, language, languages, set_language

__all__ = [
    "apply_language", "date_text", "language_for", "moment_text", "time_text", "today_text", "when_text",
]  # fmt: skip

log = logging.getLogger(__name__)

_DIGITS = {"ar": "ar_AE"}
"""The territories whose digits a language is shown in where those of others differ."""
_translators: list[QTranslator] = []
"""Those installed now; Qt does not keep them."""


def language_for(choice: str, wishes: list[str] | None = None) -> str:
    """The code of the language for the choice in the settings.

    "system" stands for the first of the system's languages (`wishes`, such as "de-AT") that there is a
    catalogue for, else English.
    """
    known = languages()
    if choice in known:
        return choice
    for wish in wishes if wishes is not None else QLocale.system().uiLanguages():
        name = QLocale(wish).name()
        for code in (name, name.partition("_")[0]):
            if code in known:
                return code
    return "en"


def apply_language(app: QGuiApplication, choice: str) -> bool:
    """Translate all that is shown from now on, Qt's own words too, lay it out in the direction of the
    language, and write numbers and dates as it does. False if that is the language that was used before.
    """
    code = language_for(choice)
    locale = _locale(code)
    QLocale.setDefault(locale)
    if code == language():
        return False
    plain = code == "en"
    set_language(code, "," if plain else locale.groupSeparator(), "." if plain else locale.decimalPoint())
    for translator in _translators:
        app.removeTranslator(translator)
    _translators.clear()
    translator = QTranslator(app)
    folder = QLibraryInfo.path(QLibraryInfo.LibraryPath.TranslationsPath)
    if code != "en" and translator.load(locale, "qtbase", "_", folder):
        app.installTranslator(translator)
        _translators.append(translator)
    elif code != "en":
        log.info("Qt has no words for the language %s", code)
    app.setLayoutDirection(locale.textDirection())
    return True


def _locale(code: str) -> QLocale:
    """How a language writes numbers and dates: as the system does if that speaks it, with the digits that the
    program's texts have.
    """
    own, system = QLocale(_DIGITS.get(code, code)), QLocale.system()
    spoken = (system.language(), system.script()) == (own.language(), own.script())
    return system if spoken and system.zeroDigit() == own.zeroDigit() else own


def date_text(day: datetime.date) -> str:
    """A date in words: "26 November 2026"."""
    return QLocale().toString(QDate(day.year, day.month, day.day), _long_date())


def today_text() -> str:
    """The present date with the name of the day: "Thursday, 26 November 2026"."""
    return QLocale().toString(QDate.currentDate(), QLocale.FormatType.LongFormat)


def _long_date() -> str:
    """The language's own form of a date, without the name of the day."""
    form = QLocale().dateFormat(QLocale.FormatType.LongFormat)
    return form.replace("dddd", "").strip(" ,،、")


def time_text(time: datetime.time, seconds: bool = False) -> str:
    """A time of the day: "2:05 PM", "14:05"."""
    form = QLocale.FormatType.ShortFormat
    shown = QLocale().timeFormat(form)
    if seconds:
        shown = shown.replace("mm", "mm:ss")
    return QLocale().toString(QTime(time.hour, time.minute, time.second), shown)


def moment_text(moment: float, seconds: bool = False) -> str:
    """A time (seconds since 1970) with its date, in the local time zone."""
    found = datetime.datetime.fromtimestamp(moment)
    return _("{day}, {time}", day=date_text(found.date()), time=time_text(found.time(), seconds))


def when_text(moment: float) -> str:
    """A time (seconds since 1970) in the system's words: "Today, 14:05"."""
    made = datetime.datetime.fromtimestamp(moment)
    days = (datetime.date.today() - made.date()).days
    if days not in (0, 1):
        return moment_text(moment)
    return _("{day}, {time}", day=_("Yesterday") if days else _("Today"), time=time_text(made.time()))
