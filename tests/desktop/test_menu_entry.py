"""The entry in the applications menu: added twice, removed without a trace, and valid for each system."""

from __future__ import annotations

import configparser
import plistlib
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import ModuleType

import pytest
from PySide6.QtGui import QImage

from desktop import menu_entry
from desktop.__main__ import main
from desktop.menu_entry import macos, windows, xdg
from desktop.menu_entry.kinds import ICON_SIZES, KINDS
from desktop.menu_entry.starting import Starting, starting
from engine.platform.program import app_image

ODD = Starting(
    ('/opt/my "tools"/$HOME/100%/back\\slash/inglenook', "--data", "/home/x/two words"), "/opt/a folder"
)


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    return tmp_path / "share"


def parsed_exec(value: str) -> list[str]:
    """The arguments of an Exec line: general escapes first, then quotes, then "%%", according to the
    specification.
    """
    text = value.replace("\\\\", "\\")
    return [word.replace("%%", "%").replace("\\$", "$") for word in shlex.split(text) if word != "%F"]


def entry_of(home: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(home / xdg.ENTRY, encoding="utf-8")
    assert parser.sections() == ["Desktop Entry"]
    return parser["Desktop Entry"]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_added_twice_and_removed_without_a_trace(home, capsys, monkeypatch) -> None:
    monkeypatch.setattr(xdg.shutil, "which", lambda name: None)  # what those programs write is theirs
    (home / "applications").mkdir(parents=True)
    (home / "applications" / "other.desktop").write_text("not ours", encoding="utf-8")
    before = files(home)
    assert main(["--install-desktop-entry"]) == 0
    assert "was added to the applications menu" in capsys.readouterr().out
    made = files(home)
    assert main(["--install-desktop-entry"]) == 0
    assert files(home) == made
    assert menu_entry.installed()
    assert len(made) == len(before) + 3 + len(ICON_SIZES)
    for size in ICON_SIZES:
        picture = QImage(str(home / f"icons/hicolor/{size}x{size}/apps/inglenook.png"))
        assert picture.width() == picture.height() == size
        assert picture.pixelColor(size // 2, size // 2).alpha() == 255
        assert picture.pixelColor(0, 0).alpha() < 128  # round corners
    assert main(["--uninstall-desktop-entry"]) == 0
    assert files(home) == before
    assert [path.name for path in home.iterdir()] == ["applications"]
    assert not menu_entry.installed()
    assert main(["--uninstall-desktop-entry"]) == 0
    assert "was not in" in capsys.readouterr().out


def test_the_entry_contains_the_start_command(home) -> None:
    menu_entry.install(home.parent / "my data")
    entry = entry_of(home)
    words = parsed_exec(entry["Exec"])
    assert Path(words[0]).is_absolute()
    assert words[-2:] == ["--data", str(home.parent / "my data")]
    assert Path(words[0]).parent == Path(sys.executable).parent
    shown = subprocess.run(
        [*words[:-2], "--version"],
        cwd=entry.get("Path", "/"),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert shown.stdout.startswith("inglenook ")
    assert entry["Exec"].endswith(" %F")
    assert entry["MimeType"] == "application/x-gguf;application/x-inglenook-chats+json;"
    if validator := shutil.which("desktop-file-validate"):
        assert (
            subprocess.run([validator, home / xdg.ENTRY], capture_output=True, text=True, check=False).stdout
            == ""
        )
    kinds = ElementTree.parse(home / "mime/packages/inglenook.xml").getroot()
    name = "{http://www.freedesktop.org/standards/shared-mime-info}"
    assert [kind.get("type") for kind in kinds.findall(f"{name}mime-type")] == [kind.mime for kind in KINDS]
    assert [glob.get("pattern") for glob in kinds.iter(f"{name}glob")] == ["*.gguf", "*.inglenook.json"]


def test_odd_names_are_quoted_according_to_the_specification() -> None:
    line = next(line for line in xdg.desktop_file(ODD).splitlines() if line.startswith("Exec="))
    assert parsed_exec(line.removeprefix("Exec=")) == list(ODD.command)


def test_a_clone_is_started_in_its_own_folder(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    start = starting()
    assert start.command == (str(tmp_path / "python"), "-m", "desktop")
    assert (Path(start.folder) / "desktop" / "__main__.py").is_file()
    (tmp_path / "inglenook").touch()
    assert starting() == Starting((str(tmp_path / "inglenook"),))


def test_a_folder_that_cannot_be_written_is_reported_in_one_sentence(home, capsys) -> None:
    home.touch()
    assert main(["--install-desktop-entry"]) == 1
    reported = capsys.readouterr().err
    assert reported.count("\n") == 1
    assert "cannot be added to the applications menu" in reported
    assert str(home) in reported


def test_the_application_of_macos(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(sys, "platform", "darwin")
    for _ in range(2):
        assert "was added to the applications" in menu_entry.install()
    contents = tmp_path / "Applications" / "Inglenook.app" / "Contents"
    with (contents / "Info.plist").open("rb") as file:
        assert plistlib.load(file) == macos.information()
    assert (contents / "MacOS" / "inglenook").stat().st_mode & 0o777 == 0o755
    assert (contents / "Resources" / "inglenook.icns").read_bytes()[:4] == b"icns"
    assert "was removed" in menu_entry.uninstall()
    assert not menu_entry.installed()
    contents.mkdir(parents=True)
    with pytest.raises(menu_entry.EntryError, match="was not created by Inglenook"):
        menu_entry.uninstall()
    assert shlex.split(macos.script(ODD).splitlines()[-1])[1:-1] == list(ODD.command)


def test_the_registry_and_the_shortcut_of_windows() -> None:
    start, icon = Starting(("C:\\My tools\\inglenook.exe", "--data", "D:\\it's mine")), Path("icon.ico")
    entries = windows.registry(start, icon)
    assert ("Software\\Classes\\.gguf\\OpenWithProgids", "Inglenook.Model", "") in entries
    command = '"C:\\My tools\\inglenook.exe" --data "D:\\it\'s mine" "%1"'
    assert ("Software\\Classes\\Inglenook.Model\\shell\\open\\command", "", command) in entries
    assert not [key for key, _, _ in entries if key.endswith(".json")]  # a JSON file's own program stays
    script = windows.shortcut_script(start, icon, Path("Inglenook.lnk"))
    assert "'--data \"D:\\it''s mine\"'" in script
    assert script.split("; ")[1:3] == [
        "$link.TargetPath = 'C:\\My tools\\inglenook.exe'",
        "$link.Arguments = '--data \"D:\\it''s mine\"'",
    ]
    assert script.endswith("$link.Save()")


class Registry(ModuleType):
    """Stands for `winreg`: the values of the current user by (key, name). A key goes only if it is empty."""

    HKEY_CURRENT_USER, REG_SZ, KEY_SET_VALUE = object(), 1, 2

    def __init__(self) -> None:
        super().__init__("winreg")
        self.values: dict[tuple[str, str], str] = {}
        self.keys = {"Software\\Classes\\.gguf"}

    def CreateKeyEx(self, _root: object, key: str) -> AbstractContextManager[str]:
        names = key.split("\\")
        self.keys |= {"\\".join(names[:count]) for count in range(3, len(names) + 1)}
        return nullcontext(key)

    def OpenKey(self, _root: object, key: str, access: int) -> AbstractContextManager[str]:
        assert access == self.KEY_SET_VALUE
        if key not in self.keys:
            raise FileNotFoundError(key)
        return nullcontext(key)

    def SetValueEx(self, key: str, name: str, _free: int, kind: int, text: str) -> None:
        assert kind == self.REG_SZ
        self.values[key, name] = text

    def DeleteValue(self, key: str, name: str) -> None:
        if self.values.pop((key, name), None) is None:
            raise FileNotFoundError(name)

    def DeleteKey(self, _root: object, key: str) -> None:
        if key not in self.keys:
            raise FileNotFoundError(key)
        assert not any(other.startswith(key + "\\") for other in self.keys), "Windows refuses this"
        self.keys.remove(key)
        self.values = {place: text for place, text in self.values.items() if place[0] != key}


def test_the_entry_on_windows_is_added_and_removed_without_a_trace(tmp_path, monkeypatch) -> None:
    found = Registry()
    monkeypatch.setitem(sys.modules, "winreg", found)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("APPDATA", str(tmp_path / "roaming"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    place, icon = windows.shortcut(), tmp_path / "local" / "Inglenook" / "inglenook.ico"
    assert place == tmp_path / "roaming/Microsoft/Windows/Start Menu/Programs/Inglenook.lnk"

    def powershell(command: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        assert command[0] == "powershell"
        place.parent.mkdir(parents=True)
        place.touch()
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(windows.subprocess, "run", powershell)
    start = Starting(("inglenook.exe",))
    assert "was added" in windows.install(start)
    assert icon.read_bytes()[:4] == b"\0\0\1\0"
    assert found.values == {(key, name): text for key, name, text in windows.registry(start, icon)}
    found.values["Software\\Classes\\.gguf\\OpenWithProgids", "Another.Program"] = ""
    assert "was removed" in windows.uninstall()
    assert not place.exists()
    assert not icon.exists()
    assert list(found.values) == [("Software\\Classes\\.gguf\\OpenWithProgids", "Another.Program")]
    assert not any("Inglenook" in key for key in found.keys)
    assert "was not in" in windows.uninstall()


def test_a_shortcut_that_powershell_does_not_create_is_reported(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(windows, "_icon", lambda: tmp_path / "icons" / "inglenook.ico")
    monkeypatch.setattr(windows, "shortcut", lambda: tmp_path / "Inglenook.lnk")
    for code in (0, 1):
        done = subprocess.CompletedProcess([], code)
        monkeypatch.setattr(windows.subprocess, "run", lambda *_args, done=done, **_options: done)
        with pytest.raises(menu_entry.EntryError, match="could not be created"):
            windows.install(Starting(("inglenook.exe",)))


def test_an_app_image_is_started_by_its_file_not_by_where_it_is_mounted(tmp_path, monkeypatch) -> None:
    mounted, image = tmp_path / "mount", tmp_path / "Inglenook.AppImage"
    (mounted / "usr").mkdir(parents=True)
    image.write_bytes(b"")
    environ = {"APPIMAGE": str(image), "APPDIR": str(mounted)}
    monkeypatch.setattr(sys, "executable", str(mounted / "usr" / "inglenook"))
    assert app_image(environ) is None  # a Python of somebody else's AppImage
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert app_image(environ) == image
    assert app_image({"APPIMAGE": str(image)}) is None
    assert app_image({**environ, "APPIMAGE": str(tmp_path / "gone")}) is None
    assert app_image({**environ, "APPDIR": str(tmp_path / "other")}) is None
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert starting(Path("/data")).command == (str(image), "--data", "/data")
