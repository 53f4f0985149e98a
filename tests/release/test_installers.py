"""The installers for Windows and macOS: their commands and scripts, without the systems that run them."""

from __future__ import annotations

import plistlib
import re
import sys
import types
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import yaml

from desktop.menu_entry.kinds import KINDS
from tests.release import __main__ as release_command
from tests.release import macos, windows
from tests.release.macos import make_dmg
from tests.release.plan import ROOT, PackagingError, Release
from tests.release.share import metainfo
from tests.release.windows import make_setup

SCRIPT = (ROOT / "tests/release/inglenook.iss").read_text(encoding="utf-8")


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Gets the commands instead of the system."""
    ran: list[list[str]] = []
    for module in (macos, windows):
        monkeypatch.setattr(module, "run", lambda words: ran.append([str(word) for word in words]))
    monkeypatch.setattr("platform.machine", lambda: "AMD64")
    monkeypatch.setattr("shutil.which", lambda name: f"/tools/{name}")
    return ran


def release(folder: Path, *, signed: bool = False, application: bool = False) -> Release:
    made = Release(
        folder / "work", folder / "out", "1.2", 1_700_000_000, signer="Ada" if signed else "",
        notary="profile" if signed else "",
    )  # fmt: skip
    made.out.mkdir(parents=True)
    (made.program / ("Contents/Frameworks" if application else "_internal")).mkdir(parents=True)
    return made


def test_every_name_that_the_script_takes_is_defined_and_the_installer_is_where_it_says(
    tmp_path, commands
) -> None:
    made = make_setup(release(tmp_path))
    assert made == tmp_path / "out" / "inglenook-1.2-windows-x86_64-setup.exe"
    ((compiler, *words),) = commands
    assert compiler == "/tools/ISCC"
    defined = dict(word.removeprefix("/D").split("=", 1) for word in words if word.startswith("/D"))
    taken = set(re.findall(r"\{#(\w+)\}", SCRIPT))
    assert taken == set(defined)
    assert (defined["Out"], defined["Name"]) == (str(made.parent), made.stem)
    assert (defined["Version"], defined["Day"]) == ("1.2", "2023-11-14")
    assert words[-1].endswith("inglenook.iss")
    assert not any("sign" in word for word in words)


def test_a_signed_installer_has_signed_programs(tmp_path, commands) -> None:
    make_setup(release(tmp_path, signed=True))
    *signings, compiling = commands
    assert [Path(words[-1]).name for words in signings] == ["inglenook.exe", "inglenook-engine.exe"]
    for words in signings:
        assert words[:4] == ["signtool", "sign", "/sha1", "Ada"]
        assert "/tr" in words
    assert "/DSign" in compiling
    (tool,) = (word for word in compiling if word.startswith("/Srelease="))
    assert tool.startswith("/Srelease=signtool sign /sha1 Ada ")
    assert tool.endswith(" $f")
    assert "#ifdef Sign\nSignTool=release\n" in SCRIPT


def test_without_inno_setup_it_says_what_to_install(tmp_path, commands, monkeypatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _name: None)
    with pytest.raises(PackagingError, match="winget install JRSoftware"):
        make_setup(release(tmp_path))
    assert commands == []


def test_the_script_opens_the_program_s_file_types_and_takes_none_over() -> None:
    for kind in KINDS:
        classes, ending = r"Software\Classes", "." + kind.suffix.rpartition(".")[2]
        named = rf'"{classes}\{kind.prog_id}"; ValueType: string; ValueData: "{kind.label}"'
        offered = rf'"{classes}\{ending}\OpenWithProgids"; ValueType: string; ValueName: "{kind.prog_id}"'
        assert named in SCRIPT
        assert offered in SCRIPT
    assert not re.search(r'Classes\\\.\w+";', SCRIPT)


def test_uninstalling_asks_before_it_deletes_chats() -> None:
    code = SCRIPT.split("[Code]")[1]
    assert code.index("MsgBox") < code.index("DelTree")
    assert "MB_DEFBUTTON2" in code
    assert "UninstallDelete" not in SCRIPT


def test_an_unsigned_disk_image_is_sealed_after_its_last_change(tmp_path, commands, monkeypatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    made = release(tmp_path, application=True)
    (made.inside / "licences").mkdir(parents=True)
    image = make_dmg(made)
    assert image == tmp_path / "out" / "inglenook-1.2-macos-AMD64.dmg"
    assert (made.program / "Contents/Frameworks/licences").resolve() == made.inside / "licences"
    assert [words[0] for words in commands] == ["codesign", "codesign", "hdiutil"]
    assert commands[0][:4] == ["codesign", "--force", "--sign", "-"]
    assert "--verify" in commands[1]
    assert commands[2][-1] == str(image)


def test_a_signed_disk_image_is_hardened_notarised_and_stapled(tmp_path, commands, monkeypatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    made = release(tmp_path, signed=True, application=True)
    image = str(make_dmg(made))
    shown = [" ".join(words[:3]) for words in commands]
    assert shown == [
        "codesign --force --sign", "codesign --verify --deep", "hdiutil create -volname",
        "codesign --force --sign", "xcrun notarytool submit", "xcrun stapler staple",
        "spctl --assess --type",
    ]  # fmt: skip
    assert {"runtime", "--timestamp", "--entitlements", "Ada"} <= set(commands[0])
    assert commands[3][-1] == commands[5][-1] == image
    assert commands[4][3:] == [image, "--keychain-profile", "profile", "--wait"]


def frozen(monkeypatch: pytest.MonkeyPatch, system: str, **environ: str) -> dict[str, list[dict[str, Any]]]:
    """What PyInstaller is asked for on a system: the named arguments of each call in the spec file."""
    asked: dict[str, list[dict[str, Any]]] = {}

    def called(kind: str) -> Any:
        def call(*_parts: Any, **named: Any) -> Any:
            asked.setdefault(kind, []).append(named)
            return types.SimpleNamespace(pure=[], scripts=[], binaries=[], datas=[])

        return call

    hooks = types.ModuleType("PyInstaller.utils.hooks")
    for name in ("collect_data_files", "collect_submodules", "copy_metadata"):
        setattr(hooks, name, lambda *_words, **_named: [])
    monkeypatch.setitem(sys.modules, "PyInstaller", types.ModuleType("PyInstaller"))
    monkeypatch.setitem(sys.modules, "PyInstaller.utils", types.ModuleType("PyInstaller.utils"))
    monkeypatch.setitem(sys.modules, "PyInstaller.utils.hooks", hooks)
    monkeypatch.setattr("sys.platform", system)
    for name, value in {"INGLENOOK_SIGNER": "", "INGLENOOK_ICONS": "/icons", **environ}.items():
        monkeypatch.setenv(name, value)
    file = ROOT / "tests/release/inglenook.spec"
    kinds = {kind: called(kind) for kind in ("Analysis", "PYZ", "EXE", "COLLECT", "BUNDLE")}
    exec(compile(file.read_text(encoding="utf-8"), file, "exec"), {"SPECPATH": str(file.parent), **kinds})
    return asked


def test_windows_has_a_program_without_a_terminal_and_one_for_it(monkeypatch) -> None:
    asked = frozen(monkeypatch, "win32")
    programs = {one["name"]: one for one in asked["EXE"]}
    assert {name: one["console"] for name, one in programs.items()} == {
        "inglenook": False, "inglenook-engine": True,
    }  # fmt: skip
    assert {Path(one["icon"]).name for one in programs.values()} == {"inglenook.ico"}
    assert {f"{name}.exe" for name in programs} == set(windows._PROGRAMS)
    assert "BUNDLE" not in asked


def test_macos_has_an_application_with_windows_whose_parts_are_signed(monkeypatch) -> None:
    asked = frozen(monkeypatch, "darwin", INGLENOOK_SIGNER="Ada", INGLENOOK_VERSION="1.2")
    (bundle,) = asked["BUNDLE"]
    assert asked["EXE"][0]["name"] == "inglenook", "the first is the one that a double click starts"
    # PyInstaller makes an application that shows no window, if the last program is for a terminal
    assert bundle["info_plist"]["LSBackgroundOnly"] is False
    assert (bundle["name"], bundle["version"], Path(bundle["icon"]).suffix) == (
        "Inglenook.app",
        "1.2",
        ".icns",
    )
    for one in asked["EXE"]:
        assert one["codesign_identity"] == "Ada"
        assert Path(one["entitlements_file"]) == ROOT / "tests/release/entitlements.plist"
    opened = [
        kind
        for one in bundle["info_plist"]["CFBundleDocumentTypes"]
        for kind in one["CFBundleTypeExtensions"]
    ]
    assert set(opened) == {kind.suffix.rpartition(".")[2] for kind in KINDS}


def test_the_flatpak_takes_and_renames_files_that_the_release_makes(tmp_path) -> None:
    from desktop.menu_entry.starting import Starting
    from desktop.menu_entry.xdg import write_files

    file = ROOT / "tests/release/org.inglenook.Inglenook.yml"
    manifest = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert manifest["id"] == file.stem == ElementTree.fromstring(metainfo("1", 0)).findtext("id")
    write_files(tmp_path, Starting(("inglenook",)))
    assert (tmp_path / "applications" / manifest["rename-desktop-file"]).is_file()
    assert list((tmp_path / "icons").rglob(f"{manifest['rename-icon']}.*"))
    (module,) = manifest["modules"]
    (mime,) = (tmp_path / "mime/packages").iterdir()
    assert 'icon name="inglenook"' in mime.read_text(encoding="utf-8")
    assert (
        f"mv share/mime/packages/{mime.name} share/mime/packages/{file.stem}.xml" in module["build-commands"]
    )
    work = release_command.parser().get_default("work")
    made = Release(work, work, "1", 0)
    found = {one["dest"]: (file.parent / one["path"]).resolve() for one in module["sources"]}
    assert found == {"program": made.program, "share": made.share}


def test_the_entitlements_allow_compiled_kernels_and_nothing_else() -> None:
    with (ROOT / "tests/release/entitlements.plist").open("rb") as file:
        allowed = plistlib.load(file)
    prefix = "com.apple.security.cs."
    assert allowed == {f"{prefix}allow-jit": True, f"{prefix}allow-unsigned-executable-memory": True}
