"""Every system library that Qt needs comes with a package that README and the error message name."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import PySide6
import pytest

from desktop import preflight
from desktop.preflight import DEBIAN_PACKAGES, trouble

USED = ("Core", "Gui", "Widgets", "Svg", "Network", "DBus")
"""Qt's modules that the program imports."""
BROUGHT_BY = {
    "libEGL": "libegl1", "libGL": "libgl1", "libglib-2.0": "libglib2.0-0", "libgthread-2.0": "libglib2.0-0",
    "libfontconfig": "libfontconfig1", "libfreetype": "libfontconfig1", "libbrotlidec": "libfontconfig1",
    "libbrotlicommon": "libfontconfig1", "libdbus-1": "libdbus-1-3", "libxkbcommon": "libxkbcommon0",
    "libxkbcommon-x11": "libxkbcommon-x11-0", "libX11-xcb": "libx11-xcb1", "libX11": "libx11-xcb1",
    "libxcb": "libx11-xcb1", "libxcb-cursor": "libxcb-cursor0", "libxcb-image": "libxcb-cursor0",
    "libxcb-render": "libxcb-cursor0", "libxcb-render-util": "libxcb-cursor0",
    "libxcb-util": "libxcb-cursor0", "libxcb-shm": "libxcb-cursor0", "libxcb-icccm": "libxcb-icccm4",
    "libxcb-keysyms": "libxcb-keysyms1", "libxcb-shape": "libxcb-shape0", "libxcb-randr": "libxcb-randr0",
    "libxcb-xkb": "libxcb-xkb1", "libxcb-sync": "libgl1", "libxcb-xfixes": "libgl1", "libxcb-glx": "libgl1",
    "libdrm": "libgl1", "libwayland-client": "libegl1", "libwayland-server": "libegl1",
    "libwayland-cursor": "libwayland-cursor0", "libwayland-egl": "libwayland-egl1",
    "libgssapi_krb5": "libgssapi-krb5-2",
}  # fmt: skip
"""The package of the list that brings a library, itself or as one of its dependencies on Debian."""
EVERYWHERE = {
    "libc",
    "libm",
    "libdl",
    "librt",
    "libpthread",
    "libresolv",
    "libgcc_s",
    "libstdc++",
    "libz",
    "libzstd",
    "ld-linux-x86-64",
}
NAME = re.compile(rb"\0((?:lib[\w.+-]+?|ld-[\w-]+))\.so(?:\.\d+)+(?=\0)")


def needed(file: Path) -> set[str]:
    """The names of libraries in a library's string table."""
    return {name.decode() for name in NAME.findall(file.read_bytes().replace(b"\0", b"\0\0"))}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only")
def test_each_library_has_its_package() -> None:
    qt = Path(PySide6.__file__).parent / "Qt"
    files = [qt / "lib" / f"libQt6{name}.so.6" for name in (*USED, "XcbQpa", "WaylandClient")]
    files += [qt / "plugins" / "platforms" / name for name in ("libqxcb.so", "libqwayland.so")]
    files += sorted((qt / "plugins" / "xcbglintegrations").glob("*.so"))
    expected = {
        name for file in files for name in needed(file) if not name.startswith(("libQt6", "libicu"))
    } - EVERYWHERE
    assert {"libgssapi_krb5", "libwayland-cursor", "libxcb-cursor"} <= expected
    assert expected - BROUGHT_BY.keys() == set()
    assert {BROUGHT_BY[name] for name in expected} <= set(DEBIAN_PACKAGES.split())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only")
def test_one_kind_of_display_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(preflight, "load_plugin", loaded.append)
    monkeypatch.setattr(preflight, "_x_answers", lambda display: display == ":1")
    assert trouble({"WAYLAND_DISPLAY": "wayland-0"}) == trouble({"DISPLAY": ":1"}) == ""
    assert loaded == ["libqwayland.so", "libqxcb.so"]
    assert "there is no display" in trouble({})
    assert "there is no display" in trouble({"WAYLAND_DISPLAY": "wayland-0", "QT_QPA_PLATFORM": "xcb"})
    assert "the display :2 does not respond" in trouble({"DISPLAY": ":2"})
    assert trouble({"QT_QPA_PLATFORM": "offscreen:size=1"}) == ""
