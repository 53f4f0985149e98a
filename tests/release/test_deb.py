"""The .deb: what Debian's policy asks for is inside, and the same tree gives the same bytes."""

from __future__ import annotations

import datetime
import gzip
import hashlib
import io
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from desktop.__main__ import parser as window_parser
from engine.__main__ import parser as engine_parser
from tests.release.archives import make_deb
from tests.release.manual import manual_page
from tests.release.plan import ROOT, Release

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg is not installed")


def made_deb(folder: Path, names: tuple[str, ...] = ("a", "b")) -> Path:
    """A package of a program's folder with these files, each created in this order."""
    release = Release(folder / "work", folder / "out", "1.2", 1_700_000_000, None, "A B <a@example.org>")
    for made in (release.program, release.out, release.share / "applications"):
        made.mkdir(parents=True)
    for name in names:
        (release.program / name).write_text(name, encoding="utf-8")
    (release.program / "inglenook").write_text("#!/bin/sh\n", encoding="utf-8")
    (release.program / "inglenook").chmod(0o700)
    (release.program / "inglenook-engine").symlink_to("inglenook")
    return make_deb(release)


def shown(*words: str | Path) -> bytes:
    return subprocess.run(["dpkg-deb", *words], check=True, capture_output=True).stdout


@pytest.fixture
def archive(tmp_path: Path) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(shown("--fsys-tarfile", made_deb(tmp_path))))


def content(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None
    return file.read()


def test_it_holds_the_program_two_commands_and_the_papers(archive: tarfile.TarFile) -> None:
    entries = {entry.name: entry for entry in archive}
    assert entries["./usr/bin/inglenook-engine"].linkname == "../lib/inglenook/inglenook-engine"
    assert entries["./usr/lib/inglenook/inglenook"].mode == 0o755
    assert {(entry.uid, entry.gid) for entry in entries.values()} == {(0, 0)}
    papers = content(archive, "./usr/share/doc/inglenook/copyright").decode()
    assert "Copyright: 2023 The authors of Inglenook\nLicense: Apache-2.0\n" in papers
    changes = gzip.decompress(content(archive, "./usr/share/doc/inglenook/changelog.gz")).decode()
    assert changes.startswith("inglenook (1.2) unstable; urgency=medium\n\n  * ")
    assert changes.endswith("\n -- A B <a@example.org>  Tue, 14 Nov 2023 22:13:20 +0000\n")
    overrides = content(archive, "./usr/share/lintian/overrides/inglenook")
    assert overrides == (ROOT / "tests/release/lintian_overrides.txt").read_bytes()


def test_both_commands_have_a_manual_page_that_names_every_option(archive: tarfile.TarFile) -> None:
    for parser in (window_parser(), engine_parser()):
        page = gzip.decompress(content(archive, f"./usr/share/man/man1/{parser.prog}.1.gz")).decode()
        assert page.startswith(f'.TH {parser.prog.upper()} 1 2023-11-14 "inglenook 1.2" "User Commands"\n')
        assert f".SH NAME\n{parser.prog} \\- " in page
        assert ".SH SYNOPSIS\n.nf\n{} [\\-h]".format(parser.prog.replace("-", "\\-")) in page
        for action in parser._actions:
            assert all(option.replace("-", "\\-") in page for option in action.option_strings)
        assert "usage:" not in page


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("lintian") is None, reason="lintian is not installed")
def test_lintian_finds_nothing_in_the_papers(tmp_path: Path) -> None:
    """Nor does it in a whole package, which takes it minutes: README.md says when."""
    words = ["lintian", "--allow-root", "--fail-on", "error,warning", made_deb(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_manual_pages_do_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = []
    for columns in ("40", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        pages.append(manual_page(window_parser(), "1.2", datetime.date(2023, 11, 14)))
    assert pages[0] == pages[1]


def test_every_file_has_its_checksum(tmp_path: Path, archive: tarfile.TarFile) -> None:
    (deb,) = (tmp_path / "out").iterdir()
    lines = shown("--info", deb, "md5sums").decode().splitlines()
    files = sorted(entry.name for entry in archive if entry.isreg())
    expected = [f"{hashlib.md5(content(archive, name)).hexdigest()}  {name[2:]}" for name in files]
    assert sorted(lines) == sorted(expected)


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    one, two = made_deb(tmp_path / "one"), made_deb(tmp_path / "two", ("b", "a"))
    assert one.read_bytes() == two.read_bytes()
