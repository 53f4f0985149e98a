"""What can be done with a call of a tool."""

from __future__ import annotations

from engine.words import N_

__all__ = ["CALL_ACTIONS"]

CALL_ACTIONS = {
    "waiting": (
        ("allow_call", N_("Allow")), ("always_allow", N_("Always allow")), ("refuse_call", N_("Don't allow")),
    ),
    "running": (("stop_calls", N_("Stop")),),
    "stopped": (("regenerate", N_("Go on without it")),),
}  # fmt: skip
"""For each state of a call that has buttons: actions and their words."""
