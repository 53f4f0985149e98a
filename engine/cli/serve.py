"""Command `serve`: answers other programs over HTTP, with the API of OpenAI, until it is interrupted."""

from __future__ import annotations

import argparse
import asyncio
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from engine.chat import open_chat
from engine.cli.command import Answer, Command, Console
from engine.cli.flags import add_model, add_settings, read_settings, text_or_file
from engine.core import Loading
from engine.errors import BadSetting, EngineError
from engine.hub.local.scan import model_title
from engine.settings import AdapterSettings, CacheSettings, LoadSettings
from engine.words import N_, _

if TYPE_CHECKING:
    from engine.chat import LocalChat
    from engine.server.host import EngineHost

DEFAULT_PORT = 8080


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_settings(parser, AdapterSettings)
    group = parser.add_argument_group(_("The server"))
    group.add_argument(
        "--host", default="localhost",
        help=_(
            "the address to listen on; localhost is 127.0.0.1 and ::1, 0.0.0.0 opens the server to the "
            "network; default: %(default)s"
        ),
    )  # fmt: skip
    group.add_argument(
        "--port", type=int, default=DEFAULT_PORT,
        help=_("the port; 0 uses any free one; default: %(default)s"),
    )  # fmt: skip
    token = group.add_mutually_exclusive_group()
    token.add_argument(
        "--token", metavar="TEXT|@FILE", type=text_or_file,
        help=_("the API key that clients must send; default: a new one, which is printed"),
    )  # fmt: skip
    token.add_argument("--no-token", action="store_true", help=_("accept requests without a token"))
    group.add_argument("--name", help=_("the name of the model for clients; default: the name of the file"))
    group.add_argument(
        "--allow-host", metavar="NAME", action="append", default=[],
        help=_("another host name of this machine to accept in requests"),
    )  # fmt: skip
    group.add_argument(
        "--allow-origin", metavar="ORIGIN", action="append", default=[],
        help=_("the origin of a web page that may use the server, such as https://example.org"),
    )  # fmt: skip


def _answer(options: argparse.Namespace, console: Console) -> Answer:
    from engine.server.model_thread import ModelThread
    from engine.server.options import ServerOptions, new_token
    from engine.server.serving import ApiServer

    token = "" if options.no_token else new_token() if options.token is None else options.token.strip()
    if not (token or options.no_token):
        raise BadSetting(
            _("The token is empty. Give one, or accept requests without a token with --no-token.")
        )
    served = ServerOptions(
        options.host, options.port, token, tuple(options.allow_host), tuple(options.allow_origin)
    )
    load, cache = read_settings(LoadSettings, options), read_settings(CacheSettings, options)
    adapters = read_settings(AdapterSettings, options)

    def opener(stop: threading.Event) -> Generator[Loading, None, LocalChat]:
        chat = yield from open_chat(options.model, load, cache, stop)
        try:
            yield from chat.adapters.make_usual(adapters.adapters, stop)
        except BaseException:
            chat.close()
            raise
        return chat

    name = options.name or model_title(Path(options.model).absolute())
    with _terminated_as_interrupted():
        host = ModelThread({name: opener})
        try:
            asyncio.run(_load(host, name, console))
            console.clear()
            server = ApiServer(host, served)
            try:
                _wait_for_interrupt(lambda: console.write(_served(name, server.url, token) + "\n"))
            finally:
                server.close()
        finally:
            host.close()
    return {}


def _served(name: str, url: str, token: str) -> str:
    if not token:
        return _("{name} is served at {url} with no token", name=name, url=url)
    return _("{name} is served at {url} with the token {token}", name=name, url=url, token=token)


async def _load(host: EngineHost, name: str, console: Console) -> None:
    """Load the model with progress on the console. Raises `EngineError`."""
    from engine.server.failure import ApiError
    from engine.server.http.channel import Channel

    channel = Channel()
    channel.hold(host.load(name, channel.outlet()))
    try:
        while found := await channel.take():
            for _name, event in found:
                if isinstance(event, Loading):
                    console.loading(event)
    except ApiError as error:
        raise EngineError(str(error)) from error
    finally:
        channel.cancel()


def _wait_for_interrupt(announce: Callable[[], None]) -> None:
    """Announce the server and wait; Ctrl+C may come as soon as the announcement is read."""
    never = threading.Event()
    try:
        announce()
        # Without a time, Ctrl+C would not end the waiting on Windows; and a signal that another thread takes,
        # as after SIGSTOP and SIGCONT, is seen only when this one wakes.
        while not never.wait(1):
            pass
    except KeyboardInterrupt:
        return


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """While this lasts, a request to terminate acts as Ctrl+C: the model's memory is released."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


SERVE = Command(
    "serve",
    N_("serve a model to other programs over HTTP"),
    _arguments,
    _answer,
    lambda answer: "",
    has_json=False,
)
