"""A prompt or resource of a tool server, fetched for the user. Imports the library `mcp`."""

from __future__ import annotations

import base64
import binascii
import mimetypes
from collections.abc import Mapping
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

import mcp_types as types
from mcp.client.session import ClientSession

from desktop.services.tools.events import Part
from desktop.services.tools.unusable import UnusableConfig
from desktop.store.attachments.files import MOST_BYTES
from engine.words import _

__all__ = ["fetch_prompt", "fetch_resource"]

_KNOWN_ENDINGS = {"text/plain": ".txt", "text/markdown": ".md", "application/json": ".json"}
"""Those of `mimetypes` differ between systems."""


async def fetch_prompt(session: ClientSession, name: str, arguments: Mapping[str, str]) -> tuple[Part, ...]:
    """The text of a prompt, one part. Messages are told apart where the model is made to speak as well.

    Raises `MCPError`, and `UnusableConfig` if the prompt has no text.
    """
    result = await session.get_prompt(name, dict(arguments))
    is_dialogue = any(message.role == "assistant" for message in result.messages)
    texts = []
    for message in result.messages:
        text = _text_of(message.content)
        if text and is_dialogue:
            who = _("Assistant") if message.role == "assistant" else _("User")
            text = f"{who}:\n{text}"
        texts.append(text)
    text = "\n\n".join(filter(None, texts))
    if not text:
        raise UnusableConfig(_("This prompt has no text, so there is nothing to insert."))
    return (Part(name, text.encode("utf-8", "replace")),)


def _text_of(block: object) -> str:
    if isinstance(block, types.TextContent):
        return block.text
    if isinstance(block, types.EmbeddedResource) and isinstance(block.resource, types.TextResourceContents):
        return block.resource.text
    return ""


async def fetch_resource(session: ClientSession, uri: str) -> tuple[Part, ...]:
    """The parts of a resource, each like a file.

    Raises `MCPError`, and `UnusableConfig` if there is nothing, or more than may be attached.
    """
    result = await session.read_resource(uri)
    parts = tuple(_part(contents) for contents in result.contents)
    size = sum(len(part.data) for part in parts)
    if not size:
        raise UnusableConfig(_("This resource is empty, so there is nothing to attach."))
    if size > MOST_BYTES:
        raise UnusableConfig(
            _(
                "This resource has {size:,.1f} MB; at most {most:,.0f} MB can be attached.",
                size=size / (1 << 20),
                most=MOST_BYTES / (1 << 20),
            )
        )
    return parts


def _part(contents: types.TextResourceContents | types.BlobResourceContents) -> Part:
    if isinstance(contents, types.TextResourceContents):
        return Part(_name(contents, ".txt"), contents.text.encode("utf-8", "replace"))
    try:
        data = base64.b64decode(contents.blob)
    except (binascii.Error, ValueError) as error:
        raise UnusableConfig(
            _("The tool server sent a file that cannot be decoded ({problem}).", problem=error)
        ) from error
    return Part(_name(contents, ""), data)


def _name(contents: types.ResourceContents, ending: str) -> str:
    """The last part of the address, with an ending for its kind where it has none."""
    try:
        address = urlsplit(contents.uri)
    except ValueError:
        address = urlsplit("")
    name = PurePosixPath(unquote(address.path)).name or address.netloc or "resource"
    if PurePosixPath(name).suffix:
        return name
    kind = (contents.mime_type or "").partition(";")[0].strip().lower()
    return name + (_KNOWN_ENDINGS.get(kind) or mimetypes.guess_extension(kind) or ending)
