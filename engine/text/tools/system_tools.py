"""Tools as a part of the system message, where some templates look for them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from engine.errors import BadTemplate
from engine.text.template.template import ChatTemplate

__all__ = ["SystemTools", "system_tools", "with_tools"]

SystemTools = Literal["", "list", "text"]
"""As what a template looks for tools under `tools` of the system message; "" if it does not."""


def with_tools(
    turn: Mapping[str, Any], tools: Sequence[Mapping[str, Any]], kind: SystemTools
) -> dict[str, Any]:
    """A system message with the tools, in OpenAI's form, under `tools`: as they are, or as the JSON text of
    the functions alone, which is what Phi-4-mini's template takes.
    """
    functions = [tool["function"] for tool in tools]
    return {**turn, "tools": [*tools] if kind == "list" else json.dumps(functions, ensure_ascii=False)}


def system_tools(template: ChatTemplate, tools: Sequence[Mapping[str, Any]], name: str) -> SystemTools:
    """Where a template shows `tools`, one of which has this name."""
    kinds: tuple[SystemTools, ...] = ("list", "text")
    for kind in kinds:
        turn = with_tools({"role": "system", "content": ""}, tools, kind)
        try:
            if name in template.trial([turn, {"role": "user", "content": ""}]):
                return kind
        except BadTemplate:
            continue
    return ""
