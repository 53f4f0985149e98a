"""Downloads from a local hub: complete or absent, whatever fails."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.core import Downloaded, Downloading
from engine.errors import DownloadError
from engine.hub import (
    HubChoice,
    discard_download,
    download_model,
    model_choices,
    set_hub_token,
    set_offline,
    unfinished_downloads,
)
from engine.hub.download import download
from engine.hub.download import transfer as transfer_module
from engine.hub.download.partial_dir import NOTE, final_folder, lock_path, part_folder
from tests.engine.hub.hub_server import Hub, Repo, git_sha1, serving_hub

pytestmark = pytest.mark.loopback
DRAWN = np.random.default_rng(11)


def drawn(size: int) -> bytes:
    return DRAWN.integers(0, 256, size, dtype=np.uint8).tobytes()


GGUF = {"m-Q4_0-00001-of-00002.gguf": drawn(300_007), "m-Q4_0-00002-of-00002.gguf": drawn(150_001)}
FOLDER = {
    "config.json": b'{"model_type": "llama"}', "model-00001-of-00002.safetensors": drawn(200_003),
    "model-00002-of-00002.safetensors": drawn(70_001), "model.safetensors.index.json": b"{}" * 999,
    "tokenizer.json": drawn(30_000), "merges.txt": b"", "pytorch_model.bin": drawn(9),
    "additional_chat_templates/rag.jinja": b"{{ messages }}",
}  # fmt: skip


@pytest.fixture(autouse=True)
def repos(hub: Hub) -> None:
    hub.repos["a/gguf"] = Repo(dict(GGUF))
    hub.repos["a/folder"] = Repo(dict(FOLDER), commit="b" * 40)


def chosen(model: str = "a/gguf") -> HubChoice:
    return model_choices(model)[0]


def fetch(
    choice: HubChoice, folder: Path, stop: threading.Event | None = None
) -> list[Downloading | Downloaded]:
    return list(download_model(choice, folder, stop=stop))


@contextlib.contextmanager
def running(hub: Hub, choice: HubChoice, folder: Path, at: int) -> Iterator[None]:
    """A download that waits for its server after `at` bytes of a file; it is paused at the end."""
    hub.stalling(at)
    events = download_model(choice, folder)
    next(events)
    assert hub.stalled.wait(10)
    time.sleep(0.05)
    yield
    events.close()
    hub.going_on()


def paused(hub: Hub, choice: HubChoice, folder: Path, at: int = 100_000, before: int = 0) -> None:
    """A download paused after about `at` bytes of a file, after complete files of `before` bytes."""
    with running(hub, choice, folder, at):
        pass
    (waiting,) = unfinished_downloads(folder)
    assert at - (16 << 10) <= waiting.done - before <= at
    assert visible(folder) == []


def paused_in_second(hub: Hub, choice: HubChoice, folder: Path) -> None:
    """A download paused in its second file."""
    hub.break_after = [choice.files[0].size]
    paused(hub, choice, folder, 50_000, before=choice.files[0].size)


def refusal(choice: HubChoice, folder: Path) -> str:
    """The message of a download that must fail and leave no model."""
    with pytest.raises(DownloadError) as caught:
        fetch(choice, folder)
    text = str(caught.value)
    assert text.startswith(f"The model {choice.model_id} ({choice.title}) could not be ")
    assert text.endswith(".")
    assert "\n" not in text
    assert visible(folder) == []
    return text


def visible(folder: Path) -> list[str]:
    return (
        [path.name for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []
    )


def content(folder: Path) -> dict[str, bytes]:
    """The files of a finished model, without the note."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != NOTE
    }


def expected(choice: HubChoice) -> dict[str, bytes]:
    everything = {**GGUF, **FOLDER}
    return {file.name: everything[file.name] for file in choice.files}


@pytest.mark.parametrize(("model", "opened"), [("a/gguf", "m-Q4_0-00001-of-00002.gguf"), ("a/folder", "")])
def test_fresh(hub: Hub, tmp_path: Path, model: str, opened: str) -> None:
    choice, folder = chosen(model), tmp_path / "new" / "models"
    events = fetch(choice, folder)
    final = final_folder(folder, choice)
    assert events[-1] == Downloaded(str(final / opened))
    assert content(final) == expected(choice)
    assert os.listdir(folder) == [final.name]
    progress = [event for event in events if isinstance(event, Downloading)]
    assert {event.total for event in progress} == {choice.bytes}
    assert [event.done for event in progress] == sorted(event.done for event in progress)
    assert progress[-1].done == choice.bytes
    assert progress[0].stage.startswith(f"Downloading {choice.title}, file 1 of ")
    asked = [urllib.parse.unquote(asked.path) for asked in hub.asked if "/resolve/" in asked.path]
    assert asked == [f"/{model}/resolve/{choice.revision}/{file.name}" for file in choice.files if file.size]
    assert unfinished_downloads(folder) == []


def test_bit_widths_on_branches(hub: Hub, tmp_path: Path) -> None:
    """EXL2 repositories keep each bit width on its own branch, which is the choice."""
    widths = {
        f"{bits}.0bpw": {"config.json": b"{}", "output.safetensors": drawn(bits * 1000)} for bits in (4, 8, 6)
    }
    heads = {
        name: Repo(files, commit=f"{number}" * 40, facts={"safetensors": {"parameters": {}, "total": 9}})
        for number, (name, files) in enumerate(widths.items())
    }
    hub.repos["a/exl2"] = Repo(
        {"README.md": b"see the branches"}, branches={"empty": Repo({}, commit="e" * 40), **heads}
    )
    found = model_choices("a/exl2")
    assert [choice.title for choice in found] == ["4.0bpw", "6.0bpw", "8.0bpw"]
    assert [choice.title for choice in found if choice.recommended] == ["8.0bpw"]
    last = fetch(found[1], tmp_path)[-1]
    assert isinstance(last, Downloaded)
    assert content(Path(last.path)) == widths["6.0bpw"]
    fetch(found[0], tmp_path)
    assert len(visible(tmp_path)) == 2
    hub.repos["a/exl2"].branches = {}
    with pytest.raises(DownloadError, match="has no weights"):
        model_choices("a/exl2")


def test_default_folder(hub: Hub, tmp_path: Path) -> None:
    choice = chosen()
    last = list(download_model(choice))[-1]
    assert isinstance(last, Downloaded)
    assert Path(last.path).parent == final_folder(Path(os.environ["INGLENOOK_DATA"]) / "models", choice)


def test_a_finished_model_is_checked_but_not_requested_again(hub: Hub, tmp_path: Path) -> None:
    choice = chosen()
    first, before = fetch(choice, tmp_path)[-1], len(hub.asked)
    assert fetch(choice, tmp_path)[-1] == first
    assert len(hub.asked) == before


def test_a_vision_encoder_is_added_to_a_finished_model(hub: Hub, tmp_path: Path) -> None:
    final = final_folder(tmp_path, chosen())
    fetch(chosen(), tmp_path)
    encoder = drawn(90_001)
    hub.repos["a/gguf"].files["mmproj-F16.gguf"] = encoder
    hub.asked.clear()
    choice = chosen()
    assert choice.vision_bytes == 90_001
    assert fetch(choice, tmp_path)[-1] == Downloaded(str(final / "m-Q4_0-00001-of-00002.gguf"))
    assert content(final) == {**GGUF, "mmproj-F16.gguf": encoder}
    assert hub.ranges_asked("mmproj-F16.gguf") == [""]
    assert [hub.ranges_asked(name) for name in GGUF] == [[], []]
    assert unfinished_downloads(tmp_path) == []


@pytest.mark.parametrize(
    "harm", [lambda path: path.write_bytes(b"\1" * path.stat().st_size), lambda path: path.unlink()]
)
def test_a_damaged_model_is_fetched_again(hub: Hub, tmp_path: Path, harm: Any) -> None:
    choice = chosen()
    fetch(choice, tmp_path)
    harm(final_folder(tmp_path, choice) / choice.files[1].name)
    fetch(choice, tmp_path)
    assert content(final_folder(tmp_path, choice)) == expected(choice)
    assert len(os.listdir(tmp_path)) == 1


def test_a_foreign_folder_is_left_alone(hub: Hub, tmp_path: Path) -> None:
    choice = chosen()
    mine = final_folder(tmp_path, choice)
    mine.mkdir()
    (mine / "diary.txt").write_text("dear")
    with pytest.raises(DownloadError, match="was not downloaded by this program; move it"):
        fetch(choice, tmp_path)
    assert content(mine) == {"diary.txt": b"dear"}
    assert hub.ranges_asked(choice.files[0].name) == []


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("model", ["a/gguf", "a/folder"])
@pytest.mark.parametrize("ranges", [True, False])
def test_pauses_at_any_byte_give_the_same_files(hub: Hub, tmp_path: Path, model: str, ranges: bool) -> None:
    """Broken connections, closed generators and stops in random order at random places."""
    seed = random.Random(f"{model}{ranges}")
    choice, hub.ranges, hub.chunk = chosen(model), ranges, 10_000
    for _ in range(15):
        hub.break_after = [seed.randrange(1, 120_000) for _ in range(seed.randrange(3))]
        events, stop = download_model(choice, tmp_path), None
        for _ in range(seed.randrange(8)):
            if isinstance(next(events, Downloaded("")), Downloaded):
                break
        events.close()
        waiting = unfinished_downloads(tmp_path)
        assert len(waiting) + len(visible(tmp_path)) == 1 or not os.listdir(tmp_path)
        assert all(one.choice == choice and 0 <= one.done <= choice.bytes for one in waiting)
    hub.break_after = []
    fetch(choice, tmp_path, stop)
    assert content(final_folder(tmp_path, choice)) == expected(choice)
    assert len(os.listdir(tmp_path)) == 1


def test_resuming_requests_only_the_rest(hub: Hub, tmp_path: Path) -> None:
    choice = chosen()
    first, second = (file.name for file in choice.files)
    hub.break_after = [100_000, 1]
    fetch(choice, tmp_path)
    assert hub.ranges_asked(first) == ["", "bytes=100000-", "bytes=100001-"]
    assert hub.ranges_asked(second) == [""]


def test_finished_files_are_not_fetched_again_after_a_pause(hub: Hub, tmp_path: Path) -> None:
    choice = chosen()
    paused_in_second(hub, choice, tmp_path)
    fetch(choice, tmp_path)
    assert hub.ranges_asked(choice.files[0].name) == [""]
    assert content(final_folder(tmp_path, choice)) == expected(choice)


SCRIPT = """
import sys
from pathlib import Path
from engine.hub import download_model, model_choices
from engine.hub.download import transfer
transfer.CHUNK_BYTES = 16 << 10
choice = model_choices("a/gguf")[0]
for event in download_model(choice, Path(sys.argv[1])):
    print(event, flush=True)
"""


@pytest.mark.slow
def test_a_killed_download_resumes_at_the_next_start(hub: Hub, tmp_path: Path) -> None:
    hub.chunk, hub.chunk_pause = 5_000, 0.01
    root = Path(__file__).resolve().parents[3]
    choice, kills = chosen(), 0
    for wait in (0.1, 0.2):
        run = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path)], cwd=root, stdout=subprocess.PIPE, text=True
        )
        assert run.stdout is not None
        run.stdout.readline()
        time.sleep(wait)
        kills += run.poll() is None
        run.kill()
        run.wait()
        run.stdout.close()
    assert kills == 2
    (waiting,) = unfinished_downloads(tmp_path)
    assert (
        dataclasses.replace(waiting.choice, recommended=choice.recommended, fits_memory=choice.fits_memory)
        == choice
    )
    assert 0 < waiting.done < choice.bytes
    assert visible(tmp_path) == []
    hub.chunk_pause = 0.0
    fetch(choice, tmp_path)
    assert content(final_folder(tmp_path, choice)) == expected(choice)
    assert any(asked for asked in hub.ranges_asked(choice.files[0].name))


@pytest.mark.parametrize("stall_at", [0, 50_000])
def test_stop_ends_a_stalled_download(
    hub: Hub, tmp_path: Path, stall_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.hub.client.api.TIMEOUT_SECONDS", 10_000.0)
    choice, stop = chosen(), threading.Event()
    hub.stalling(stall_at)

    def stop_it() -> None:
        hub.stalled.wait(10)
        time.sleep(0.1)
        stop.set()

    stopper = threading.Thread(target=stop_it)
    stopper.start()
    with pytest.raises(DownloadError, match="it was stopped"):
        fetch(choice, tmp_path, stop)
    stopper.join()
    assert visible(tmp_path) == []
    hub.going_on()
    fetch(choice, tmp_path)
    assert content(final_folder(tmp_path, choice)) == expected(choice)


def test_going_offline_ends_a_running_download(hub: Hub, tmp_path: Path) -> None:
    choice = chosen()
    hub.stalling(50_000)
    events = download_model(choice, tmp_path)
    next(events)
    set_offline(True)
    with pytest.raises(DownloadError, match="working offline"):
        list(events)
    before = len(hub.asked)
    with pytest.raises(DownloadError, match="working offline"):
        fetch(choice, tmp_path)
    assert len(hub.asked) == before


def test_discarding_leaves_nothing(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "DISCARD_SECONDS", 0.1)
    choice = chosen()
    with running(hub, choice, tmp_path, 50_000), pytest.raises(DownloadError, match="in progress"):
        discard_download(choice, tmp_path)
    assert len(unfinished_downloads(tmp_path)) == 1
    discard_download(choice, tmp_path)
    assert os.listdir(tmp_path) == []
    discard_download(choice, tmp_path)
    discard_download(choice, tmp_path / "nowhere")


def test_discarding_waits_for_a_download_that_is_just_ending(hub: Hub, tmp_path: Path) -> None:
    choice = chosen()
    with running(hub, choice, tmp_path, 50_000):
        pass
    folder = part_folder(tmp_path, choice)
    with download._only_one(tmp_path, choice):
        other = threading.Thread(target=discard_download, args=(choice, tmp_path))
        other.start()
        time.sleep(0.2)
        assert folder.is_dir()
    other.join()
    assert os.listdir(tmp_path) == []


def test_discarding_keeps_a_finished_model(hub: Hub, tmp_path: Path) -> None:
    choice = chosen()
    fetch(choice, tmp_path)
    discard_download(choice, tmp_path)
    assert content(final_folder(tmp_path, choice)) == expected(choice)


def test_one_at_a_time(hub: Hub, tmp_path: Path) -> None:
    choice = chosen()
    with (
        running(hub, choice, tmp_path, 10_000),
        pytest.raises(DownloadError, match="another download of it is in progress"),
    ):
        fetch(choice, tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="an open file cannot be removed there")
@pytest.mark.parametrize("remade", [False, True])
def test_a_lock_that_its_owner_has_just_removed(hub: Hub, tmp_path: Path, monkeypatch, remade: bool) -> None:
    """The other download removes its lock, and a third may make a new one, before this one has it."""
    choice = chosen()

    @contextlib.contextmanager
    def late(file: Any) -> Iterator[None]:
        lock_path(tmp_path, choice).unlink()
        if remade:
            lock_path(tmp_path, choice).touch()
        yield

    monkeypatch.setattr(download, "locked", late)
    assert "another download of it is about to end; try again in a moment" in refusal(choice, tmp_path)


@pytest.mark.parametrize(
    "name", ["m-Q4_0-00002-of-00002.gguf", "config.json", "model-00001-of-00002.safetensors"]
)
def test_wrong_content(hub: Hub, tmp_path: Path, name: str) -> None:
    """One byte differs, in a large or a small file: it is neither published nor kept."""
    choice = chosen("a/gguf" if "gguf" in name else "a/folder")
    hub.spoil = lambda file, data: data[:5] + bytes([data[5] ^ 1]) + data[6:] if file == name else data
    assert f"{name}: the download does not match the size or hash that the server announced" in refusal(
        choice, tmp_path
    )
    hub.spoil = lambda file, data: data
    fetch(choice, tmp_path)
    assert content(final_folder(tmp_path, choice)) == expected(choice)


@pytest.mark.parametrize("change", [lambda data: data + b"more", lambda data: data[:-7], lambda data: b""])
def test_wrong_length(hub: Hub, tmp_path: Path, change: Any) -> None:
    choice = chosen()
    hub.spoil = lambda file, data: change(data)
    assert choice.files[0].name in refusal(choice, tmp_path)


def test_a_damaged_part_is_downloaded_again(hub: Hub, tmp_path: Path) -> None:
    choice = chosen()
    paused(hub, choice, tmp_path)
    part = part_folder(tmp_path, choice) / f"{choice.files[0].name}.part"
    part.write_bytes(b"\0" * part.stat().st_size)
    fetch(choice, tmp_path)
    assert content(final_folder(tmp_path, choice)) == expected(choice)


def test_the_commit_is_pinned(hub: Hub, tmp_path: Path) -> None:
    """The branch moves during a pause: the old commit is requested, and a hub without it says so."""
    choice = chosen()
    paused(hub, choice, tmp_path)
    hub.repos["a/gguf"] = Repo({name: drawn(len(data)) for name, data in GGUF.items()}, commit="c" * 40)
    assert "could not be downloaded: it has no such revision" in refusal(choice, tmp_path)


def test_resuming_at_a_newer_commit_keeps_unchanged_files(hub: Hub, tmp_path: Path) -> None:
    choice = chosen()
    first, second = (file.name for file in choice.files)
    paused_in_second(hub, choice, tmp_path)
    newer = drawn(len(GGUF[second]))
    hub.repos["a/gguf"] = Repo({first: GGUF[first], second: newer}, commit="c" * 40)
    fetch(chosen(), tmp_path)
    assert content(final_folder(tmp_path, choice)) == {first: GGUF[first], second: newer}
    assert hub.ranges_asked(first) == [""]
    assert hub.ranges_asked(second) == ["", ""]


def test_a_newer_commit_replaces_a_finished_model(hub: Hub, tmp_path: Path) -> None:
    fetch(chosen(), tmp_path)
    newer = {name: drawn(1000) for name in GGUF}
    hub.repos["a/gguf"] = Repo(newer, commit="c" * 40)
    choice = chosen()
    hub.statuses = [(404, {})]
    with pytest.raises(DownloadError):
        fetch(choice, tmp_path)
    assert content(final_folder(tmp_path, choice)) == GGUF
    fetch(choice, tmp_path)
    assert content(final_folder(tmp_path, choice)) == newer
    assert len(os.listdir(tmp_path)) == 1


@pytest.mark.parametrize(
    ("status", "headers", "sentence"),
    [
        (401, {"X-Error-Code": "GatedRepo"}, ": it is gated"), (403, {}, "may not be read at"),
        (404, {}, "was not found at"),
        (404, {"X-Error-Code": "EntryNotFound"}, "no longer has that file"),
        (429, {"Retry-After": "3600"}, "try again in 3600 seconds"),
        (401, {}, "or it is private"),
    ],
)  # fmt: skip
def test_refusals(hub: Hub, tmp_path: Path, status: int, headers: dict[str, str], sentence: str) -> None:
    choice = chosen()
    hub.statuses = [(status, headers)] * 9
    before = len(hub.asked)
    assert sentence in refusal(choice, tmp_path)
    assert len(hub.asked) - before == 1


def test_temporary_errors_are_retried(hub: Hub, tmp_path: Path) -> None:
    choice = chosen()
    hub.statuses = [(503, {}), (429, {"Retry-After": "1"}), (500, {})]
    start = time.monotonic()
    fetch(choice, tmp_path)
    assert time.monotonic() - start >= 1.0
    assert content(final_folder(tmp_path, choice)) == expected(choice)


def test_permanent_errors_are_reported(hub: Hub, tmp_path: Path) -> None:
    choice = chosen()
    hub.statuses = [(503, {})] * 50
    assert "has a problem (status 503)" in refusal(choice, tmp_path)
    assert 50 - len(hub.statuses) == transfer_module.TRIES


def test_redirects_do_not_carry_the_token(hub: Hub, tmp_path: Path) -> None:
    hub.token = "hf_secret"
    hub.repos["a/gguf"].gated = True
    set_hub_token("hf_secret")
    with serving_hub() as cdn:
        hub.cdn, cdn.break_after = cdn, [70_000]
        choice = chosen()
        fetch(choice, tmp_path)
        assert {asked.token for asked in hub.asked} == {"Bearer hf_secret"}
        assert {asked.token for asked in cdn.asked} == {""}
        assert [asked.range for asked in cdn.asked] == ["", "bytes=70000-", ""]
    assert content(final_folder(tmp_path, choice)) == expected(choice)


@pytest.mark.parametrize(
    "name", ["../m-Q4_0.gguf", "/tmp/m-Q4_0.gguf", "..\\m-Q4_0.gguf", ".ssh/m-Q4_0.gguf"]
)
def test_names_that_leave_the_folder(hub: Hub, tmp_path: Path, name: str) -> None:
    hub.repos["a/gguf"] = Repo({name: b"x" * 100})
    with pytest.raises(DownloadError, match="not a safe file name"):
        model_choices("a/gguf")
    good = chosen("a/folder")
    bad = dataclasses.replace(good, files=(dataclasses.replace(good.files[0], name=name), *good.files[1:]))
    assert "not a safe file name" in refusal(bad, tmp_path / "models")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="making links needs a right there")
@pytest.mark.parametrize("where", ["folder", "file", "subfolder"])
def test_links_are_not_followed(hub: Hub, tmp_path: Path, where: str) -> None:
    """Links lie where the download writes."""
    choice = chosen("a/folder")
    outside, models = tmp_path / "outside", tmp_path / "models"
    outside.mkdir()
    models.mkdir()
    (outside / "own").write_text("own")
    part = part_folder(models, choice)
    if where == "folder":
        part.symlink_to(outside)
    else:
        paused(hub, choice, models)
        if where == "file":
            (part / f"{choice.files[1].name}.part").symlink_to(outside / "own")
        else:
            (part / "additional_chat_templates").symlink_to(outside)
    assert "delete it and try again" in refusal(choice, models)
    discard_download(choice, models)
    assert content(outside) == {"own": b"own"}
    assert os.listdir(models) == []


def test_disk_space_is_checked_first(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = chosen()
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=(32 << 20) + choice.bytes - 1))
    before = len(hub.asked)
    assert f"it needs 34 MB more in {tmp_path}, but only 34 MB are free there" in refusal(choice, tmp_path)
    assert len(hub.asked) == before
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=(32 << 20) + choice.bytes))
    fetch(choice, tmp_path)


def test_space_for_the_rest_is_enough(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = chosen()
    paused(hub, choice, tmp_path)
    (waiting,) = unfinished_downloads(tmp_path)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: usage._replace(free=(32 << 20) + choice.bytes - waiting.done)
    )
    fetch(choice, tmp_path)


def test_a_disk_that_fills_up(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = chosen()

    def full(*rest: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("engine.hub.download.transfer._one_try", full)
        assert f"could not be saved: the disk of {tmp_path} is full" in refusal(choice, tmp_path)
    fetch(choice, tmp_path)
    assert content(final_folder(tmp_path, choice)) == expected(choice)


def test_the_cache_of_the_hubs_own_tools_is_used(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that `hf download` fetched at this commit is used unless it is damaged."""
    choice = chosen("a/folder")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    snapshot = tmp_path / "cache" / "models--a--folder" / "snapshots" / choice.revision
    for file in choice.files:
        (snapshot / file.name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / file.name).write_bytes(FOLDER[file.name])
    before = len(hub.asked)
    assert fetch(choice, tmp_path / "models")[-1] == Downloaded(str(snapshot))
    assert len(hub.asked) == before
    (snapshot / "config.json").write_bytes(b'{"model_type": "LLAMA"}')
    fetch(choice, tmp_path / "models")
    assert content(final_folder(tmp_path / "models", choice)) == expected(choice)


def test_notes_that_cannot_be_trusted(hub: Hub, tmp_path: Path) -> None:
    """Notes that lead elsewhere, are not JSON or never end are ignored; the next try starts afresh."""
    choice = chosen()
    paused(hub, choice, tmp_path)
    note = part_folder(tmp_path, choice) / NOTE
    data = json.loads(note.read_text("utf-8"))
    bad_name = {**data, "files": [{**data["files"][0], "name": "../../x.gguf"}]}
    negative = {**data, "files": [{**data["files"][0], "size": -5}]}
    texts = [json.dumps(note) for note in (bad_name, negative, {**data, "files": []}, {**data, "more": 1})]
    for text in (*texts, "{", "[]", "null", '{"files": 3}', "[" * 100_000):
        note.write_text(text, "utf-8")
        assert unfinished_downloads(tmp_path) == []
    fetch(choice, tmp_path)
    assert content(final_folder(tmp_path, choice)) == expected(choice)


def test_files_without_a_stated_hash_are_checked_by_size(hub: Hub, tmp_path: Path) -> None:
    choice = chosen()
    bare = dataclasses.replace(
        choice, files=tuple(dataclasses.replace(file, sha256="") for file in choice.files)
    )
    fetch(bare, tmp_path)
    assert content(final_folder(tmp_path, bare)) == expected(bare)


def test_git_hashes_match_git(tmp_path: Path) -> None:
    """`git hash-object` of "hello\\n", as documented in many places."""
    assert git_sha1(b"hello\n") == "ce013625030ba8dba906f756967f9e9ca394464a"
    hasher = transfer_module.new_hash("git-sha1", 6)
    hasher.update(b"hello\n")
    assert hasher.hexdigest() == "ce013625030ba8dba906f756967f9e9ca394464a"
    assert transfer_module.new_hash("sha256", 3).hexdigest() == hashlib.sha256().hexdigest()
