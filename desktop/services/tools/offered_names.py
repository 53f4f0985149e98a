"""Names by which models call tools: of ASCII letters, digits, "_" and "-", at most 64, each once.

This is what OpenAI-compatible servers and Anthropic's accept; MCP allows more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from desktop.services.tools.servers import OfferedTool

__all__ = ["names_for"]

MOST = 64


def names_for(tools: Sequence[OfferedTool]) -> tuple[str, ...]:
    """A name for each tool: its own where that is enough, else with its server's before it, else numbered.

    The same tools in the same order have the same names.
    """
    own = [_valid(each.tool) for each in tools]
    count = Counter(own)
    taken: set[str] = {name for name in own if count[name] == 1}
    found: list[str] = []
    for each, name in zip(tools, own, strict=True):
        if count[name] > 1:
            name = base = _valid(f"{each.server}_{each.tool}")
            number = 1
            while name in taken:
                number += 1
                name = f"{base[: MOST - len(f'_{number}')]}_{number}"
            taken.add(name)
        found.append(name)
    return tuple(found)


def _valid(name: str) -> str:
    """`name` with "_" for what is not allowed."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:MOST] or "tool"
