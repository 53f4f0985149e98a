"""Fixtures of the hub's tests: a local hub, and an environment without this machine's settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.hub import set_offline
from engine.hub.client import token as token_module
from engine.hub.download import transfer as transfer_module
from engine.platform import key_store
from tests.engine.hub.hub_server import Hub, serving_hub

VARIABLES = (
    "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE",
    "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_ENDPOINT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY",
    "NO_PROXY",
)  # fmt: skip


@pytest.fixture
def hub_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """No token, cache or proxy of this machine, no keyring, and retries without waiting."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    monkeypatch.setattr(key_store, "usable_keyring", lambda: None)
    monkeypatch.setattr(token_module._store, "session", "")
    monkeypatch.setattr(transfer_module, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(transfer_module, "CHUNK_BYTES", 16 << 10)
    yield tmp_path / "hf-home"
    set_offline(False)


@pytest.fixture
def hub(hub_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A running hub that the program uses."""
    with serving_hub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running
