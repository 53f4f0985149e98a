"""Search and listing, with a local hub over real HTTP."""

from __future__ import annotations

import hashlib
import socket
import threading
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from engine.errors import DownloadError
from engine.hub import model_choices, model_files, search_models, set_hub_token, set_offline
from engine.hub.catalogue import search
from engine.hub.catalogue.models import HubModel
from engine.hub.catalogue.search import model_id_of
from engine.hub.client import api
from engine.models.architectures.drafters.names import CLASSES as DRAFTERS
from tests.engine.hub.hub_server import Hub, Repo, git_sha1

pytestmark = pytest.mark.loopback


def repo(tags: str = "gguf", **facts: Any) -> Repo:
    return Repo({}, facts={"tags": tags.split(), **facts})


def test_models_of_all_formats_in_one_order(hub: Hub) -> None:
    """One request for each format; the lists are merged by downloads without duplicates."""
    kinds = (
        ("a/one", "gguf", 5),
        ("b/two", "safetensors", 9),
        ("c/both", "gguf safetensors", 7),
        ("d/none", "onnx", 99),
        ("e/old", "pytorch", 3),
        ("f/twice", "safetensors pytorch", 2),
    )
    for name, tags, downloads in kinds:
        hub.repos[name] = repo(tags, downloads=downloads, pipeline_tag="text-generation")
    assert [model.id for model in search_models("")] == ["b/two", "c/both", "a/one", "e/old", "f/twice"]
    assert [model.formats for model in search_models("")[3:]] == [("pytorch",), ("safetensors",)]
    assert [model.id for model in search_models("", formats=("pytorch",))] == ["e/old", "f/twice"]
    assert [model.id for model in search_models("", formats=("gguf",))] == ["c/both", "a/one"]
    assert [model.id for model in search_models("O", limit=2)] == ["b/two", "c/both"]


OLD, NEW = "2024-01-01T00:00:00.000Z", "2026-01-01T00:00:00.000Z"
PLAIN = {"downloads": 1, "likes": 1, "lastModified": OLD, "createdAt": OLD, "trendingScore": 1}


@pytest.mark.parametrize(
    ("sort", "first"),
    [("downloads", "a/x"), ("likes", "b/x"), ("updated", "c/x"), ("created", "d/x"), ("trending", "e/x")],
)
def test_orders(hub: Hub, sort: str, first: str) -> None:
    for author, key in zip("abcde", PLAIN, strict=True):
        facts = {**PLAIN, key: NEW if PLAIN[key] == OLD else 5}
        hub.repos[f"{author}/x"] = repo(
            "gguf" if author in "ace" else "safetensors", **facts, pipeline_tag="text-generation"
        )
    assert search_models("x", sort=sort)[0].id == first


def test_facts(hub: Hub) -> None:
    hub.repos["a/g"] = repo(
        "gguf license:apache-2.0 en", downloads=12345, likes=67, gated="auto", pipeline_tag="text-generation",
        gguf={"total": 134515008, "architecture": "llama", "context_length": 8192},
    )  # fmt: skip
    hub.repos["b/s"] = repo(
        "safetensors license:other", downloads=1, pipeline_tag="text-generation",
        config={"model_type": "qwen3", "quantization_config": {"quant_method": "gptq"}},
        safetensors={"parameters": {"BF16": 100}, "total": 100},
    )  # fmt: skip
    one, two = search_models("")
    assert (one.id, one.author, one.downloads, one.likes, one.licence, one.gated) == (
        "a/g",
        "a",
        12345,
        67,
        "apache-2.0",
        True,
    )
    assert (one.architecture, one.parameters, one.formats, one.updated[:10]) == (
        "llama",
        134515008,
        ("gguf",),
        "2026-03-04",
    )
    assert (two.architecture, two.parameters, two.quantisation, two.gated) == ("qwen3", 100, "gptq", False)


def test_drafters_are_told_from_models(hub: Hub) -> None:
    text = {"pipeline_tag": "text-generation"}
    hub.repos["a/model"] = repo(
        "safetensors", downloads=9, config={"architectures": ["LlamaForCausalLM"]}, **text
    )
    tags = "safetensors base_model:org/Llama-8B base_model:finetune:org/Llama-8B"
    hub.repos["b/drafter"] = repo(tags, downloads=8, config={"architectures": [DRAFTERS[0]]}, **text)
    hub.repos["c/gguf"] = repo(
        "gguf base_model:quantized:org/Llama-8B", downloads=7, gguf={"architecture": "eagle3"}
    )
    hub.repos["e/blocks"] = repo(
        "safetensors", downloads=5, config={"architectures": ["DFlashDraftModel"]}, **text
    )
    hub.repos["d/odd"] = repo("safetensors", downloads=6, config={"architectures": "Eagle3"}, **text)
    assert [(model.id, model.drafter, model.base) for model in search_models("")] == [
        ("a/model", "", ""), ("b/drafter", "EAGLE-3", "org/Llama-8B"), ("c/gguf", "EAGLE-3", "org/Llama-8B"),
        ("d/odd", "", ""), ("e/blocks", "DFlash", ""),
    ]  # fmt: skip


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_class_of_drafters_is_known(name: str) -> None:
    assert search.drafter_of([name]) == "EAGLE-3"
    assert search.drafter_of([name.lower().replace("eagle3", ""), None, 3]) == ""


def test_requests_match_the_hubs_own_library(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """`huggingface_hub` sends the same paths and parameters, and gets the same files and hashes."""
    import huggingface_hub
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    hub.repos["a/b"] = Repo(
        {"config.json": b"{}", "m.gguf": b"w" * 1000}, facts={"tags": ["gguf"], "downloads": 3}
    )
    search_models("b", limit=100, sort="updated", formats=("gguf",))
    listing = model_files("a/b", "main")
    mine, before = [urllib.parse.urlsplit(asked.path) for asked in hub.asked], len(hub.asked)
    library = huggingface_hub.HfApi(endpoint=hub.url, token=False)
    expanded: Any = list(search._EXPANDED)
    found = list(
        library.list_models(filter=["gguf"], search="b", sort="last_modified", limit=100, expand=expanded)
    )
    info = library.model_info("a/b", revision="main", files_metadata=True)
    huggingface_hub.close_session()
    theirs = [urllib.parse.urlsplit(asked.path) for asked in hub.asked[before:]]
    assert [asked.path for asked in mine] == [asked.path for asked in theirs]
    for our, their in zip(mine, theirs, strict=True):
        questions = [
            (name, value) for name, value in urllib.parse.parse_qsl(our.query) if name != "direction"
        ]
        assert sorted(questions) == sorted(urllib.parse.parse_qsl(their.query))
    assert [model.id for model in found] == ["a/b"]
    expected = [
        (file.rfilename, file.size, file.lfs.sha256 if file.lfs else "") for file in info.siblings or ()
    ]
    assert expected == [(file.name, file.size, file.sha256) for file in listing.files]
    assert info.sha == listing.revision


def test_other_tasks_are_left_out_and_further_pages_requested(hub: Hub) -> None:
    for number in range(25):
        hub.repos[f"a/m{number:02}"] = repo(
            "gguf", downloads=100 - number, pipeline_tag="text-to-image" if number < 20 else None
        )
    hub.page = 6
    assert [model.id for model in search_models("", limit=3)] == ["a/m20", "a/m21", "a/m22"]
    assert len(hub.asked) == 6  # four pages of GGUF, one of safetensors, one of PyTorch's


def test_embedding_models_are_found_by_their_names_only(hub: Hub) -> None:
    hub.repos["a/embed"] = repo("gguf", pipeline_tag="sentence-similarity")
    hub.repos["a/m-embed"] = repo("gguf", pipeline_tag="text-to-image")
    hub.repos["a/m"] = repo("gguf")
    assert [model.id for model in search_models("")] == ["a/m"]
    assert [model.id for model in search_models("embed")] == ["a/embed"]


def test_no_more_pages_than_needed(hub: Hub) -> None:
    for number in range(50):
        hub.repos[f"a/m{number:02}"] = repo("gguf", downloads=number)
    hub.page = 10
    assert len(search_models("m", limit=10, formats=("gguf",))) == 10
    assert len(hub.asked) == 1


def test_files_with_hashes(hub: Hub) -> None:
    hub.repos["a/b"] = Repo(
        {"config.json": b"{}", "model.safetensors": b"w" * 1000}, facts={"cardData": {"license_name": "own"}}
    )
    listing = model_files("a/b")
    assert listing.revision == "a" * 40
    assert listing.model.licence == "own"
    config, weights = listing.files
    assert (config.name, config.size, config.sha256, config.git_sha1) == (
        "config.json",
        2,
        "",
        git_sha1(b"{}"),
    )
    assert (weights.size, weights.sha256, weights.git_sha1) == (
        1000,
        hashlib.sha256(b"w" * 1000).hexdigest(),
        "",
    )


@pytest.mark.parametrize(
    "text",
    [
        "a/b",
        " a/b ",
        "https://huggingface.co/a/b",
        "https://hf.co/a/b/tree/main",
        "huggingface.co/a/b?x=1#y",
        "https://hf.co/a/b/",
    ],
)
def test_addresses_of_pages(hub_home: Path, text: str) -> None:
    assert model_id_of(text) == "a/b"


@pytest.mark.parametrize("rest", ["", "/", "/tree/main", "/blob/main/config.json", "/resolve/main/x", "?a=b"])
def test_addresses_of_models_without_an_author(hub_home: Path, rest: str) -> None:
    assert model_id_of(f"https://huggingface.co/gpt2{rest}") == "gpt2"


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ({"branches": [{"name": "main"}, {"name": "4.0bpw"}, {"name": "6.0bpw"}]}, ["4.0bpw", "6.0bpw"]),
        ({"branches": [{"name": ""}, {"name": 5}, {}, "main", None, {"name": "a"}]}, ["a"]),
        ({"branches": [{"name": str(number)} for number in range(search.MAX_BRANCHES + 1)]},
         [str(number) for number in range(search.MAX_BRANCHES)]),
        ({"branches": {"name": "a"}}, []), ({"branches": 3}, []), ({}, []), ([], []),
    ],
)  # fmt: skip
def test_branches(hub_home: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, names: list[str]) -> None:
    monkeypatch.setattr(search, "get_json", lambda _web, _path, _parameters, _about: answer)
    assert search.model_branches("a/b") == names


@pytest.mark.parametrize(
    "name",
    ["", "a/b/c", "../x", "a/..", "a b", "a/b?x", "a\n/b", "a/" + "x" * 200, "http://[", "a//b", "-a/b"],
)
def test_bad_names_send_no_request(hub: Hub, name: str) -> None:
    with pytest.raises(DownloadError, match="not the name of a model"):
        model_files(name)
    assert hub.asked == []


@pytest.mark.parametrize(
    ("arguments", "found"),
    [({"limit": 0}, "found 0"), ({"sort": "beauty"}, "'beauty'"), ({"formats": ("bin",)}, "and bin")],
)
def test_bad_arguments(hub: Hub, arguments: dict[str, Any], found: str) -> None:
    with pytest.raises(DownloadError, match=found):
        search_models("x", **arguments)
    assert hub.asked == []


@pytest.mark.parametrize(
    ("status", "headers", "sentence"),
    [
        (
            401,
            {"X-Error-Code": "GatedRepo"},
            "The model a/b is gated: accept its terms on its page at 127.0.0.1 and save a token",
        ),
        (403, {"X-Error-Code": "GatedRepo"}, "The model a/b is gated: accept its terms"),
        (
            401,
            {"X-Error-Code": "RepoNotFound"},
            "The model a/b does not exist at 127.0.0.1, or it is private",
        ),
        (401, {}, "The model a/b does not exist at 127.0.0.1, or it is private"),
        (403, {}, "The model a/b may not be read at 127.0.0.1: a token is needed"),
        (404, {"X-Error-Code": "RevisionNotFound"}, "The model a/b has no such revision"),
        (404, {}, "The model a/b was not found"),
        (
            429,
            {"Retry-After": "17"},
            "127.0.0.1 received too many requests from this address; try again in 17 seconds.",
        ),
        (429, {}, "127.0.0.1 received too many requests from this address; try again later."),
        (429, {"Retry-After": "9" * 400}, "try again later."),
        (429, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, "try again later."),
        (500, {}, "127.0.0.1 has a problem (status 500); try again later."),
        (503, {}, "127.0.0.1 has a problem (status 503)"),
        (418, {}, "The model a/b could not be read: 127.0.0.1 returned status 418."),
    ],
)
def test_refusals_are_one_sentence(hub: Hub, status: int, headers: dict[str, str], sentence: str) -> None:
    hub.statuses = [(status, headers)]
    with pytest.raises(DownloadError) as caught:
        model_files("a/b")
    text = str(caught.value)
    assert sentence in text
    assert text.endswith(".")
    assert "\n" not in text
    assert len(hub.asked) == 1


def test_refusals_with_a_token(hub: Hub) -> None:
    hub.token = "hf_right"
    hub.repos["a/b"] = Repo({"m.gguf": b"x"}, gated=True)
    with pytest.raises(DownloadError, match=r"is gated.*and save a token"):
        model_files("a/b")
    set_hub_token("hf_wrong")
    with pytest.raises(DownloadError, match="does not accept your token"):
        model_files("a/b")
    set_hub_token("hf_right")
    assert len(model_files("a/b").files) == 1
    with pytest.raises(DownloadError, match="was not found"):
        model_files("a/nothing")
    for status, kind, words in (
        (403, "", "may not be read at .*: your token does not give access"),
        (401, "", "does not accept your token"),
        (401, "RepoNotFound", "does not exist at .*, or your token does not give access"),
        (403, "GatedRepo", "is gated: accept its terms .* with the account of your token"),
    ):
        hub.statuses = [(status, {"X-Error-Code": kind})]
        with pytest.raises(DownloadError, match=words):
            model_files("a/b")


def test_private_model_with_the_token_of_the_environment(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repos["a/b"] = Repo({}, private=True)
    monkeypatch.setenv("HF_TOKEN", "hf_env")
    assert model_files("a/b").files == ()
    assert hub.asked[-1].token == "Bearer hf_env"


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"<html>", "not JSON"), (b"[" * 100_000, "not JSON"), (b'{"id": 3}', "lacks expected fields"),
        (b"[]", "lacks expected fields"),
        (b'{"id": "a/b"}', "without its commit"), (b'{"id": "a/b", "sha": "../../etc"}',
        "without its commit"),
        (b"null", "lacks expected fields"),
        (b'{"id": "a/b", "sha": "' + b"b" * 40 + b'", "siblings": [{"size": 3}]}', "lacks expected fields"),
        (b'{"id": "a/b", "sha": "' + b"b" * 40 + b'", "siblings": [{"rfilename": 7}]}', "lacks expected"),
    ],
)  # fmt: skip
def test_invalid_answers(hub: Hub, raw: bytes, found: str) -> None:
    hub.raw = raw
    with pytest.raises(DownloadError, match=found):
        model_files("a/b")
    if raw == b"[]":
        assert search_models("x") == []
    else:
        with pytest.raises(DownloadError):
            search_models("x")


def test_a_bad_entry_does_not_hide_the_others(hub: Hub) -> None:
    hub.raw = b'[{"id": 3}, {"id": "a/b"}, {"id": "c/d", "safetensors": {"odd": 1}}, 7]'
    assert [model.id for model in search_models("x")] == ["a/b"]
    hub.raw = b'[{"id": 3}]'
    with pytest.raises(DownloadError, match="lacks expected fields"):
        search_models("x")


def test_texts_of_an_answer_are_single_lines() -> None:
    model = HubModel("a/b\nc", "a", licence="x\ry", tags=("4-bit\n\x1b[31m",))
    assert not any(letter < " " for text in (model.id, model.licence, *model.tags) for letter in text)


def test_an_answer_without_a_list_of_files(hub: Hub) -> None:
    hub.raw = b'{"id": "a/b", "sha": "' + b"b" * 40 + b'"}'
    assert model_files("a/b").files == ()


def test_endless_answer(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MAX_PAGE_BYTES", 1000)
    hub.raw = b" " * 5000
    with pytest.raises(DownloadError, match="cannot be the answer of a hub"):
        model_files("a/b")


def test_pages_that_never_end(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MAX_PAGES", 4)
    for number in range(100):
        hub.repos[f"a/{number}"] = repo("gguf", pipeline_tag="image-classification")
    hub.page = 1
    assert search_models("", formats=("gguf",)) == []
    assert len(hub.asked) == 4


def test_a_stop_ends_the_wait(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server accepts and never answers, without a timeout."""
    monkeypatch.setattr("engine.hub.client.api.TIMEOUT_SECONDS", 10_000.0)
    waiting = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{waiting.getsockname()[1]}")
    stop = threading.Event()
    timer = threading.Timer(0.2, stop.set)
    timer.start()
    with pytest.raises(DownloadError, match="it was stopped"):
        search_models("x", stop=stop)
    timer.join()
    waiting.close()


def test_no_server(hub_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DownloadError, match=r"^127\.0\.0\.1 could not be reached: connection refused\.$"):
        search_models("x")


@pytest.mark.parametrize(
    "address", ["nonsense", "file:///etc", "http://", "http://[::1", "ftp://x", "http://x:99999"]
)
def test_bad_endpoint(hub_home: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)
    with pytest.raises(DownloadError, match="HF_ENDPOINT"):
        search_models("x")


@pytest.mark.parametrize("way", ["switch", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_opens_no_socket(hub: Hub, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    opened: list[Any] = []
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: opened.append(address))
    monkeypatch.setattr(search, "result", lambda *rest: opened.append(rest))
    if way == "switch":
        set_offline(True)
    else:
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        monkeypatch.setenv(way, "1")
    sentence = "working offline" if way == "switch" else f"environment variable {way} turns on offline work"
    for call in (lambda: search_models("x"), lambda: model_files("a/b"), lambda: model_choices("a/b")):
        with pytest.raises(DownloadError, match=sentence):
            call()
    assert opened == []
    assert hub.asked == []
