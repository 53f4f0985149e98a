"""What can be done with a call of a tool."""

from __future__ import annotations

from collections.abc import Mapping

from desktop.items.chats.messages import MessageItem
from desktop.store.conversations.tool_calls import NOT_ALLOWED
from engine.words import N_

__all__ = ["ALL_CALL_ACTIONS", "call_actions"]

_ACTIONS = {
    "waiting": {
        "allow_call": N_("Allow"), "always_allow": N_("Always allow"), "refuse_call": N_("Don't allow"),
    },
    "running": {"stop_calls": N_("Stop")},
    "stopped": {"regenerate": N_("Go on without it")},
}  # fmt: skip
ALL_CALL_ACTIONS = tuple(name for actions in _ACTIONS.values() for name in actions)
"""The names of all actions."""


def call_actions(item: MessageItem) -> Mapping[str, str]:
    """Actions and their words. After a call that was not allowed, the model goes on by itself."""
    return {} if item.result == NOT_ALLOWED else _ACTIONS.get(item.state, {})
