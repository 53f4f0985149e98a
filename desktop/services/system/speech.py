"""Reads text aloud with the voice of the system: a program that it brings, one run for each sentence.

Qt's own text-to-speech is not in PySide6-Essentials; PySide6-Addons has it, at three times the download.
"""

from __future__ import annotations

import functools
import re
import shutil
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import QObject, QProcess, Signal, Slot

from engine.printable import one_line
from engine.words import _, language

__all__ = ["Speech", "SpeechProgram", "find_speech_program", "language_of"]

_ENDS_MS = 1000
_LANGUAGE = "{language}"
_WINDOWS = (
    "Add-Type -AssemblyName System.Speech; "
    "[Console]::InputEncoding = New-Object System.Text.UTF8Encoding $false; "
    "(New-Object System.Speech.Synthesis.SpeechSynthesizer).Speak([Console]::In.ReadToEnd())"
)
"""PowerShell: the voice of Windows speaks what it gets."""
_KANA, _HAN, _ARABIC = (
    re.compile(f"[{each}]") for each in ("\u3041-\u30ff", "\u4e00-\u9fff", "\u0620-\u064a")
)
_ESPEAK_NAMES = {"zh_CN": "cmn"}
"""The names that espeak-ng has for languages where they are not the same as here."""


def language_of(text: str) -> str:
    """The code of the language that `text` is in, as far as its letters tell; else that of the window."""
    letters = sum(map(str.isalpha, text))
    kana, han, arabic = (len(each.findall(text)) for each in (_KANA, _HAN, _ARABIC))
    if 2 * (kana + han) > letters:
        return "ja" if kana or language() == "ja" else "zh_CN"
    return "ar" if 2 * arabic > letters else language()


class SpeechProgram(NamedTuple):
    """A program that speaks and ends when it has spoken; killing it silences it.

    Attributes:
        path, arguments: how it is started; `{language}` stands for the code of a language.
        names: what that program calls a language, where that is not the part before "_".
        takes_argument: the text is its last argument; otherwise it reads the text from its input.
        hush: arguments with which the program silences another that was killed.
        at_once: it takes long to start, so it gets all sentences together.
    """

    path: str
    arguments: tuple[str, ...] = ()
    names: dict[str, str] = {}
    takes_argument: bool = False
    hush: tuple[str, ...] = ()
    at_once: bool = False

    def command(self, code: str, text: str) -> list[str]:
        """The arguments to say `text`, which is in the language `code` as far as is known."""
        name = self.names.get(code, code.partition("_")[0])
        given = [argument.replace(_LANGUAGE, name) for argument in self.arguments]
        return [*given, text] if self.takes_argument else given


@functools.cache
def find_speech_program(
    platform: str = sys.platform, which: Callable[[str], str | None] = shutil.which
) -> SpeechProgram | None:
    """The voice of this system, looked for once; None if it has none.

    Linux: Speech Dispatcher's spd-say, which uses the voice that the user has chosen, else espeak-ng.
    macOS: say. Windows: System.Speech, by PowerShell.
    """
    if platform == "darwin":
        return SpeechProgram(say) if (say := which("say")) else None
    if platform == "win32":
        shell = which("powershell")
        return SpeechProgram(shell, ("-NoProfile", "-Command", _WINDOWS), at_once=True) if shell else None
    if found := which("spd-say"):
        return SpeechProgram(
            found, ("--wait", "--language", _LANGUAGE, "--"), takes_argument=True, hush=("--stop",)
        )
    if found := which("espeak-ng"):
        return SpeechProgram(found, ("-v", _LANGUAGE, "--stdin"), _ESPEAK_NAMES)
    return None


class Speech(QObject):
    """Says sentences with `program`, one after the other.

    Signals:
        ended(str trouble): all is said, with "", or the voice failed, and why. Not after `stop`.
    """

    ended = Signal(str)

    def __init__(self, program: SpeechProgram | None, parent: QObject) -> None:
        super().__init__(parent)
        self.program = program
        self._waiting: deque[str] = deque()
        self._process: QProcess | None = None

    @property
    def speaking(self) -> bool:
        """Whether something is being said."""
        return self._process is not None

    def say(self, sentences: Sequence[str]) -> None:
        """Say these sentences instead of what is being said."""
        self.stop()
        if self.program is not None:
            self._waiting.extend(["\n".join(sentences)] if self.program.at_once else sentences)
            self._next()

    def stop(self) -> None:
        """Be silent now."""
        self._waiting.clear()
        process, self._process = self._process, None
        if process is None:
            return
        process.finished.disconnect(self._on_finished)
        process.errorOccurred.disconnect(self._on_error)
        process.kill()
        process.waitForFinished(_ENDS_MS)
        process.deleteLater()
        if self.program is not None and self.program.hush:
            QProcess.startDetached(self.program.path, list(self.program.hush))

    def _next(self) -> None:
        if self.program is None or not self._waiting:
            self.ended.emit("")
            return
        text, program = self._waiting.popleft(), self.program
        process = self._process = QProcess(self)
        process.finished.connect(self._on_finished)
        process.errorOccurred.connect(self._on_error)
        process.start(program.path, program.command(language_of(text), text))
        if not program.takes_argument:
            process.write(text.encode())
            process.closeWriteChannel()

    @Slot(int)
    def _on_finished(self, code: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        said = one_line(bytes(process.readAllStandardError().data()).decode(errors="replace")).strip()[:200]
        process.deleteLater()
        if code == 0 and process.exitStatus() == QProcess.ExitStatus.NormalExit:
            self._next()
        else:
            self._fail(said or _("error {code}", code=code))

    @Slot(QProcess.ProcessError)
    def _on_error(self, error: QProcess.ProcessError) -> None:
        process = self._process
        if error == QProcess.ProcessError.FailedToStart and process is not None:
            self._process = None
            process.deleteLater()
            self._fail(process.errorString())

    def _fail(self, why: str) -> None:
        self._waiting.clear()
        name = Path(self.program.path).stem if self.program is not None else ""
        self.ended.emit(_("{name} could not read the text aloud ({why}).", name=name, why=why))
