"""Resources of tool servers as files."""

from __future__ import annotations

from desktop.services.tools.events import Part
from desktop.services.tools.resource_files import ResourceFiles


def test_parts_become_files_of_safe_names_until_they_are_cleared() -> None:
    files = ResourceFiles()
    files.clear()
    parts = (Part("../a.md", b"one"), Part("a.md", b"two"), Part("c:\\x|y.txt", b"three"))
    paths = files.save(parts)
    assert [path.read_bytes() for path in paths] == [b"one", b"two", b"three"]
    assert [path.name for path in paths] == ["a.md", "a (2).md", "c x y.txt"]
    folder = paths[0].parent
    assert {path.parent for path in paths} == {folder}
    assert folder.parent.stat().st_mode & 0o077 == 0
    again = files.save(parts[:1])
    assert again[0].parent != folder
    files.clear()
    assert not folder.parent.exists()
    assert files.save(parts[:1])[0].read_bytes() == b"one"
    files.clear()
