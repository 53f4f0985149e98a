"""What a tool server offers, page by page. Imports the library `mcp`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import mcp_types as types
from mcp.client.session import ClientSession

from desktop.services.tools.servers import OfferedPrompt, OfferedResource, OfferedTool, PromptArgument

__all__ = ["MOST_OFFERED", "list_prompts", "list_resources", "list_tools"]

MOST_OFFERED = 1000
"""Tools, prompts or resources of one server."""
_Offer = TypeVar("_Offer")


async def list_tools(session: ClientSession, server: str) -> tuple[OfferedTool, ...]:
    """All tools; none where the server has no tools at all. Raises `MCPError`."""
    capabilities = session.server_capabilities
    if capabilities is None or capabilities.tools is None:
        return ()
    return await _pages(
        session.list_tools, lambda page: {tool.name: _tool(server, tool) for tool in page.tools}
    )


async def list_prompts(session: ClientSession, server: str) -> tuple[OfferedPrompt, ...]:
    """All prompts; none where the server has no prompts at all. Raises `MCPError`."""
    capabilities = session.server_capabilities
    if capabilities is None or capabilities.prompts is None:
        return ()
    return await _pages(
        session.list_prompts, lambda page: {each.name: _prompt(server, each) for each in page.prompts}
    )


async def list_resources(session: ClientSession, server: str) -> tuple[OfferedResource, ...]:
    """All resources; none where the server has no resources at all. Raises `MCPError`."""
    capabilities = session.server_capabilities
    if capabilities is None or capabilities.resources is None:
        return ()
    return await _pages(
        session.list_resources, lambda page: {each.uri: _resource(server, each) for each in page.resources}
    )


async def _pages(
    ask: Callable[..., Awaitable[Any]], named: Callable[[Any], dict[str, _Offer]]
) -> tuple[_Offer, ...]:
    found: dict[str, _Offer] = {}
    seen: set[str] = set()
    cursor: str | None = None
    while len(found) < MOST_OFFERED:
        page = await ask(params=types.PaginatedRequestParams(cursor=cursor))
        found.update(named(page))
        cursor = page.next_cursor
        if not cursor or cursor in seen:  # A server may give the same page for ever.
            break
        seen.add(cursor)
    return tuple(found.values())[:MOST_OFFERED]


def _tool(server: str, tool: types.Tool) -> OfferedTool:
    """A tool as it is offered; its title is that of people, else its name."""
    notes = tool.annotations
    return OfferedTool(
        server,
        tool.name,
        tool.title or (notes.title if notes else None) or tool.name,
        tool.description or "",
        json.dumps(tool.input_schema, ensure_ascii=False),
        bool(notes and notes.read_only_hint),
    )


def _prompt(server: str, prompt: types.Prompt) -> OfferedPrompt:
    return OfferedPrompt(
        server,
        prompt.name,
        prompt.title or prompt.name,
        prompt.description or "",
        tuple(
            PromptArgument(each.name, each.title or each.name, each.description or "", bool(each.required))
            for each in prompt.arguments or ()
        ),
    )


def _resource(server: str, resource: types.Resource) -> OfferedResource:
    return OfferedResource(server, resource.uri, resource.title or resource.name, resource.description or "")
