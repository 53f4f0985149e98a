"""The signed list and the exchange of an AppImage, over a server on this machine, killed at any point."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from engine.core import Downloaded
from engine.errors import DownloadError
from engine.hub import set_offline
from engine.hub.download import transfer
from engine.hub.updates import check, install
from engine.hub.updates.check import check_for_update
from engine.hub.updates.install import before_of, install_update, roll_back
from engine.hub.updates.manifest import HEAD, MAX_BYTES, Package, Update, read_manifest, version_key
from engine.hub.updates.source import UpdateSource, installed_as, update_advice, update_source
from tests.release.updates import public_key, signed

pytestmark = [
    pytest.mark.loopback,
    pytest.mark.skipif(sys.platform == "win32", reason="an AppImage is a program for Linux"),
]

KEY, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
OLD, NEW = b"#!/bin/sh\necho 1.0\n", b"#!/bin/sh\necho 2.0\n" + b"#" * 3_000_000
SHA = hashlib.sha256(NEW).hexdigest()


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder, with ranges; an answer is cut off after `cut` bytes, once `gate` is open."""

    cut: int | None = None
    gate = threading.Event()
    ranges: list[str] = []

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        content, first = path.read_bytes(), 0
        given = self.headers.get("Range", "")
        Quiet.ranges.append(given)
        if given:
            first = int(given.removeprefix("bytes=").rstrip("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        self.wfile.write(content[first:][: self.cut])
        self.gate.wait()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that a server publishes; its address is in the file `url` beside it."""
    folder = tmp_path / "site"
    folder.mkdir()
    Quiet.cut, Quiet.ranges = None, []
    Quiet.gate.set()
    monkeypatch.setattr(transfer, "PAUSE_SECONDS", 0.01)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    (tmp_path / "url").write_text(f"http://127.0.0.1:{server.server_address[1]}", encoding="utf-8")
    yield folder
    server.shutdown()
    thread.join()
    server.server_close()


def source(site: Path) -> UpdateSource:
    url = site.with_name("url").read_text(encoding="utf-8")
    return UpdateSource(f"{url}/list.txt", (public_key(OTHER), public_key(KEY)))


def listed(version: str = "2.0", **other: Any) -> dict[str, Any]:
    package = {"kind": "appimage", "file": "new.AppImage", "bytes": len(NEW), "sha256": SHA, **other}
    return {"version": version, "published": "2026-11-25", "notes": "- faster", "packages": [package]}


def publish(site: Path, content: dict[str, Any], key: Ed25519PrivateKey = KEY) -> None:
    (site / "list.txt").write_bytes(signed(content, key))
    (site / "new.AppImage").write_bytes(NEW)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    (tmp_path / "programs").mkdir()
    image = tmp_path / "programs" / "Inglenook ü.AppImage"
    image.write_bytes(OLD)
    image.chmod(0o755)
    return image


def update_of(site: Path, version: str = "1.0") -> tuple[Update, Package]:
    update = check_for_update(source(site), version)
    assert update is not None
    package = update.package("appimage", starter=False)
    assert package is not None
    return update, package


def installed(site: Path, image: Path) -> list[object]:
    return list(install_update(*update_of(site), image, "1.0"))


def others(image: Path) -> set[str]:
    return {path.name for path in image.parent.iterdir()} - {image.name}


def test_a_newer_version_is_found_with_its_notes(site) -> None:
    publish(site, listed())
    update, package = update_of(site)
    assert (update.version, update.published, update.notes) == ("2.0", "2026-11-25", "- faster")
    assert package.url == source(site).url.replace("list.txt", "new.AppImage")
    for version in ("2.0", "2", "2.0.0.0", "2.0.1", "10.0"):
        assert check_for_update(source(site), version) is None


def test_versions_are_compared_as_numbers() -> None:
    ordered = ["0.9", "0.10", "1", "1.0.1", "1.2", "10.0"]
    assert sorted({*ordered}, key=version_key) == ordered
    for wrong in ("", "1.0b1", "v1", "1..2", "1.2.3.4.5", "-1"):
        with pytest.raises(ValueError, match="is not a version"):
            version_key(wrong)


def test_only_a_list_that_is_signed_as_it_is_counts(site) -> None:
    publish(site, listed(), Ed25519PrivateKey.generate())
    with pytest.raises(DownloadError, match="not signed by the developers"):
        check_for_update(source(site), "1.0")
    publish(site, listed(), OTHER)  # a second key, for the time when the first is lost
    assert check_for_update(source(site), "1.0") is not None
    whole = (site / "list.txt").read_bytes()
    head, _, payload = whole.partition(b"\n")
    for content in (
        whole.replace(b"2.0", b"3.0"), whole + b" ", payload, b"", head, b"inglenook-updates-1 \n" + payload,
        b"inglenook-updates-1 !!\n" + payload, whole.removeprefix(HEAD), b"inglenook-updates-2" + whole[19:],
    ):  # fmt: skip
        with pytest.raises(DownloadError, match="not signed by the developers"):
            read_manifest(content, "https://x", source(site).keys)
    assert read_manifest(whole, "https://x", source(site).keys).version == "2.0"
    with pytest.raises(DownloadError, match="not signed by the developers"):
        read_manifest(whole, "https://x", ())


@pytest.mark.parametrize(
    "content",
    [
        listed("two"), {**listed(), "packages": 3}, {"version": "2.0"}, listed(sha256="A" * 64),
        listed(bytes=0), listed(bytes="3"), listed(bytes=True), listed(bytes=2.5), listed(sha256=5),
        {**listed(), "packages": [1]},
    ],
)  # fmt: skip
def test_a_list_that_cannot_be_understood_is_one_sentence(content) -> None:
    with pytest.raises(DownloadError, match="cannot be read"):
        read_manifest(signed(content, KEY), "https://x", (public_key(KEY),))


def test_what_the_list_says_of_packages() -> None:
    given = [{"starter": True, "file": "../a b"}, {"starter": "yes", "bytes": 1}, {"file": "https://y/z"}]
    content = {**listed(), "packages": [listed(**each)["packages"][0] for each in given]}
    packages = read_manifest(signed(content, KEY), "https://x/l/list.txt", (public_key(KEY),)).packages
    assert [package.starter for package in packages] == [True, False, False]
    assert [package.bytes for package in packages] == [len(NEW), 1, len(NEW)]
    assert [package.url for package in packages] == [
        "https://x/a b", "https://x/l/new.AppImage", "https://y/z",
    ]  # fmt: skip


def test_troubles_of_the_network_are_one_sentence(site) -> None:
    with pytest.raises(DownloadError, match=r"could not be read: the server answered 404"):
        check_for_update(source(site), "1.0")
    assert MAX_BYTES == 256 << 10
    missing = MAX_BYTES - len(signed({**listed(), "notes": ""}, KEY))
    publish(site, {**listed(), "notes": "n" * missing})
    assert update_of(site)[0].notes == "n" * missing
    publish(site, {**listed(), "notes": "n" * (missing + 1)})
    with pytest.raises(DownloadError, match="too large"):
        check_for_update(source(site), "1.0")
    for url in ("http://example.org/list.txt", "ftp://localhost/list.txt", "//localhost/list.txt"):
        with pytest.raises(DownloadError, match="HTTPS only"):
            check_for_update(UpdateSource(url, ()), "1.0")
    set_offline(True)
    try:
        with pytest.raises(DownloadError, match=r"working offline.* to check for updates"):
            check_for_update(source(site), "1.0")
    finally:
        set_offline(False)


def test_certificates_of_the_environment_are_used(monkeypatch) -> None:
    monkeypatch.setattr(check, "Web", lambda settings, environ: (settings.cert, environ))
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    certs = []
    for name in ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):  # the second goes before the first
        monkeypatch.setenv(name, f" /{name} ")
        certs.append(check.update_web("https://x"))
    assert certs == [("/CURL_CA_BUNDLE", os.environ), ("/REQUESTS_CA_BUNDLE", os.environ)]


def test_the_new_program_takes_the_place_of_the_old_one_which_is_kept(site, image) -> None:
    publish(site, listed())
    running = image.open("rb")
    events = installed(site, image)
    assert events[-1] == Downloaded(str(image))
    assert image.read_bytes() == NEW
    assert os.access(image, os.X_OK)
    assert image.stat().st_mode & 0o777 == 0o755
    assert before_of(image).read_bytes() == running.read() == OLD
    running.close()
    assert events[0].stage == "Downloading Inglenook 2.0"
    assert (events[-2].done, events[-2].total) == (len(NEW), len(NEW))
    assert others(image) == {before_of(image).name}
    roll_back(image)
    assert image.read_bytes() == OLD
    assert others(image) == set()
    with pytest.raises(DownloadError, match="no previous version"):
        roll_back(image)
    assert image.read_bytes() == OLD


def test_without_hard_links_the_version_before_is_a_copy(site, image, monkeypatch) -> None:
    def link(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    publish(site, listed())
    monkeypatch.setattr(install.os, "link", link)
    installed(site, image)
    assert (image.read_bytes(), before_of(image).read_bytes()) == (NEW, OLD)


def test_a_broken_transfer_is_resumed(site, image, monkeypatch) -> None:
    publish(site, listed())
    Quiet.cut = 1_000_000
    installed(site, image)
    assert [text for text in Quiet.ranges if text] == ["bytes=1000000-", "bytes=2000000-", "bytes=3000000-"]
    assert image.read_bytes() == NEW


def test_it_can_be_stopped_and_goes_on_from_there(site, image) -> None:
    publish(site, listed())
    (image.parent / ".inglenook-update-0123.part").write_bytes(b"of another update")
    stop = threading.Event()
    update, package = update_of(site)
    Quiet.cut = 1_000_000
    Quiet.gate.clear()
    events = install_update(update, package, image, "1.0", stop)
    while getattr(next(events), "done", 0) < 500_000:
        pass
    stop.set()
    with pytest.raises(DownloadError, match="was not installed: it was stopped"):
        list(events)
    Quiet.cut = None
    Quiet.gate.set()
    assert image.read_bytes() == OLD
    (part,) = others(image)
    assert part != ".inglenook-update-0123.part"
    begun = (image.parent / part).stat().st_size
    installed(site, image)
    assert f"bytes={begun}-" in Quiet.ranges
    assert image.read_bytes() == NEW


def test_another_file_than_the_list_names_is_not_used(site, image) -> None:
    publish(site, listed())
    (site / "new.AppImage").write_bytes(NEW[:-1] + b"x")
    with pytest.raises(DownloadError, match=r"2.0 was not installed: .*does not match the size or hash"):
        installed(site, image)
    assert image.read_bytes() == OLD
    (site / "new.AppImage").write_bytes(NEW)
    installed(site, image)
    assert image.read_bytes() == NEW


def test_a_package_without_encryption_is_not_downloaded(site, image) -> None:
    publish(site, listed(file="http://example.org/new.AppImage"))
    with pytest.raises(DownloadError, match="was not installed: Updates are downloaded over HTTPS only"):
        installed(site, image)
    assert (image.read_bytes(), others(image)) == (OLD, set())


def test_the_new_program_can_be_run_by_those_who_may_read_the_old_one(site, image) -> None:
    publish(site, listed())
    image.chmod(0o640)
    installed(site, image)
    assert image.stat().st_mode & 0o777 == 0o740


def test_an_older_version_is_never_installed(site, image) -> None:
    publish(site, listed("0.9"))
    assert check_for_update(source(site), "1.0") is None
    update, package = update_of(site, "0.1")
    for version in ("0.9", "1.0"):
        with pytest.raises(DownloadError, match=r"0\.9 is not newer than this version"):
            next(iter(install_update(update, package, image, version)))
    assert image.read_bytes() == OLD


@pytest.mark.slow
def test_a_full_disk_or_a_folder_without_permission_is_one_sentence(site, image, monkeypatch) -> None:
    publish(site, listed())
    monkeypatch.setattr(install, "check_disk", full)
    with pytest.raises(DownloadError, match=r"was not installed: it needs more"):
        installed(site, image)
    monkeypatch.undo()
    for number, words in ((errno.ENOSPC, "is full"), (errno.EROFS, "is not writable")):
        monkeypatch.setattr(install.os, "fsync", partial(fail, number))
        with pytest.raises(DownloadError, match=words):
            installed(site, image)
        monkeypatch.undo()
        assert image.read_bytes() == OLD
        assert not before_of(image).exists()
    monkeypatch.setattr(install.os, "replace", partial(fail, errno.EACCES))
    with pytest.raises(DownloadError, match="is not writable"):
        installed(site, image)
    with pytest.raises(DownloadError, match="could not be restored"):
        roll_back(image)


def full(*_: object) -> None:
    raise DownloadError("it needs more than there is")


def fail(number: int, *_: object) -> None:
    raise OSError(number, os.strerror(number))


KILLED = """
import json, os, signal, sys
from pathlib import Path
from engine.hub.updates.check import check_for_update
from engine.hub.updates.install import install_update
from engine.hub.updates.source import UpdateSource
url, key, image, calls = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
update = check_for_update(UpdateSource(url, (key,)), "1.0")
package = update.package("appimage", False)
left = [calls]
def count():
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
changes = ("open", "os.rename", "os.remove", "os.link", "os.chmod", "os.truncate")
ours = ".inglenook-update"
sys.addaudithook(lambda event, given: count() if event in changes and ours in str(given) else None)
for event in install_update(update, package, image, "1.0"):
    count()
print("updated", calls - left[0])
"""


def killed_after(site: Path, image: Path, calls: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", KILLED, source(site).url, public_key(KEY), str(image), str(calls)],
        capture_output=True, text=True, timeout=60, check=False, cwd=Path(__file__).resolve().parents[4],
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("early", [0, pytest.param(6, marks=pytest.mark.slow)])
def test_killed_anywhere_the_program_is_whole_and_the_next_try_succeeds(site, image, early) -> None:
    """Killed before each of the last changes, and at `early` places before."""
    publish(site, listed())
    whole = killed_after(site, image, 10_000)
    assert whole.returncode == 0, whole.stderr
    most = int(whole.stdout.split()[1])
    assert most > 10
    points = {1 + (most - 5) * part // max(1, early) for part in range(early)} | {*range(most - 3, most + 1)}
    for calls in sorted(points):
        image.write_bytes(OLD)
        before_of(image).unlink(missing_ok=True)
        done = killed_after(site, image, calls)
        assert done.returncode == -signal.SIGKILL, (calls, done)
        assert image.read_bytes() in (OLD, NEW)
        said = subprocess.run([str(image)], capture_output=True, text=True, check=True).stdout
        assert said == ("1.0\n" if image.read_bytes() == OLD else "2.0\n")
        if image.read_bytes() == OLD:
            installed(site, image)
        assert image.read_bytes() == NEW
        assert before_of(image).read_bytes() == OLD


def test_how_this_program_was_installed(monkeypatch, tmp_path) -> None:
    assert installed_as() == "python"
    assert update_source() is None
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", "/usr/lib/inglenook/inglenook")
    assert installed_as() == "deb"
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "inglenook"))
    assert installed_as() == "folder"
    (tmp_path / "bin" / "inglenook-data").mkdir(parents=True)
    assert installed_as() == "portable"
    (tmp_path / "bin" / "inglenook-data").rmdir()
    (tmp_path / "flatpak").touch()
    with monkeypatch.context() as inside:
        inside.setattr("engine.hub.updates.source.FLATPAK_INFO", tmp_path / "flatpak")
        assert installed_as() == "flatpak"
    image = tmp_path / "I.AppImage"
    image.touch()
    monkeypatch.setenv("APPIMAGE", str(image))
    monkeypatch.setenv("APPDIR", str(tmp_path))
    assert installed_as() == "appimage"
    kinds = ("appimage", "deb", "flatpak", "folder", "portable", "python")
    words = {kind: update_advice(kind) for kind in kinds}
    assert len(set(words.values())) == len(kinds)
    assert "inglenook-data" in words["portable"]
    assert words["appimage"] == ""
    assert "“/x/python -m pip install --upgrade inglenook”" in update_advice("python", "/x/python")


def test_a_package_says_where_its_updates_are(monkeypatch, tmp_path) -> None:
    import resources

    (tmp_path / "updates.json").write_text('{"url": "https://x/l", "keys": ["k"]}', encoding="utf-8")
    monkeypatch.setattr(resources, "_FOLDER", tmp_path)
    assert update_source() == UpdateSource("https://x/l", ("k",))


def test_a_package_with_the_starter_is_replaced_by_one_with_it() -> None:
    plain, with_starter = (Package("appimage", "u", 1, SHA, starter) for starter in (False, True))
    update = Update("2", "", "", (plain, with_starter))
    assert update.package("appimage", starter=True) is with_starter
    assert update.package("appimage", starter=False) is plain
    assert Update("2", "", "", (plain,)).package("appimage", starter=True) is plain
    assert update.package("deb", starter=False) is None
