"""The recommended models: the list is complete, and what the hub says of them later is kept beside it."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from engine.errors import DownloadError
from engine.hub import HubFile, HubFiles, HubModel, Pick, load_picks, renew_picks
from engine.hub.catalogue import picks as module
from engine.hub.catalogue.search import check_id
from engine.hub.download.partial_dir import check_names
from engine.models.memory.fit import fit
from engine.settings import CacheSettings

HASH, COMMIT = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{40}")


def test_every_model_of_the_list_can_be_downloaded_and_judged() -> None:
    picks = load_picks()
    assert len({pick.repo for pick in picks.models}) == len(picks.models) >= 10
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", picks.updated)
    for pick in picks.models:
        check_id(pick.repo)
        check_names(pick.files)
        assert COMMIT.fullmatch(pick.revision), pick.name
        assert all(HASH.fullmatch(file.sha256) and file.size > 0 for file in pick.files), pick.name
        assert pick.choice.bytes == sum(file.size for file in pick.files)
        assert all((pick.licence, pick.maker, pick.about)), pick.name
        assert 0 < pick.active <= 1
        judged = fit(pick.info, CacheSettings(), 2 * pick.bytes, 40e9)
        assert pick.bytes < judged.total < pick.bytes + 4e9, pick.name
        assert judged.tokens_per_second > 0


def test_a_mixture_of_experts_is_judged_by_the_weights_that_a_token_reads() -> None:
    picks = {pick.name: pick for pick in load_picks().models}
    speeds = [
        fit(picks[name].info, CacheSettings(), 100e9, 40e9).tokens_per_second
        for name in ("Qwen3 30B-A3B", "Qwen3 32B")
    ]
    assert speeds[0] > 5 * speeds[1]


def test_what_the_numbers_of_headers_mean() -> None:
    pick = dataclasses.replace(load_picks().models[0], layers=3, kv_heads=2, head_dim=8, active=0.5)
    info, size = pick.info, sum(file.size for file in pick.files)
    assert (info.kv_bytes_per_token, info.kv_shapes) == (2 * 2 * 3 * 2 * 8, ((2, 8),) * 3)  # 16-bit numbers
    assert (info.layers, info.context_length, info.vocab_size) == (3, pick.context, pick.vocabulary)
    assert (info.format, info.weights_bytes, info.read_bytes) == ("gguf", size, size // 2)
    assert (info.path, info.name) == (f"{pick.repo}/{pick.files[0].name}", pick.name)
    choice = pick.choice
    assert (choice.format, choice.title, choice.files) == ("gguf", pick.quantisation, pick.files)
    assert (choice.model_id, choice.revision) == (pick.repo, pick.revision)


def hub(monkeypatch, **changed: tuple[HubFile, ...]) -> list[str]:
    """A hub that has the same files at another commit, but `changed` ones by the name of the repository's
    author; returns which repositories it was asked for.
    """
    asked: list[str] = []

    def model_files(repo: str, stop=None) -> HubFiles:
        asked.append(repo)
        pick = next(each for each in load_picks().models if each.repo == repo)
        files = changed.get(pick.maker, tuple(dataclasses.replace(each, size=7) for each in pick.files))
        return HubFiles(HubModel(repo, pick.maker), "b" * 40, files)

    monkeypatch.setattr(module, "model_files", model_files)
    return asked


def test_a_renewed_list_is_kept(monkeypatch, tmp_path: Path) -> None:
    asked = hub(monkeypatch, Meta=(HubFile("other.gguf", 9),))
    folder = tmp_path / "models"
    monkeypatch.setattr(module, "_today", lambda: "2999-01-02")
    renewed = renew_picks(folder)
    assert asked == [pick.repo for pick in renewed.models]
    again = load_picks(folder)
    assert again == renewed
    assert again.updated == "2999-01-02"
    by_maker: dict[str, Pick] = {pick.maker: pick for pick in again.models}
    assert (by_maker["IBM"].revision, by_maker["IBM"].bytes) == ("b" * 40, 7)
    shipped = {pick.maker: pick for pick in load_picks().models}
    assert by_maker["Meta"] == shipped["Meta"]  # its file has gone from the newest commit, not from its own


def test_a_renewed_model_comes_with_its_vision_encoder(monkeypatch, tmp_path: Path) -> None:
    (shipped,) = (pick for pick in load_picks().models if pick.name == "Gemma 3 4B")
    encoders = [HubFile("mmproj-model-f32.gguf", 9, "1" * 64), HubFile("mmproj-model-f16.gguf", 5, "2" * 64)]
    hub(monkeypatch, **{shipped.maker: (*shipped.files, *encoders)})
    monkeypatch.setattr(module, "_today", lambda: "2999-01-02")
    renew_picks(tmp_path)
    picks = {pick.name: pick for pick in load_picks(tmp_path).models}
    choice = picks["Gemma 3 4B"].choice
    assert choice.files == (*shipped.files, encoders[1])
    assert (choice.bytes, choice.vision_bytes) == (shipped.bytes + 5, 5)
    assert picks["Gemma 3 4B"].info == shipped.info  # its weights decide what fits, and how fast it is
    assert picks["Qwen3 0.6B"].choice.vision_bytes == 0


@pytest.mark.parametrize(
    "kept",
    [
        "",
        "[]",
        "{",
        json.dumps({"updated": "2000-01-01", "files": {}}),
        json.dumps({"updated": "2999-01-01"}),
        json.dumps({"updated": "2999-01-01", "files": []}),
        json.dumps({"updated": "2999-01-01", "files": {"Qwen/Qwen3-0.6B-GGUF": {"files": 3}}}),
    ],
)
def test_an_old_or_damaged_list_is_not_used(tmp_path: Path, kept: str) -> None:
    (tmp_path / module.RENEWED).write_text(kept)
    assert load_picks(tmp_path) == load_picks()


def test_a_model_whose_files_have_other_names_now_is_the_one_that_was_shipped(tmp_path: Path) -> None:
    first, second, *_ = load_picks().models
    kept = {
        pick.repo: {"revision": "c" * 40, "files": [{"name": name, "size": 5, "sha256": "d"}]}
        for pick, name in ((first, "another.gguf"), (second, second.files[0].name))
    }
    (tmp_path / module.RENEWED).write_text(json.dumps({"updated": "2999-01-01", "files": kept}))
    found = load_picks(tmp_path).models
    assert found[0] == first
    assert (found[1].revision, found[1].files[0].size) == ("c" * 40, 5)
    assert found[2:] == load_picks().models[2:]


def test_a_failed_renewal_changes_nothing(monkeypatch, tmp_path: Path) -> None:
    def model_files(repo: str, stop=None) -> HubFiles:
        raise DownloadError("There is no network.")

    monkeypatch.setattr(module, "model_files", model_files)
    with pytest.raises(DownloadError):
        renew_picks(tmp_path)
    assert list(tmp_path.iterdir()) == []
