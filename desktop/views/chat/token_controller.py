"""Connects the token inspector with the session: the colours of tokens, and continuing from another token."""

from __future__ import annotations

import dataclasses

from PySide6.QtCore import QObject

from desktop.services.session.chat_session import ChatSession
from desktop.settings import Appearance
from desktop.views.chat.token_legend import TokenLegend
from desktop.views.transcript import TranscriptView
from desktop.views.transcript.tokens.colours import PROBABILITY
from engine.settings import Settings
from engine.words import _

__all__ = ["TokenController"]


class TokenController(QObject):
    """Keeps `transcript` and `legend` in step with the setting "Token colours", and starts new versions."""

    def __init__(
        self, session: ChatSession, transcript: TranscriptView, legend: TokenLegend, parent: QObject
    ) -> None:
        super().__init__(parent)
        self._session, self._legend, self._inspection = session, legend, transcript.inspection
        self._last = PROBABILITY
        self._inspection.branch.connect(session.branch)
        legend.chosen.connect(self.choose)
        session.settings_changed.connect(self._settings_changed)
        session.state_changed.connect(self._inspection.refresh)
        session.model_changed.connect(self._inspection.refresh)
        self._settings_changed(Appearance)

    def toggle(self) -> None:
        """Switch the colours of tokens on, as last time, or off."""
        shown, model = self._session.settings(Appearance).token_colours != "off", self._session.model
        self.choose("off" if shown else self._last)
        if not shown and model is not None and (lacks := model.why_not("probabilities")):
            self._session.notice.emit(
                _("{lacks} Replies from other models show theirs.", lacks=lacks), "info"
            )

    def choose(self, mode: str) -> None:
        """Colour tokens by "probability" or "entropy", or show replies as usual ("off")."""
        self._session.set_settings(
            dataclasses.replace(self._session.settings(Appearance), token_colours=mode)
        )

    def _settings_changed(self, cls: type[Settings]) -> None:
        if cls is Appearance:
            mode = self._session.settings(Appearance).token_colours
            self._last = mode if mode != "off" else self._last
            self._legend.show_mode(mode)
            self._inspection.set_mode("" if mode == "off" else mode)
