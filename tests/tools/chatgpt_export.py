"""Writes conversations as ChatGPT exported them in 2026, for measurements: with the same sizes, fields and
word frequencies.

A conversation has 40 KB on average: about eight turns with a question of 250 characters and a reply of 1,800,
and 1 KB of fields around each. One reply in five holds code, one in ten a web search with its results, one
question in seven a picture.
"""

from __future__ import annotations

import itertools
import json
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["write_export"]

_LETTERS = "etaoinshrdlucmfwypvbgk"
_WORDS = 60_000
_ENDS = (".", ".", ",", "?", " –", ":\n\n- ", "’s.", ".\n\n")


def write_export(path: Path, megabytes: int) -> int:
    """Write `conversations.json` of this many megabytes; returns the number of conversations."""
    draw, count = _Draw(), 0
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        while file.tell() < megabytes * 1_000_000:
            file.write(
                (", " if count else "") + json.dumps(_conversation(draw, 1_600_000_000.0 + 1000 * count))
            )
            count += 1
        file.write("]")
    return count


class _Draw(random.Random):
    """Generates text whose words have natural frequencies: the n-th is proportional to 1 / n."""

    def __init__(self) -> None:
        super().__init__(3)
        letters = range(len(_LETTERS), 0, -1)
        self._words = ["".join(self.choices(_LETTERS, letters, k=self.randint(1, 11))) for _ in range(_WORDS)]
        self._weights = list(itertools.accumulate(1 / (place + 3) for place in range(_WORDS)))

    def text(self, length: float) -> str:
        """Text of about this many characters."""
        parts: list[str] = []
        while length > 0:
            parts.append(
                " ".join(
                    self.choices(self._words, cum_weights=self._weights, k=self.randint(5, 20))
                ).capitalize()
            )
            parts[-1] += self.choice(_ENDS)
            length -= len(parts[-1]) + 1
        return " ".join(parts)

    def key(self) -> str:
        return str(uuid.UUID(int=self.getrandbits(128), version=4))


def _conversation(draw: _Draw, time: float) -> dict[str, Any]:
    root, key = draw.key(), draw.key()
    nodes: dict[str, dict[str, Any]] = {root: {"id": root, "message": None, "parent": None, "children": []}}
    last, now = root, time
    system = _message(
        draw,
        "system",
        {"content_type": "text", "parts": [""]},
        {"is_visually_hidden_from_conversation": True},
    )
    turns = (message for _ in range(max(1, int(draw.expovariate(1 / 8)))) for message in _turn(draw))
    for message in itertools.chain([system], turns):
        number, now = message["id"], now + 30 * draw.random()
        nodes[number] = {
            "id": number,
            "message": message | {"create_time": now},
            "parent": last,
            "children": [],
        }
        nodes[last]["children"].append(number)
        last = number
    return {
        "title": draw.text(25)[:40], "create_time": time, "update_time": now, "mapping": nodes,
        "moderation_results": [], "current_node": last, "plugin_ids": None, "conversation_id": key,
        "conversation_template_id": None, "gizmo_id": None, "gizmo_type": None, "is_archived": False,
        "is_starred": None, "safe_urls": [], "blocked_urls": [], "default_model_slug": "auto",
        "conversation_origin": None, "voice": None, "async_status": None, "disabled_tool_ids": [],
        "is_do_not_remember": None, "memory_scope": "global_enabled", "id": key,
    }  # fmt: skip


def _turn(draw: _Draw) -> Iterator[dict[str, Any]]:
    """A question, sometimes a search, and the reply."""
    turn: dict[str, Any] = {
        "request_id": draw.key(),
        "turn_exchange_id": draw.key(),
        "timestamp_": "absolute",
        "message_type": None,
    }
    asked = turn | {"serialization_metadata": {"custom_symbol_offsets": []}, "message_source": None}
    question = draw.text(draw.expovariate(1 / 250) + 20)
    if draw.random() < 0.15:
        file = f"file-{draw.getrandbits(96):024x}"
        size = {"width": 1024, "height": 1024}
        picture = {
            "content_type": "image_asset_pointer",
            "asset_pointer": f"file-service://{file}",
            "size_bytes": 244_000,
            "fovea": None,
        }
        about = {"id": file, "size": 244_000, "name": "photo.png", "mime_type": "image/png"}
        content = {
            "content_type": "multimodal_text",
            "parts": [picture | size | {"metadata": {"sanitized": True}}, question],
        }
        yield _message(draw, "user", content, asked | {"attachments": [about | size]})
    else:
        yield _message(draw, "user", {"content_type": "text", "parts": [question]}, asked)
    replied = turn | {
        "finish_details": {"type": "stop", "stop_tokens": [200002]}, "is_complete": True, "citations": [],
        "content_references": [], "model_slug": "gpt-4o", "default_model_slug": "gpt-4o",
        "parent_id": draw.key(),
    }  # fmt: skip
    if draw.random() < 0.1:
        call = {
            "content_type": "code",
            "language": "unknown",
            "response_format_name": None,
            "text": f'search("{draw.text(60)}")',
        }
        yield _message(draw, "assistant", call, replied, recipient="web")
        entry = {
            "type": "search_result",
            "url": f"https://example.org/{draw.key()}",
            "title": draw.text(60),
            "snippet": draw.text(150),
        }
        found = {
            "search_result_groups": [
                {"type": "search_result_group", "domain": "example.org", "entries": [entry] * 6}
            ]
        }
        page = {"content_type": "tether_quote", "url": "https://example.org", "text": draw.text(800)}
        yield _message(draw, "tool", page, {"command": "search", "status": "finished"} | found, name="web")
    reply = draw.text(draw.expovariate(1 / 1800) + 50)
    if draw.random() < 0.2:
        lines = [
            f"    value_{line} = call_{draw.randint(0, 99)}({draw.randint(0, 999)})"
            for line in range(draw.randint(5, 60))
        ]
        reply += "\n\n```python\n" + "\n".join(lines) + "\n```\n"
    yield _message(draw, "assistant", {"content_type": "text", "parts": [reply]}, replied)


def _message(
    draw: _Draw,
    role: str,
    content: dict[str, Any],
    metadata: dict[str, Any],
    recipient: str = "all",
    name: str | None = None,
) -> dict[str, Any]:
    return {
        "id": draw.key(), "author": {"role": role, "name": name, "metadata": {}}, "create_time": None,
        "update_time": None, "content": content, "status": "finished_successfully",
        "end_turn": True if role == "assistant" else None, "weight": 1.0, "metadata": metadata,
        "recipient": recipient, "channel": "final" if role == "assistant" else None,
    }  # fmt: skip
