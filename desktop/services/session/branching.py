"""Whether a reply can be continued from one of its tokens, as a new version."""

from __future__ import annotations

from desktop.services.engine.token_cache import model_key
from desktop.store.conversations.token_trace import TokenTrace
from engine.core import ModelInfo
from engine.words import N_, _, translate

__all__ = ["branch_trouble"]

_NOT_NOW = {
    "no_model": N_("To continue from here, open a model first."),
    "loading": N_("To continue from here, wait until the model is loaded."),
}


def branch_trouble(model: ModelInfo | None, state: str, trace: TokenTrace) -> tuple[str, frozenset[int]]:
    """Why a reply with this trace cannot be continued from another token now ("" if it can), and the ids that
    end a reply. `state` is that of the session.
    """
    if model is None or state in _NOT_NOW:
        return translate(_NOT_NOW.get(state, _NOT_NOW["no_model"])), frozenset()
    stops = frozenset(model.stop_token_ids)
    if lacks := model.why_not("continue"):
        return lacks, stops
    if state != "idle":
        return _("To continue from here, wait for the reply being written, or stop it."), stops
    if not trace.model:
        return _("Several models wrote this reply, so it cannot be continued from the middle."), stops
    if trace.model != model_key(model):
        writer = trace.model.split(" · ", 1)[0]
        name = f"“{writer}”" if writer != model.name else _("another “{writer}”", writer=writer)
        return _("This reply was written by {name}. Load that model to continue from here.", name=name), stops
    return "", stops
