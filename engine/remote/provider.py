"""A server that runs models: its name, its address, and the settings for it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, NamedTuple, Self
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from engine.errors import BadSetting
from engine.lazy_dataclass import dataclass
from engine.printable import one_line
from engine.words import _

SCHEME = "remote:"
"""The beginning of what stands for the path of a remote model."""
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_MOST_CONTEXT = 1 << 24
_LONGEST_NAME = 300
MOST_WAIT = 24 * 3600
"""The most that a server can be waited for, in seconds, where there is a limit."""


class Preset(NamedTuple):
    """The usual address of a kind of server."""

    name: str
    base_url: str
    advice: str = ""


PRESETS: tuple[Preset, ...] = (
    Preset("vLLM", "http://127.0.0.1:8000/v1", "vllm serve MODEL"),
    Preset("SGLang", "http://127.0.0.1:30000/v1", "python -m sglang.launch_server --model-path MODEL"),
    Preset("llama.cpp", "http://127.0.0.1:8080/v1", "llama-server -m MODEL"),
    Preset("Ollama", "http://127.0.0.1:11434/v1", "ollama serve"),
    Preset("LM Studio", "http://127.0.0.1:1234/v1", "lms server start"),
    Preset("OpenAI-compatible", "https://", "the base URL in the documentation of the service"),
)
"""In the order of the list in the window; the last one has no address of its own."""


@dataclass(frozen=True)
class Provider:
    """A server. `id` never changes and names its key in the keyring; the key itself is not here.

    Attributes:
        base_url: what paths such as `/chat/completions` are appended to; normalised.
        unencrypted: the user has agreed that text goes to this host over `http://`.
        context_length: in tokens, where the server does not say; 0 for unknown.
        counts_tokens: ask the server for the number of tokens of texts that are not sent yet. Off, tokens are
            estimated and nothing leaves this computer before a message is sent.
        headers: sent with each request, beside the key.
        model: the one to offer first; "" for the first that the server lists.
        longest_wait: how long, in seconds, an answer may not begin or go on; 0 for as long as it takes.
    """

    id: str
    name: str
    base_url: str
    unencrypted: bool = False
    context_length: int = 0
    counts_tokens: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    model: str = ""
    longest_wait: int = 0

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise BadSetting(
                _(
                    "The id of a server is {id!r}, but it must consist of lowercase letters, "
                    "digits and hyphens.",
                    id=self.id,
                )
            )
        name = one_line(self.name).strip()
        if not name or len(name) > 60:
            raise BadSetting(_("Give the server a name of 1 to 60 characters."))
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "base_url", normalised(self.base_url))
        if not 0 <= self.context_length <= _MOST_CONTEXT:
            raise BadSetting(
                _(
                    "The context length is {context_length}, but it must be 0 to {most_context:,} tokens.",
                    context_length=self.context_length,
                    most_context=_MOST_CONTEXT,
                )
            )
        object.__setattr__(self, "model", one_line(self.model).strip())
        if len(self.model) > _LONGEST_NAME:
            raise BadSetting(
                _("The name of a model has at most {longest_name} characters.", longest_name=_LONGEST_NAME)
            )
        if not 0 <= self.longest_wait <= MOST_WAIT:
            raise BadSetting(
                _(
                    "The longest wait is {longest_wait} s, but it must be 0 to {most_wait:,} s.",
                    longest_wait=self.longest_wait,
                    most_wait=MOST_WAIT,
                )
            )
        for key, value in self.headers:
            if not re.fullmatch(r"[A-Za-z0-9-]+", key) or not (value.isascii() and value.isprintable()):
                raise BadSetting(
                    _("{key!r} cannot be a header; use a name, a colon and plain text.", key=key)
                )

    @property
    def host(self) -> str:
        """The host to show, with the port unless it is the usual one: "api.example.org"."""
        return urlsplit(self.base_url).netloc

    @property
    def encrypted(self) -> bool:
        """Whether text goes to the server over TLS."""
        return self.base_url.startswith("https://")

    @property
    def on_this_computer(self) -> bool:
        """Whether the address is a loopback address."""
        return is_loopback(urlsplit(self.base_url).hostname or "")

    def check_encryption(self) -> None:
        """Raises `BadSetting` if text would go over a network unencrypted without the user's consent."""
        if not (self.encrypted or self.on_this_computer or self.unencrypted):
            raise BadSetting(
                _(
                    "The address {base_url} is not encrypted: anyone between you and {host} could "
                    "read your messages, the replies and the key. Use https://, or allow it in the "
                    "settings of {name}.",
                    base_url=self.base_url,
                    host=self.host,
                    name=self.name,
                )
            )

    def to_json(self) -> dict[str, Any]:
        """The fields, for a settings file; the key is not among them."""
        return {**asdict(self), "headers": [list(pair) for pair in self.headers]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The provider that `to_json` wrote; unknown fields are left out. Raises `BadSetting`."""
        kinds = {"id": str, "name": str, "base_url": str, "unencrypted": bool, "context_length": int,
                 "counts_tokens": bool, "model": str, "longest_wait": int}  # fmt: skip
        found: dict[str, Any] = {}
        for field in fields(cls):
            value = values.get(field.name)
            if field.name in kinds and type(value) is kinds[field.name]:
                found[field.name] = value
        pairs = values.get("headers")
        if isinstance(pairs, list) and all(_is_pair(pair) for pair in pairs):
            found["headers"] = tuple((key, value) for key, value in pairs)
        if missing := {"id", "name", "base_url"} - found.keys():
            raise BadSetting(_("A saved server lacks its {missing}.", missing=", ".join(sorted(missing))))
        return cls(**found)


def _is_pair(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair)


def normalised(address: str) -> str:
    """A base URL as it is kept: `localhost:8000` becomes `http://localhost:8000/v1`.

    An address without a path gets `/v1`; one of an endpoint (`.../v1/chat/completions`) is shortened. Raises
    `BadSetting` for what cannot be an address, and for one that holds a password or a query.
    """
    text = address.strip()
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        begin = re.match(r"\[[^\]]*\]|[^:/]*", text)
        text = f"{'http' if begin is not None and is_loopback(begin[0]) else 'https'}://{text}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise BadSetting(
            _("{address} is not an address; try https://HOST/v1.", address=_short(address))
        ) from None
    if parts.scheme.lower() not in ("http", "https"):
        raise BadSetting(
            _(
                "The address {address} begins with {scheme}://; it must be https or http.",
                address=_short(address),
                scheme=parts.scheme,
            )
        )
    if not parts.hostname or not re.fullmatch(r"[^\s/\\%<>\"'`{}|^]+", parts.hostname):
        raise BadSetting(_("{address} names no host; try https://HOST/v1.", address=_short(address)))
    if parts.username is not None or parts.password is not None:
        raise BadSetting(_("Remove the password from the address: the key has its own field."))
    if parts.query or parts.fragment:
        raise BadSetting(_("Remove the part after ? or # from the address: keys do not belong there."))
    path = re.sub(r"/+", "/", parts.path).rstrip("/")
    path = re.sub(r"/(chat/completions|completions|models|responses|messages)$", "", path) or "/v1"
    host = parts.hostname.lower()
    host = f"[{host}]" if ":" in host else host
    usual = {"http": 80, "https": 443}[parts.scheme.lower()]
    netloc = host if port in (None, usual) else f"{host}:{port}"
    return urlunsplit((parts.scheme.lower(), netloc, path, "", ""))


def is_loopback(host: str) -> bool:
    """Whether a host's name or number means this computer."""
    host = host.strip("[]").lower().rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def model_address(provider_id: str, model: str) -> str:
    """What stands for the path of a remote model: one word without slashes."""
    return f"{SCHEME}{provider_id}:{quote(model, safe='')}"


def shown_name(model: str) -> str:
    """The name to show: some servers name a model by the path of its file."""
    return model.rsplit("/", 1)[-1] or model if model.startswith("/") else model


def split_address(path: str) -> tuple[str, str] | None:
    """The provider's id and the model of a `model_address`; None for the path of a file."""
    if not path.startswith(SCHEME):
        return None
    provider_id, colon, model = path.removeprefix(SCHEME).partition(":")
    return (provider_id, unquote(model)) if colon and _ID.fullmatch(provider_id) and model else None


def _short(address: str) -> str:
    """An address for a sentence, without a password."""
    shown = re.sub(r"//[^/@]*@", "//", one_line(address))
    return repr(shown if len(shown) <= 80 else shown[:79] + "…")
