"""Why a reply ended, in a few words for people."""

from __future__ import annotations

from engine.words import N_, translate

__all__ = ["reason_words"]

_REASONS = {
    "end_filter": N_("constraint satisfied"),
    "max_tokens": N_("stopped at the token limit"),
    "time_limit": N_("stopped at the time limit"),
    "context_full": N_("stopped because the context is full"),
    "cancelled": N_("stopped by you"),
}
_TRIGGERED = {
    "stop_token": (N_("ended by the model"), N_("stopped at {trigger}")),
    "stop_string": (N_("stopped at a stop string"), N_("stopped at “{trigger}”")),
    "stop_regex": (
        N_("stopped at the stop expression"),
        N_("stopped at “{trigger}”, which the stop expression matches"),
    ),
    "loop": (
        N_("stopped because the text was repeating itself"),
        N_("stopped because it repeated “{trigger}”"),
    ),
}
"""Words for reasons with a trigger: without it, and with it."""


def reason_words(reason: str, trigger: str = "") -> str:
    """The words for `Done.reason` and `Done.trigger`; empty for a reason that is not known."""
    if reason in _TRIGGERED:
        without, with_trigger = _TRIGGERED[reason]
        return translate(with_trigger, trigger=trigger) if trigger else translate(without)
    return translate(_REASONS.get(reason, ""))
