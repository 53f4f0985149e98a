"""pip's settings are read as pip reads them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.hub.client.http import Web
from engine.hub.download.package_index import Link, links, places
from engine.hub.download.pip_settings import DEFAULT_INDEX, PipSettings, read_pip_settings

if sys.platform == "win32":
    pytest.skip("the folders below are those of POSIX systems", allow_module_level=True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder whose pip files are the only ones."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    etc = tmp_path / "etc"
    monkeypatch.setattr(
        "engine.hub.download.pip_settings.Path",
        lambda *parts: etc if parts == ("/etc/pip.conf",) else Path(*parts),
    )
    return tmp_path


def environ(home: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(home), "XDG_CONFIG_DIRS": str(home / "xdg"), **more}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_nothing_set(home: Path) -> None:
    assert read_pip_settings(environ(home)) == PipSettings()
    assert PipSettings().indexes == (DEFAULT_INDEX,)


def test_later_files_replace_earlier_ones_and_sections_add_up(home: Path) -> None:
    write(
        home / "xdg/pip/pip.conf", "[global]\nindex-url = http://global\ncert = /global.pem\ntimeout = 60\n"
    )
    write(
        home / ".config/pip/pip.conf",
        "[global]\nindex_url = http://user\n[install]\nfind-links =\n    a\n    b\n[freeze]\nproxy = x\n",
    )
    write(home / "venv/pip.conf", "[global]\nextra-index-url = http://one http://two\ntrusted-host = one\n")
    found = read_pip_settings(environ(home))
    assert found == PipSettings(
        indexes=("http://user", "http://one", "http://two"),
        find_links=("a", "b"),
        cert="/global.pem",
        trusted_hosts=("one",),
        timeout=60.0,
    )


def test_environment_replaces_files(home: Path) -> None:
    write(home / ".config/pip/pip.conf", "[global]\nextra-index-url = http://one\nno-index = false\n")
    assert read_pip_settings(environ(home, PIP_EXTRA_INDEX_URL="http://two")).indexes == (
        DEFAULT_INDEX,
        "http://two",
    )
    assert read_pip_settings(environ(home, PIP_NO_INDEX="true")).indexes == ()
    assert read_pip_settings(environ(home, PIP_DEFAULT_TIMEOUT="99")).timeout == 99.0


def test_config_file_variable(home: Path) -> None:
    write(home / ".config/pip/pip.conf", "[global]\nindex-url = http://user\n")
    chosen = write(home / "chosen.conf", "[global]\nproxy = http://proxy\n")
    assert read_pip_settings(environ(home, PIP_CONFIG_FILE=os.devnull)) == PipSettings()
    assert read_pip_settings(environ(home, PIP_CONFIG_FILE=str(chosen))) == PipSettings(proxy="http://proxy")
    assert read_pip_settings(environ(home, PIP_CONFIG_FILE=str(home / "none"))).indexes == ("http://user",)


@pytest.mark.parametrize(
    "text", ["index-url = no section", "[global\n", "[global]\nindex-url\n", "[global]\ntimeout = soon\n"]
)
def test_broken_file_counts_as_empty(home: Path, text: str) -> None:
    write(home / ".config/pip/pip.conf", text)
    assert read_pip_settings(environ(home)) == PipSettings()


def test_all_places_are_addresses(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drive letter is no scheme."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", str(home))
    settings = PipSettings(("https://i/simple/",), ("~/w x", "C:/w", "https://h/w"))
    assert list(places(settings, "Tiny_.Model")) == [
        (home / "w x").as_uri(), (home / "C:" / "w").as_uri(), "https://h/w", "https://i/simple/tiny-model/",
    ]  # fmt: skip


def test_certificates_that_requests_would_use(home: Path) -> None:
    assert (
        read_pip_settings(environ(home, REQUESTS_CA_BUNDLE="/r.pem", CURL_CA_BUNDLE="/c.pem")).cert
        == "/r.pem"
    )
    assert read_pip_settings(environ(home, PIP_CERT="/p.pem", REQUESTS_CA_BUNDLE="/r.pem")).cert == "/p.pem"


def test_same_answer_as_pip(tmp_path: Path) -> None:
    """pip itself is the oracle, with a user's file and a chosen one."""
    write(
        tmp_path / ".config/pip/pip.conf", "[global]\nindex-url = http://user/simple\n[install]\ncert = /u\n"
    )
    variables = environ(
        tmp_path, PATH=os.environ["PATH"], PIP_FIND_LINKS="x y", XDG_CONFIG_HOME=str(tmp_path / ".config")
    )
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = read_pip_settings(variables)
    assert "global.index-url='http://user/simple'" in listed
    assert found.indexes[0] == "http://user/simple"
    assert "install.cert='/u'" in listed
    assert found.cert == "/u"
    assert found.find_links == ("x", "y")


def test_links_of_a_page_follow_its_base(tmp_path: Path) -> None:
    page = write(
        tmp_path / "index.html",
        '<base href="https://files.example/pool/"><a href="w.whl#sha256=AB">w</a><a href="v.whl">v</a>',
    )
    found = links(Web(PipSettings(), {}), page.as_uri(), "w.whl")
    assert found == [Link("https://files.example/pool/w.whl", "sha256", "ab")]


def test_the_files_of_a_mac_are_in_its_library_where_pip_has_a_folder_there(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mac = SimpleNamespace(platform="darwin", prefix=str(home / "venv"))
    monkeypatch.setattr("engine.hub.download.pip_settings.sys", mac)
    write(home / ".config/pip/pip.conf", "[global]\nindex-url = http://config\n")
    assert read_pip_settings(environ(home)).indexes == ("http://config",)
    write(home / "Library/Application Support/pip/pip.conf", "[global]\nindex-url = http://library\n")
    assert read_pip_settings(environ(home)).indexes == ("http://library",)


def test_the_files_of_windows(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    windows = SimpleNamespace(platform="win32", prefix=str(home / "venv"))
    monkeypatch.setattr("engine.hub.download.pip_settings.sys", windows)
    data = {"PROGRAMDATA": str(home / "data"), "APPDATA": str(home / "roaming")}
    write(home / "data/pip/pip.ini", "[global]\nindex-url = http://all\ncert = /all.pem\n")
    assert read_pip_settings(environ(home, **data)).indexes == ("http://all",)
    write(home / "roaming/pip/pip.ini", "[global]\nindex-url = http://user\n")
    found = read_pip_settings(environ(home, **data))
    assert (found.indexes, found.cert) == (("http://user",), "/all.pem")
    write(home / "venv/pip.ini", "[global]\nindex-url = http://venv\n")
    assert read_pip_settings(environ(home, **data)).indexes == ("http://venv",)
