"""Whether a window can be opened here.

Checked before Qt is used, because Qt ends the whole process if its platform plug-in fails.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from engine.words import _

__all__ = ["DEBIAN_PACKAGES", "import_trouble", "load_plugin", "trouble"]

DEBIAN_PACKAGES = (
    "libegl1 libgl1 libglib2.0-0 libfontconfig1 libdbus-1-3 libxkbcommon0 libxkbcommon-x11-0 libx11-xcb1 "
    "libxcb-cursor0 libxcb-icccm4 libxcb-keysyms1 libxcb-shape0 libxcb-randr0 libxcb-xkb1 "
    "libwayland-cursor0 libwayland-egl1 libgssapi-krb5-2"
)
"""What a minimal Debian or Ubuntu lacks for Qt's windows on X11 and Wayland and for QtNetwork, without
dependencies.
"""

_NEED_NO_DISPLAY = ("offscreen", "minimal", "vnc", "eglfs", "linuxfb", "minimalegl", "vkkhrdisplay")


def _missing(library: str) -> str:
    return _(
        "Inglenook cannot open a window because the system library {library} is missing; on Debian or Ubuntu "
        "install it with: sudo apt install {packages}",
        library=library,
        packages=DEBIAN_PACKAGES,
    )


def import_trouble() -> str:
    """Import Qt's widgets; returns a sentence if a system library or PySide6 itself is missing, else "".

    Called before anything else of the desktop is imported, because qasync would replace the reason by one of
    its own.
    """
    try:
        importlib.import_module("PySide6.QtWidgets")
        importlib.import_module("PySide6.QtSvg")
    except ImportError as error:
        library = re.search(r"(\S+\.so[.\d]*): cannot open shared object file", str(error))
        if library:
            return _missing(library.group(1))
        return _(
            "Inglenook cannot open a window because its package PySide6-Essentials does not work "
            "({error}); install Inglenook again.",
            error=error,
        )
    return ""


def trouble(environment: Mapping[str, str] = os.environ) -> str:
    """Why no window can be opened on this Linux system, as a sentence; "" if it can, or on other systems."""
    if not sys.platform.startswith("linux"):
        return ""
    platform = environment.get("QT_QPA_PLATFORM", "").partition(":")[0].partition(";")[0]
    if platform in _NEED_NO_DISPLAY:
        return ""
    wayland = bool(environment.get("WAYLAND_DISPLAY")) and platform != "xcb"
    if not wayland and not environment.get("DISPLAY"):
        return _(
            "Inglenook cannot open a window because there is no display (DISPLAY and WAYLAND_DISPLAY are "
            "empty); start it on a desktop."
        )
    try:
        load_plugin("libqwayland.so" if wayland else "libqxcb.so")
        reachable = wayland or _x_answers(environment["DISPLAY"])
    except OSError as error:
        if environment.get("DISPLAY") and wayland:
            return trouble({**environment, "WAYLAND_DISPLAY": ""})  # Qt falls back to X11 as well
        # PyInstaller replaces the loader's words by its own, and keeps them as the cause.
        library = str(error.__cause__ or error).partition(":")[0]
        return _missing(library)
    if reachable:
        return ""
    return _(
        "Inglenook cannot open a window because the display {display} does not respond; start it on a "
        "desktop.",
        display=environment["DISPLAY"],
    )


def load_plugin(name: str) -> None:
    """Load Qt's platform plug-in `name`, such as "libqxcb.so", with its libraries. Raises OSError with the
    name of the first missing one.
    """
    spec = importlib.util.find_spec("PySide6")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        plugin = Path(folder) / "Qt" / "plugins" / "platforms" / name
        # a distribution's PySide6 has it elsewhere, with its dependencies installed
        if plugin.is_file():
            ctypes.CDLL(str(plugin))


def _x_answers(display: str) -> bool:
    """Whether the X server `display` accepts a connection. Raises OSError if libxcb is missing."""
    xcb = ctypes.CDLL("libxcb.so.1")
    xcb.xcb_connect.restype = ctypes.c_void_p
    xcb.xcb_connect.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    xcb.xcb_connection_has_error.argtypes = xcb.xcb_disconnect.argtypes = [ctypes.c_void_p]
    connection = xcb.xcb_connect(display.encode(), None)
    failed = bool(xcb.xcb_connection_has_error(connection))
    xcb.xcb_disconnect(connection)
    return not failed
