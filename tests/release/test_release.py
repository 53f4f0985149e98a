"""What packages are made of: pinned versions, metadata, licences, sizes. A package itself is made by hand."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import tarfile
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from engine.hub.updates.manifest import read_manifest
from tests.release import __main__ as release_command
from tests.release import archives, build, compare, licences, plan, updates
from tests.release.archives import make_archive
from tests.release.licences import bill_of_materials
from tests.release.plan import LIST_NAME, ROOT, PackagingError, Release, maintainer, run, source_time, version
from tests.release.program import forget_scripts, libraries, normalise
from tests.release.share import metainfo

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LEFT_OUT = {"torch", "hf-xet", "pyyaml", "shellingham", "typer", "rich"}
"""What the processor's path and the window never import."""


def key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned() -> dict[str, str]:
    lines = (ROOT / "tests/release/requirements.txt").read_text(encoding="utf-8").splitlines()
    wanted = [Requirement(line) for line in lines if not line.startswith("#")]
    return {key(one.name): str(one.specifier).removeprefix("==") for one in wanted}


def release(folder: Path, starter: Path | None = None) -> Release:
    made = Release(folder / "work", folder / "out", "1.2", 1_700_000_000, starter, "A B <a@example.org>")
    made.program.mkdir(parents=True)
    made.out.mkdir()
    return made


def test_pinned_versions_are_those_that_the_project_allows() -> None:
    have = pinned()
    for line in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["release"]]:
        wanted = Requirement(line)
        if key(wanted.name) not in LEFT_OUT:
            assert wanted.specifier.contains(have[key(wanted.name)]), line


def test_nothing_that_a_pinned_package_needs_is_missing() -> None:
    have = pinned()
    for name in have:
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for building, or for another system
        for need in map(Requirement, needs):
            applies = need.marker is None or need.marker.evaluate({"extra": ""})
            assert not applies or key(need.name) in {*have, *LEFT_OUT}, f"{name} needs {need}"


def test_metadata_names_the_release_and_only_a_known_site() -> None:
    plain = ElementTree.fromstring(metainfo("1.2", 1_700_000_000))
    found = plain.find("releases/release")
    assert found is not None
    assert found.attrib == {"version": "1.2", "date": "2023-11-14"}
    assert plain.find("url") is None
    assert plain.find("screenshots") is None
    with_site = ElementTree.fromstring(metainfo("1.2", 0, "https://example.org/x"))
    assert [image.text for image in with_site.iter("image")] == [
        "https://example.org/x/chat-light.png", "https://example.org/x/chat-dark.png",
    ]  # fmt: skip
    for name in ("chat-light.png", "chat-dark.png"):
        assert (ROOT / "resources/screenshots" / name).is_file()


def test_metadata_names_the_file_types_that_the_program_opens() -> None:
    from desktop.menu_entry.kinds import KINDS

    provided = ElementTree.fromstring(metainfo("1", 0)).findall("provides/mediatype")
    assert [one.text for one in provided] == [kind.mime for kind in KINDS]


def test_the_control_file_declares_what_qt_needs(tmp_path) -> None:
    from desktop.preflight import DEBIAN_PACKAGES

    text = archives._control(release(tmp_path), 77)
    fields = dict(line.split(": ", 1) for line in text.splitlines() if not line.startswith(" "))
    assert fields["Version"] == "1.2"
    assert fields["Installed-Size"] == "77"
    assert fields["Maintainer"] == "A B <a@example.org>"
    assert set(DEBIAN_PACKAGES.split()) <= set(fields["Depends"].split(", "))
    assert all(line.startswith(" ") for line in text.split("Description: ")[1].splitlines()[1:])


def test_an_archive_has_the_same_bytes_whenever_it_is_made(tmp_path) -> None:
    if shutil.which("zstd") is None:
        pytest.skip("zstd is not installed")
    digests = []
    for number in range(2):
        made = release(tmp_path / str(number))
        for name in ("b", "a") if number else ("a", "b"):
            (made.program / name).write_text(name, encoding="utf-8")
        (made.program / "a").chmod(0o700)
        (made.program / "link").symlink_to("a")
        normalise(made.program, made.epoch)
        path = make_archive(made)
        digests.append(hashlib.sha256(path.read_bytes()).hexdigest())
    assert digests[0] == digests[1]
    assert path.name == "inglenook-1.2-linux-x86_64.tar.zst"
    plain = tmp_path / "plain.tar"
    run(["zstd", "-d", "-q", path, "-o", plain])
    with tarfile.open(plain) as archive:
        entries = {entry.name: entry for entry in archive}
    assert sorted(entries) == ["inglenook-1.2", *(f"inglenook-1.2/{name}" for name in ("a", "b", "link"))]
    assert entries["inglenook-1.2/a"].mode == 0o755
    assert entries["inglenook-1.2/b"].mode == 0o644
    assert {entry.mtime for entry in entries.values()} == {made.epoch}
    assert {entry.uid for entry in entries.values()} == {0}


def test_a_package_with_the_starter_says_so(tmp_path) -> None:
    assert release(tmp_path, Path("x.gguf")).name == "inglenook-1.2-starter"


def test_a_package_larger_than_allowed_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(build, "MAX_BYTES", {False: 3, True: 4})
    package = tmp_path / "x.deb"
    package.write_bytes(b"1234")
    build.check_size(package, starter=True)
    with pytest.raises(PackagingError, match=r"x\.deb has 4 bytes; at most 3 are allowed"):
        build.check_size(package, starter=False)


def test_checksums_are_those_of_all_packages(tmp_path) -> None:
    for name in ("b.deb", "a.tar.zst"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    for _ in range(2):
        build.write_checksums(tmp_path)
    lines = (tmp_path / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    assert lines == [f"{hashlib.sha256(n.encode()).hexdigest()}  {n}" for n in ("a.tar.zst", "b.deb")]


def test_times_are_set_where_those_of_links_cannot_be(tmp_path, monkeypatch) -> None:
    """As on Windows, whose os.utime cannot have follow_symlinks=False."""

    def utime(path: Path, times: tuple[int, int], *, follow_symlinks: bool = True) -> None:
        if not follow_symlinks:
            raise OSError("follow_symlinks is unavailable")
        set_time(path, times)

    set_time = os.utime
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    monkeypatch.setattr(os, "utime", utime)
    normalise(tmp_path, 1_700_000_000)
    for path in (tmp_path, tmp_path / "deep", tmp_path / "deep" / "a"):
        assert path.stat().st_mtime == 1_700_000_000


@pytest.mark.parametrize("site", ["", "https://example.org"])
def test_the_screenshots_of_the_metadata_are_published(tmp_path, monkeypatch, site) -> None:
    made = Release(tmp_path / "work", tmp_path / "out", "1.2", 0, site=site)
    made.program.mkdir(parents=True)
    made.tree.mkdir()
    (made.tree / "resources").symlink_to(ROOT / "resources")
    monkeypatch.setattr(build.share, "main", lambda *_words: 0)
    monkeypatch.setattr(build, "make_program", lambda _release: None)
    monkeypatch.setattr(build, "add_licences", lambda release: release.out / "x.cdx.json")
    assert build.build(made, ()) == [made.out / "x.cdx.json"]
    pictures = {image.text for image in ElementTree.fromstring(metainfo("1.2", 0, site)).iter("image")}
    published = {f"{site}/{path.name}" for path in made.out.glob("*.png")}
    assert published == pictures
    sums = (made.out / "SHA256SUMS").read_text(encoding="utf-8")
    assert all(path.name in sums for path in made.out.glob("*.png"))


def test_the_bill_of_materials_is_the_same_for_the_same_parts(tmp_path) -> None:
    parts = [{"bom-ref": "pkg:pypi/x@1", "name": "x", "version": "1"}]
    made = release(tmp_path)
    one, two = (bill_of_materials(made, parts) for _ in range(2))
    assert one == two
    other = bill_of_materials(made, [{"bom-ref": "pkg:pypi/x@2", "name": "x", "version": "2"}])
    assert other["serialNumber"] != one["serialNumber"]
    assert one["dependencies"] == [{"ref": "inglenook", "dependsOn": ["pkg:pypi/x@1"]}]


def test_the_maintainer_is_whom_debian_tools_name_or_the_author_of_the_commit(monkeypatch, tmp_path) -> None:
    author = ("-c", "user.name=Grace Author", "-c", "user.email=grace@example.org")
    for command in (("init", "--quiet"), (*author, "commit", "--quiet", "--allow-empty", "-m", "First")):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    monkeypatch.setattr(plan, "ROOT", tmp_path)
    monkeypatch.setenv("DEBFULLNAME", "Ada Example")
    monkeypatch.delenv("DEBEMAIL", raising=False)
    assert maintainer() == "Grace Author <grace@example.org>"
    monkeypatch.setenv("DEBEMAIL", "ada@example.org")
    assert maintainer() == "Ada Example <ada@example.org>"


def test_the_build_gets_all_that_the_command_was_told(tmp_path, monkeypatch) -> None:
    built = []
    monkeypatch.setattr(build, "build", lambda release, kinds: built.append((release, kinds)) or [])
    given = [
        "--inside", "77", "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work"),
        "--model", "x.gguf",
        "--maintainer", "A B <a@example.org>", "--site", "https://example.org/x/", "--update-key", "KEY",
        "--signer", "Ada", "--notary", "profile",
        "--packages", *release_command.KINDS,
    ]  # fmt: skip
    assert release_command.main(given) == 0
    expected = Release(
        tmp_path / "work", tmp_path / "out", version(), 77, Path("x.gguf"), "A B <a@example.org>",
        "https://example.org/x", "KEY", "Ada", "profile",
    )  # fmt: skip
    assert built == [(expected, release_command.KINDS)]


def test_the_bill_of_materials_names_the_starter_model_that_is_inside(tmp_path) -> None:
    assert not list(licences._model(release(tmp_path)))
    (part,) = licences._model(release(tmp_path / "x", Path("x.gguf")))
    about = json.loads((ROOT / "resources/starter.json").read_text(encoding="utf-8"))
    assert (part["type"], part["name"]) == ("machine-learning-model", about["name"])
    assert part["licenses"] == [{"expression": "Apache-2.0"}]
    assert part["hashes"] == [{"alg": "SHA-256", "content": about["sha256"]}]


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="no packages of Debian are known here")
def test_licences_of_debian_packages_are_copied_with_their_versions(tmp_path) -> None:
    parts = list(licences._debian_parts(["libc6", "no-such-package"], tmp_path))
    assert [part["name"] for part in parts] == ["libc6"]
    assert "GNU C Library" in (tmp_path / "libc6.txt").read_text(encoding="utf-8")
    assert parts[0]["purl"].startswith("pkg:deb/debian/libc6@2.")


@pytest.mark.skipif(shutil.which("readelf") is None, reason="binutils is not installed")
def test_a_library_that_needs_a_newer_c_library_is_refused(tmp_path, monkeypatch) -> None:
    made = release(tmp_path)
    found = next(Path(name) for name in ("/lib", "/lib64") for name in Path(name).rglob("libm.so.6"))
    shutil.copyfile(found, made.program / "libm.so.6")
    build.check_libc(made.program)
    monkeypatch.setattr(build, "LIBC", (2, 1))
    with pytest.raises(PackagingError, match=r"libm\.so\.6 needs glibc 2\.\d+, newer than 2\.1"):
        build.check_libc(made.program)


def test_torch_stays_outside() -> None:
    assert "torch" not in pinned()
    assert not any(name.startswith(("nvidia", "cuda", "numba-cuda", "triton")) for name in pinned())
    spec = (ROOT / "tests/release/inglenook.spec").read_text(encoding="utf-8")
    (names,) = (
        ast.literal_eval(line.value)
        for line in ast.parse(spec).body
        if isinstance(line, ast.Assign) and getattr(line.targets[0], "id", "") == "UNUSED_MODULES"
    )
    assert {"torch", "numba.cuda", "numba_cuda"} <= set(names)


def test_a_folder_with_torch_inside_is_refused(tmp_path) -> None:
    made = release(tmp_path)
    (made.program / "_internal" / "numpy").mkdir(parents=True)
    build.check_left_out(made.program)
    (made.program / "_internal" / "torch").mkdir()
    with pytest.raises(PackagingError, match="torch is inside"):
        build.check_left_out(made.program)


def test_a_missing_tool_is_named_with_what_installs_it() -> None:
    with pytest.raises(PackagingError, match=r"no-such-program is missing; .*sudo apt install"):
        run(["no-such-program"])


def test_a_failed_step_shows_what_it_printed() -> None:
    with pytest.raises(PackagingError, match=r"exit code 3:\nwhy"):
        run(["sh", "-c", "echo why; exit 3"])


def test_the_time_of_a_release_can_be_given(monkeypatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "123")
    assert source_time() == 123
    assert version() == PROJECT["version"]


def test_a_signed_list_of_updates_is_what_the_program_reads(tmp_path, capsys) -> None:
    folder, key, notes = tmp_path / "dist", tmp_path / "key.pem", tmp_path / "notes.md"
    folder.mkdir()
    notes.write_text("- Füller notes", encoding="utf-8")
    for name in (
        "inglenook-1.2-x86_64.AppImage", "inglenook-1.2-starter-x86_64.AppImage", "inglenook_1.2_amd64.deb",
        "inglenook-1.2-linux-x86_64.tar.zst", "inglenook-1.2-linux.cdx.json", "SHA256SUMS",
    ):  # fmt: skip
        (folder / name).write_text(name, encoding="utf-8")
    assert updates.main(["key", str(key)]) == 0
    public = capsys.readouterr().out.strip()
    assert key.stat().st_mode & 0o077 == 0 or os.name == "nt"
    assert updates.main(["sign", "--key", str(key), "--notes", str(notes), str(folder)]) == 0
    update = read_manifest((folder / LIST_NAME).read_bytes(), f"https://x/{LIST_NAME}", (public,))
    assert (update.version, update.notes) == ("1.2", "- Füller notes")
    assert len(update.packages) == 4
    for starter, name in ((False, "1.2-x86_64"), (True, "1.2-starter-x86_64")):
        package = update.package("appimage", starter)
        assert package is not None
        content = (folder / f"inglenook-{name}.AppImage").read_bytes()
        assert package.url == f"https://x/inglenook-{name}.AppImage"
        assert (package.bytes, package.sha256) == (len(content), hashlib.sha256(content).hexdigest())
        assert package.starter is starter
    (folder / "inglenook-1.3-x86_64.AppImage").touch()
    assert updates.main(["sign", "--key", str(key), "--notes", str(notes), str(folder)]) == 1
    assert "packages of 2 versions" in capsys.readouterr().err


def test_what_differs_between_two_builds_is_listed(tmp_path, capsys) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        (folder / "deep").mkdir(parents=True)
        for name in ("same", "changed", "program", "deep/late"):
            (folder / name).write_text(name, encoding="utf-8")
        (folder / "link").symlink_to("same")
        normalise(folder, 1_700_000_000)
    assert compare.main([str(one), str(other)]) == 0
    assert capsys.readouterr().out == "nothing differs\n"
    (other / "changed").write_text("Changed", encoding="utf-8")
    os.utime(other / "changed", (1_700_000_000, 1_700_000_000))
    (other / "program").chmod(0o755)
    os.utime(other / "deep/late", (1, 1))
    (other / "link").unlink()
    (other / "link").symlink_to("changed")
    os.utime(other / "link", (1_700_000_000, 1_700_000_000), follow_symlinks=False)
    (one / "more").touch()
    assert compare.main([str(one), str(other)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"only in {one}: more", "changed: content", "deep/late: time", "link: content",
        "program: permissions",
    ]  # fmt: skip


def test_lists_of_files_name_no_scripts_of_the_build_s_environment(tmp_path) -> None:
    record = tmp_path / "x-1.dist-info" / "RECORD"
    record.parent.mkdir()
    note = record.with_name("direct_url.json")
    note.write_text('{"url": "file:///where/it/was/built"}', encoding="utf-8")
    record.write_text(
        "../../../bin/x,sha256=abc,1\nx-1.dist-info/direct_url.json,sha256=fed,3\nx/__init__.py,sha256=def,2\n",
        encoding="utf-8",
    )
    forget_scripts(tmp_path)
    assert not note.exists()
    assert record.read_text(encoding="utf-8") == "x/__init__.py,sha256=def,2\n"


def test_libraries_are_told_from_kernels_with_similar_names(tmp_path: Path) -> None:
    found = ["libQt6Core.so.6", "libm.so", "module.cpython-311-x86_64-linux-gnu.so", "x.abi3.so.6.11"]
    for name in (*found, "pointwise.soft_cap-180.py311.1.nbc", "notes.so.txt"):
        (tmp_path / name).touch()
    (tmp_path / "link.so").symlink_to("libm.so")
    assert [path.name for path in libraries(tmp_path)] == sorted(found)
    for name in found:
        (tmp_path / name).unlink()
    build.check_libc(tmp_path)  # nothing is left for readelf, which takes libraries alone
