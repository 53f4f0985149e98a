"""The language of the window: which one is meant, and what Qt has to know of it."""

from __future__ import annotations

import logging

from PySide6.QtCore import QLibraryInfo, QLocale, QTranslator
from PySide6.QtGui import QGuiApplication

from engine.words import language, languages, set_language

__all__ = ["SYSTEM", "apply_language", "language_for"]

log = logging.getLogger(__name__)

SYSTEM = "system"
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
    """Translate all that is shown from now on, Qt's own words too, and lay it out in the direction of the
    language. False if that is what was done before.
    """
    code = language_for(choice)
    if code == language():
        return False
    locale = QLocale(code)
    plain = code == "en" or locale.zeroDigit() != "0"  # their separators belong to other digits
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
    QLocale.setDefault(locale if code != "en" else QLocale.system())
    app.setLayoutDirection(locale.textDirection())
    return True
