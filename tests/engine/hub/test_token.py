"""The token is kept in the keyring or for this run, never in a plain file; and the offline switch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import keyring
import keyring.backend
import keyring.errors
import pytest
from keyring.backends import chainer, fail, null

from engine.errors import DownloadError
from engine.hub import (
    delete_hub_token,
    fetch_starter,
    hub_token,
    is_offline,
    set_hub_token,
    set_offline,
    token_source,
)
from engine.platform import key_store

real_keyring = key_store.usable_keyring


class Memory(keyring.backend.KeyringBackend):
    """A keyring that works."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


class Locked(Memory):
    """A keyring that the user does not unlock."""

    def get_password(self, service: str, username: str) -> str | None:
        raise keyring.errors.KeyringLocked("Failed to unlock the collection!")

    def set_password(self, service: str, username: str, password: str) -> None:
        raise keyring.errors.PasswordSetError("Failed to unlock the collection!")


@pytest.fixture(autouse=True)
def system(hub_home: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    """A system with a working keyring."""
    memory = Memory()
    monkeypatch.setattr(key_store, "usable_keyring", real_keyring)
    monkeypatch.setattr(keyring, "get_keyring", lambda: memory)
    return memory


def use(monkeypatch: pytest.MonkeyPatch, backend: keyring.backend.KeyringBackend) -> None:
    monkeypatch.setattr(keyring, "get_keyring", lambda: backend)


def all_text(folder: Path) -> str:
    return "".join(path.read_text("utf-8", "replace") for path in folder.rglob("*") if path.is_file())


def test_the_keyring_keeps_it(system: Memory) -> None:
    assert (hub_token(), token_source()) == ("", "")
    assert set_hub_token(" hf_abc\n") == ""
    assert (hub_token(), token_source()) == ("hf_abc", "keyring")
    assert list(system.kept.values()) == ["hf_abc"]
    assert set_hub_token("hf_def") == ""
    assert hub_token() == "hf_def"
    assert set_hub_token("") == ""
    assert (hub_token(), system.kept) == ("", {})
    assert delete_hub_token() == ""


@pytest.mark.parametrize("kind", ["fail", "null", "plain", "chain", "broken"])
def test_without_a_keyring_it_is_kept_for_this_run(
    monkeypatch: pytest.MonkeyPatch, kind: str, tmp_path: Path
) -> None:
    plain = type("PlaintextKeyring", (Memory,), {"__module__": "keyrings.alt.file"})()
    chain = chainer.ChainerBackend()
    monkeypatch.setattr(chainer.ChainerBackend, "backends", [plain])
    if kind == "broken":

        def broken() -> None:
            raise ModuleNotFoundError("No module named 'gone'")

        monkeypatch.setattr(keyring, "get_keyring", broken)
    else:
        use(
            monkeypatch,
            {"fail": fail.Keyring(), "null": null.Keyring(), "plain": plain, "chain": chain}[kind],
        )
    sentence = set_hub_token("hf_secret")
    assert (
        sentence
        == "This system has no keyring that can be used, so the token is kept only until the program ends."
    )
    assert (hub_token(), token_source()) == ("hf_secret", "this run")
    assert plain.kept == {}
    for folder in (tmp_path, Path(os.environ["INGLENOOK_DATA"])):
        assert "hf_secret" not in all_text(folder)
    assert set_hub_token("") == ""
    assert hub_token() == ""


def test_a_locked_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Locked())
    assert hub_token() == ""
    assert set_hub_token("hf_abc") == (
        "The system's keyring did not accept the token (Failed to unlock the collection!), so it is kept "
        "only until the program ends."
    )
    assert hub_token() == "hf_abc"
    assert (
        "The token could not be deleted from the system's keyring (Failed to unlock the collection!)"
        in set_hub_token("")
    )
    assert hub_token() == ""


def test_the_working_one_of_several_keyrings(monkeypatch: pytest.MonkeyPatch, system: Memory) -> None:
    monkeypatch.setattr(chainer.ChainerBackend, "backends", [fail.Keyring(), system])
    use(monkeypatch, chainer.ChainerBackend())
    assert set_hub_token("hf_abc") == ""
    assert list(system.kept.values()) == ["hf_abc"]


@pytest.mark.parametrize("token", ["two words", "hf_ümlaut", "hf_\x00", "a\r\nX-Evil: 1"])
def test_invalid_tokens(token: str, system: Memory) -> None:
    set_hub_token("hf_before")
    assert "is not a token" in set_hub_token(token)
    assert hub_token() == "hf_before"


def test_order_of_places(hub_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub_home.mkdir()
    (hub_home / "token").write_text("hf_file\n")
    assert (hub_token(), token_source()) == ("hf_file", "file")
    set_hub_token("hf_ring")
    assert hub_token() == "hf_ring"
    monkeypatch.setenv("HUGGING_FACE_HUB_TOKEN", "hf_old")
    assert (hub_token(), token_source()) == ("hf_old", "HUGGING_FACE_HUB_TOKEN")
    monkeypatch.setenv("HF_TOKEN", " hf_env ")
    assert (hub_token(), token_source()) == ("hf_env", "HF_TOKEN")


def test_other_places_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HOME")
    (tmp_path / "cache" / "huggingface").mkdir(parents=True)
    (tmp_path / "cache" / "huggingface" / "token").write_text("hf_cache")
    assert hub_token() == "hf_cache"
    (tmp_path / "elsewhere").write_text("hf_else")
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "elsewhere"))
    assert hub_token() == "hf_else"
    (tmp_path / "elsewhere").write_bytes(b"\xff" * 100)
    assert hub_token() == ""
    (tmp_path / "elsewhere").write_text("x" * 5000)
    assert hub_token() == ""


@pytest.mark.parametrize(
    ("value", "offline"),
    [("1", True), ("on", True), ("True", True), ("YES", True), ("0", False), ("", False)],
)
def test_the_environment_asks_to_be_offline(
    monkeypatch: pytest.MonkeyPatch, value: str, offline: bool
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", value)
    assert is_offline() == offline


def test_the_switch_also_applies_to_the_starter_model(tmp_path: Path) -> None:
    set_offline(True)
    assert is_offline()
    with pytest.raises(DownloadError, match="working offline"):
        list(fetch_starter(tmp_path))
    set_offline(False)
    assert not is_offline()


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, engine.hub; print([name for name in ('huggingface_hub', 'keyring', 'psutil', 'torch') "
        "if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).resolve().parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "[]\n"
