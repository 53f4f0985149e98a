"""Compiled code is loaded only from folders that no other user can change: owners and permissions of all
parents count.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from engine.platform import folders
from engine.platform.folders import close_to_others, code_folder, is_trusted, private_file, private_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="owners and rights are POSIX's")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache in a home folder, without an alternative."""
    cache = tmp_path / "home" / ".cache" / "inglenook"
    monkeypatch.setenv("INGLENOOK_CACHE", str(cache))
    nowhere = tmp_path / "no folder"
    nowhere.write_text("")
    monkeypatch.setattr(folders.tempfile, "gettempdir", lambda: str(nowhere))
    return cache


def owned_by_another(monkeypatch: pytest.MonkeyPatch, foreign: Path, uid: int = 54321) -> None:
    """Make a path belong to another user."""
    real = os.stat_result

    def seen(found: os.stat_result) -> os.stat_result:
        fields = list(found)
        fields[4] = uid
        return real(fields)

    lstat, follow = Path.lstat, Path.stat
    monkeypatch.setattr(Path, "lstat", lambda self: seen(lstat(self)) if self == foreign else lstat(self))
    target = os.path.realpath(foreign)

    def stat_of(path: Path, **rest: bool) -> os.stat_result:
        found = follow(path, **rest)
        return seen(found) if os.path.realpath(path) == target else found

    monkeypatch.setattr(Path, "stat", stat_of)


def test_the_folder_is_made_closed_to_others(home: Path) -> None:
    before = os.umask(0)
    try:
        found = code_folder("kernels-1")
    finally:
        os.umask(before)
    assert found == home / "kernels-1"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (found, home, home.parent)] == [0o700] * 3
    (found / "code.nbc").write_text("kept")
    assert code_folder("kernels-1") == found
    assert (found / "code.nbc").read_text() == "kept"


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_folder_above_that_others_can_write_to_is_not_trusted(home: Path, level: int) -> None:
    assert code_folder("kernels-1") is not None
    above = [home.parent, home.parent.parent, home.parent.parent.parent][level - 1]
    mode = stat.S_IMODE(above.stat().st_mode)
    above.chmod(0o777)
    try:
        assert code_folder("kernels-1") is None
        above.chmod(0o1777)  # as /tmp: others cannot rename what is not theirs
        assert code_folder("kernels-1") == home / "kernels-1"
        above.chmod(0o770)
        assert code_folder("kernels-1") == (
            home / "kernels-1" if folders._has_no_others(above.stat().st_gid) else None
        )
    finally:
        above.chmod(mode)


@pytest.mark.parametrize("which", ["kernels-1", ""])
def test_content_that_others_could_have_written_is_removed(home: Path, which: str) -> None:
    found = code_folder("kernels-1")
    assert found is not None
    (found / "code.nbc").write_text("from somebody")
    (home / which).chmod(0o777)
    assert code_folder("kernels-1") == found
    assert list(found.iterdir()) == []
    assert stat.S_IMODE((home / which).stat().st_mode) == 0o700


@pytest.mark.parametrize("which", ["kernels-1", "", "..", "../.."])
def test_a_foreign_folder_is_not_trusted(home: Path, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    assert code_folder("kernels-1") is not None
    with monkeypatch.context() as patch:  # not for pytest's own looks at files
        owned_by_another(patch, Path(os.path.normpath(home / which)))
        found = code_folder("kernels-1")
    assert found is None


def test_links_are_followed_and_checked(home: Path, tmp_path: Path) -> None:
    real, shared = tmp_path / "real", tmp_path / "shared"
    private_folder(real / "inglenook")
    private_folder(home.parent)
    home.symlink_to(real / "inglenook")
    assert code_folder("kernels-1") == home / "kernels-1"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "middle").symlink_to(real)
    home.unlink()
    home.symlink_to(shared / "middle" / "inglenook")
    assert not is_trusted(home)  # others can put another link into the middle
    assert code_folder("kernels-1") is None
    shared.chmod(0o755)
    assert code_folder("kernels-1") == home / "kernels-1"
    home.unlink()
    home.symlink_to(home)
    assert not is_trusted(home)
    assert code_folder("kernels-1") is None


def test_a_private_group_may_write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Many systems give each user a private group and let it write."""
    tmp_path.chmod(0o770)
    monkeypatch.setattr(folders, "_has_no_others", lambda group: True)
    assert is_trusted(tmp_path)
    monkeypatch.setattr(folders, "_has_no_others", lambda group: False)
    assert not is_trusted(tmp_path)


def test_a_sampler_is_not_loaded_from_an_open_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.sampling import kernels

    asked: list[str] = []
    monkeypatch.setattr(kernels, "code_folder", lambda name: asked.append(name))
    kept: list[bool] = []
    monkeypatch.setattr(
        "engine.platform.compiled.function", lambda *_rest, **named: kept.append(named["cache"])
    )
    kernels._compiled(test_the_folder_is_made_closed_to_others, None, ())
    assert [name.split("-")[0] for name in asked] == ["sampling"]
    assert kept == [False]


def test_permissions_do_not_count_without_user_ids(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, where all folders seem to be writable by everybody."""
    found = code_folder("kernels-1")
    assert found is not None
    (found / "code.nbc").write_text("kept")
    found.chmod(0o777)
    monkeypatch.setattr(folders, "_user", lambda: -1)
    assert code_folder("kernels-1") == found
    assert (found / "code.nbc").read_text() == "kept"
    assert stat.S_IMODE(found.stat().st_mode) == 0o777
    assert close_to_others([home]) == ()


def test_files_are_closed_without_following_links(tmp_path: Path) -> None:
    other, inside = tmp_path / "other", tmp_path / "folder"
    other.write_text("x")
    other.chmod(0o644)
    inside.mkdir(mode=0o755)
    (inside / "link").symlink_to(other)
    (inside / "file").write_text("x")
    (inside / "file").chmod(0o666)
    assert close_to_others([inside, tmp_path / "missing"]) == ()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (inside, inside / "file", other)] == [
        0o700,
        0o600,
        0o644,
    ]
    assert private_file(other) == other
    assert (other.read_text(), stat.S_IMODE(other.stat().st_mode)) == ("x", 0o600)
    with pytest.raises(NotADirectoryError):
        private_folder(other)
