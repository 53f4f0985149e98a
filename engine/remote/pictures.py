"""Pictures in requests, as parts of a message's content, and in what servers say of their models.

Sources: https://platform.openai.com/docs/api-reference/chat/create (`image_url` parts);
https://openrouter.ai/docs/api-reference/list-available-models (`architecture.input_modalities`);
https://lmstudio.ai/docs/developer/rest/endpoints (`type`).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from engine.core import Message

YES, NO = "yes", "no"


def data_url(media_type: str, data: bytes) -> str:
    """A file as an address that holds it."""
    return f"data:{media_type};base64,{base64.b64encode(data).decode('ascii')}"


def content_json(message: Message) -> str | list[dict[str, Any]]:
    """The content of a message: its text or, where it has pictures whose bytes are known, parts in which each
    takes the place of its words.
    """
    parts: list[dict[str, Any]] = []
    rest = message.content
    for picture in message.pictures:
        before, words, after = rest.partition(picture.words)
        if not (picture.data and words):
            continue
        if before.strip():
            parts.append({"type": "text", "text": before.strip("\n")})
        address = data_url(picture.media_type, picture.data)
        parts.append({"type": "image_url", "image_url": {"url": address}})
        rest = after.lstrip("\n")
    if not parts:
        return message.content
    return [*parts, {"type": "text", "text": rest}] if rest.strip() else parts


def takes_pictures(found: object) -> bool | None:
    """What an entry of a list of models says: whether the model takes pictures; None for nothing."""
    if not isinstance(found, Mapping):
        return None
    within = found.get("architecture")
    for place in (found, within if isinstance(within, Mapping) else {}):
        for name in ("input_modalities", "modalities"):
            listed = place.get(name)
            listed = listed.get("input") if isinstance(listed, Mapping) else listed
            if isinstance(listed, list):
                return "image" in listed or "vision" in listed
        if isinstance(place.get("modality"), str):
            return "image" in place["modality"].partition("->")[0]
    if found.get("type") in ("vlm", "llm"):
        return bool(found["type"] == "vlm")
    able = found.get("capabilities")
    if isinstance(able, Mapping):
        return able["vision"] if isinstance(able.get("vision"), bool) else None
    if isinstance(able, list) and {"vision", "multimodal", "image"} & {str(each) for each in able}:
        return True
    return None  # such a list is rarely complete
