"""Connects the token inspector with the session: the colours of tokens, and continuing from another token."""

from __future__ import annotations

import dataclasses

from PySide6.QtCore import QObject

from desktop.services.engine.token_cache import model_key
from desktop.services.session.chat_session import ChatSession
from desktop.settings import Appearance
from desktop.store.conversations.token_trace import TokenTrace
from desktop.views.chat.token_legend import TokenLegend
from desktop.views.transcript import TranscriptView
from desktop.views.transcript.tokens.colours import PROBABILITY
from engine.settings import Settings

__all__ = ["TokenController"]

_NOT_NOW = {
    "no_model": "To continue from here, open a model first.",
    "loading": "To continue from here, wait until the model is loaded.",
}


class TokenController(QObject):
    """Keeps `transcript` and `legend` in step with the setting "Token colours", and starts new versions."""

    def __init__(
        self, session: ChatSession, transcript: TranscriptView, legend: TokenLegend, parent: QObject
    ) -> None:
        super().__init__(parent)
        self._session, self._legend, self._inspection = session, legend, transcript.inspection
        self._last = PROBABILITY
        self._inspection.why_not = self.why_not
        self._inspection.branch.connect(session.branch)
        legend.chosen.connect(self.choose)
        session.settings_changed.connect(self._settings_changed)
        session.state_changed.connect(self._inspection.refresh)
        session.model_changed.connect(self._inspection.refresh)
        self._settings_changed(Appearance)

    def toggle(self) -> None:
        """Switch the colours of tokens on, as last time, or off."""
        self.choose("off" if self._session.settings(Appearance).token_colours != "off" else self._last)

    def choose(self, mode: str) -> None:
        """Colour tokens by "probability" or "entropy", or show replies as usual ("off")."""
        self._session.set_settings(
            dataclasses.replace(self._session.settings(Appearance), token_colours=mode)
        )

    def why_not(self, message: int, trace: TokenTrace) -> tuple[str, frozenset[int]]:
        """Why no reply can be continued from another token now (empty: it can), and the ids that
        end a reply.
        """
        model, state = self._session.model, self._session.state
        if model is None or state in _NOT_NOW:
            return _NOT_NOW.get(state, _NOT_NOW["no_model"]), frozenset()
        stops = frozenset(model.stop_token_ids)
        if state != "idle":
            return "A reply is being written: wait for it, or stop it, to continue from here.", stops
        if not trace.model:
            return "Several models wrote this reply, so it cannot be continued from its middle.", stops
        if trace.model != model_key(model):
            writer = trace.model.split(" · ", 1)[0]
            name = f"“{writer}”" if writer != model.name else f"another “{writer}”"
            return f"This reply was written by {name}: load that model to continue from here.", stops
        return "", stops

    def _settings_changed(self, cls: type[Settings]) -> None:
        if cls is Appearance:
            mode = self._session.settings(Appearance).token_colours
            self._last = mode if mode != "off" else self._last
            self._legend.show_mode(mode)
            self._inspection.set_mode("" if mode == "off" else mode)
