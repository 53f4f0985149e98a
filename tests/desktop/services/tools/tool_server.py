"""A server of tools for tests: `python tool_server.py KIND [MORE]`; KIND is one of the functions below, or
"http" or "sse" with a port.
"""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import AssistantMessage, Prompt, UserMessage
from mcp.server.mcpserver.resources import TextResource
from mcp.shared.exceptions import MCPError

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A PNG picture of one pixel, in Base64."""


def usual() -> MCPServer:
    """Tools whose results are of every kind."""
    server = MCPServer("usual")

    @server.tool(title="Add numbers", annotations=types.ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool(name="name.with dots")
    def dotted() -> str:
        return "dotted"

    @server.tool(structured_output=False)
    def environment(name: str) -> str:
        return os.environ.get(name, "not set")

    @server.tool(structured_output=False)
    def header(ctx: Context, name: str) -> str:
        return str((ctx.headers or {}).get(name, "not sent"))

    @server.tool(structured_output=False)
    async def asks(ctx: Context) -> str:
        """Ask the client for what it does not have."""
        try:
            await ctx.session.list_roots()
        except MCPError as error:
            return f"no roots: {error}"
        return "roots"

    @server.tool(structured_output=False)
    def breaks() -> str:
        raise ToolError("the disk is full")

    @server.tool(structured_output=False)
    def much() -> str:
        return "x" * 150_000

    @server.tool(structured_output=False)
    def mixed() -> list[Any]:
        return [
            types.TextContent(text="first", type="text"),
            types.ImageContent(data="AAAA", mime_type="image/png", type="image"),
            types.AudioContent(data="AAAA", mime_type="audio/wav", type="audio"),
            types.EmbeddedResource(
                type="resource", resource=types.TextResourceContents(uri="file:///a.txt", text="inside")
            ),
            types.EmbeddedResource(
                type="resource",
                resource=types.BlobResourceContents(uri="file:///a.bin", blob="AAAA", mime_type="a/b"),
            ),
            types.ResourceLink(type="resource_link", name="page", uri="http://here/page"),
        ]

    @server.tool(structured_output=False)
    async def slow(place: str) -> str:
        """Write down that it began, and that it was cancelled."""
        Path(place).write_text("began")
        try:
            await anyio.sleep(60)
        except BaseException:
            Path(place).write_text("cancelled")
            raise
        return "late"

    @server.tool(structured_output=False)
    async def steps(ctx: Context, count: int) -> str:
        """Say every 0.3 s how far it is, and log at the end what it did."""
        for number in range(count):
            await ctx.report_progress(number, count)
            await anyio.sleep(0.3)
        await ctx.warning({"Schritte für": count})
        await ctx.info("done")
        return "finished"

    @server.tool(structured_output=False)
    async def grow(ctx: Context) -> str:
        """Have one more tool from now on."""
        server.add_tool(lambda: "more", name="more", structured_output=False)
        await ctx.session.send_tool_list_changed()
        return "grown"

    @server.tool(structured_output=False)
    async def offer(ctx: Context) -> str:
        """Have one more prompt and one more resource from now on."""
        server.add_prompt(Prompt.from_function(lambda: "later", name="later"))
        server.add_resource(TextResource(uri="memo://later", name="later", text="later"))
        await ctx.session.send_prompt_list_changed()
        await ctx.session.send_resource_list_changed()
        return "offered"

    _add_offers(server)

    @server.tool(structured_output=False)
    def dies() -> str:
        print("I am out of memory \xff", file=sys.stderr, flush=True)
        sys.stderr.buffer.write(b"not UTF-8: \xff\xfe\n")
        sys.stderr.flush()
        os._exit(3)

    return server


def _add_offers(server: MCPServer) -> None:
    """Prompts and resources of every kind."""

    @server.prompt(title="Review a text")
    def review(text: str, tone: str = "kind") -> str:
        """Ask for a review."""
        return f"Review in a {tone} tone:\n{text}"

    @server.prompt()
    def dialogue() -> list[Any]:
        return [UserMessage("Guess a number."), AssistantMessage("Seven?"), UserMessage("Higher.")]

    @server.prompt()
    def picture() -> list[Any]:
        return [UserMessage(types.ImageContent(data="AAAA", mime_type="image/png", type="image"))]

    @server.resource("memo://notes/today", title="Notes of today", mime_type="text/markdown")
    def notes() -> str:
        """What was noted."""
        return "# Milk"

    @server.resource("file:///dot.png", mime_type="image/png")
    def dot() -> bytes:
        return base64.b64decode(DOT)

    @server.resource("memo://empty")
    def empty() -> str:
        return ""

    @server.resource("memo://huge")
    def huge() -> str:
        return "x" * (9 << 20)


def pages() -> Server[Any]:
    """300 tools, 100 on a page; the cursor of the last page is that of the first again."""

    async def list_tools(ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        start = int((params and params.cursor) or 0)
        tools = [types.Tool(name=f"tool {start + n}", input_schema={"type": "object"}) for n in range(100)]
        return types.ListToolsResult(tools=tools, next_cursor=str((start + 100) % 300))

    return Server("pages", on_list_tools=list_tools)


def rubbish() -> MCPServer:
    """Writes what is no message to its standard output."""
    print("Welcome! {not json}", flush=True)
    sys.stdout.buffer.write(b"\xff\xfe\n")
    sys.stdout.flush()
    return usual()


def crash() -> MCPServer:
    print("no such database", file=sys.stderr, flush=True)
    sys.exit(1)


def hang() -> MCPServer:
    time.sleep(600)
    raise AssertionError


def stubborn() -> MCPServer:
    """Ignores signals and the end of its input, and so does its child."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(
        [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    Path(sys.argv[2]).write_text(f"{os.getpid()} {child.pid}")
    anyio.run(usual().run_stdio_async)
    time.sleep(600)
    raise AssertionError


def without_stream(app: Any) -> Any:
    """`app` for servers that send nothing of their own: GET is answered by 405, as the protocol allows."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("method") != "GET":
            await app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 405, "headers": []})
        await send({"type": "http.response.body"})

    return answer


def main() -> None:
    kind = sys.argv[1]
    if kind == "http":
        usual().run("streamable-http", port=int(sys.argv[2]))
    if kind == "http-no-stream":
        import uvicorn

        app = usual().streamable_http_app()
        uvicorn.run(without_stream(app), port=int(sys.argv[2]))
    if kind == "sse":
        usual().run("sse", port=int(sys.argv[2]))
    server = {each.__name__: each for each in (usual, pages, rubbish, crash, hang, stubborn)}[kind]()
    if isinstance(server, MCPServer):
        server.run("stdio")
    else:
        from mcp.server.stdio import stdio_server

        async def serve() -> None:
            async with stdio_server() as (read, write):
                await server.run(read, write, server.create_initialization_options())

        anyio.run(serve)


if __name__ == "__main__":
    main()
