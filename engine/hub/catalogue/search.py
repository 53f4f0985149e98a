"""Searches the hub for models, and lists the files of a model at one commit."""

from __future__ import annotations

import heapq
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from engine.errors import DownloadError
from engine.hub.catalogue.models import HubFile, HubFiles, HubModel
from engine.hub.client.api import endpoint, get_items, get_json, hub_web
from engine.hub.client.http import Web
from engine.hub.download.background import result
from engine.words import _

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

FORMATS = ("gguf", "safetensors", "pytorch")
"""The hub's tags for them; "pytorch" stands for `pytorch_model.bin`."""
SORTS = {
    "downloads": "downloads",
    "likes": "likes",
    "updated": "lastModified",
    "created": "createdAt",
    "trending": "trendingScore",
}
"""The sort orders, descending -> the hub's names for them."""
_TEXT_TASKS = (
    "", "text-generation", "text2text-generation", "conversational", "image-text-to-text", "any-to-any",
)  # fmt: skip
"""Tasks of models that generate text; many GGUF repositories state none."""
_VECTOR_TASKS = ("sentence-similarity", "feature-extraction")
"""Tasks of embedding models, which are found by their names only."""
_EXPANDED = (
    "author", "downloads", "likes", "lastModified", "createdAt", "trendingScore", "gated", "private", "tags",
    "pipeline_tag", "config", "gguf", "safetensors",
)  # fmt: skip
MAX_FILES, MAX_LISTED = 100_000, 1000
MAX_BRANCHES = 16
MIN_PAGE = 60
"""The smallest page to request, since some models are filtered out here."""


def search_models(
    query: str,
    *,
    limit: int = 30,
    sort: str = "downloads",
    formats: Sequence[str] = FORMATS,
    stop: threading.Event | None = None,
) -> list[HubModel]:
    """Find at most `limit` models that generate text, sorted by `sort` (a key of `SORTS`).

    `query` holds words of their names or the URL of a model's page; if it is empty, the hub's top models are
    listed. `formats` are any of `FORMATS`. Blocks; setting `stop` from another thread ends the
    wait. Raises `DownloadError`.
    """
    chosen = [name for name in FORMATS if name in formats]
    if sort not in SORTS or not chosen or not 1 <= limit <= MAX_LISTED:
        raise DownloadError(
            _(
                "A search needs 1 to {max_listed} results, an order of {sorts}, and formats of "
                "{formats}; found {limit}, {sort!r} and {formats_2}.",
                max_listed=MAX_LISTED,
                sorts=", ".join(SORTS),
                formats=", ".join(FORMATS),
                limit=limit,
                sort=sort,
                formats_2=", ".join(formats) or "none",
            )
        )
    web = hub_web()
    words = model_id_of(query)
    return result(web, lambda: _search(web, words, limit, sort, chosen), stop)


def model_files(model_id: str, revision: str = "main", *, stop: threading.Event | None = None) -> HubFiles:
    """The files of a model at a branch, tag or commit, with sizes and hashes.

    Blocks as `search_models` does. Raises `DownloadError`.
    """
    name = model_id_of(model_id)
    check_id(name)
    web = hub_web()
    about = _("The model {name}", name=name)
    path = f"/api/models/{name}/revision/{urllib.parse.quote(revision or 'main', safe='')}"
    return _files(result(web, lambda: get_json(web, path, [("blobs", "true")], about), stop), about)


def model_branches(model_id: str, *, stop: threading.Event | None = None) -> list[str]:
    """At most `MAX_BRANCHES` branches of a model besides "main", which often hold other bit widths.

    Blocks as `search_models` does. Raises `DownloadError`.
    """
    name = model_id_of(model_id)
    check_id(name)
    web = hub_web()
    data = _table(
        result(
            web, lambda: get_json(web, f"/api/models/{name}/refs", [], _("The model {name}", name=name)), stop
        )
    )
    branches = data.get("branches")
    names = [_table(branch).get("name") for branch in branches] if isinstance(branches, list) else []
    return [name for name in names if isinstance(name, str) and name and name != "main"][:MAX_BRANCHES]


def model_id_of(text: str) -> str:
    """The id in the URL of a model's page; any other text is returned stripped."""
    text = text.strip()
    for address in (endpoint(), "https://huggingface.co", "https://hf.co", "huggingface.co", "hf.co"):
        if text.startswith(address + "/"):
            parts = re.split(r"[?#]", text[len(address) + 1 :])[0].split("/")
            return "/".join(
                parts[: 1 if len(parts) > 1 and parts[1] in ("tree", "blob", "resolve") else 2]
            ).rstrip("/")
    return text


def check_id(model_id: str) -> None:
    """Raise `DownloadError` if the text is not a valid id, so that nothing else gets into a URL."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.file_download import hf_hub_url

    try:
        hf_hub_url(model_id, "config.json")
    except HFValidationError as error:
        raise DownloadError(
            _(
                "{model_id!r} is not the name of a model on the Hub; it should look like author/name.",
                model_id=model_id[:200],
            )
        ) from error


def _search(web: Web, words: str, limit: int, sort: str, formats: list[str]) -> list[HubModel]:
    """Merge one sorted listing for each format, since the hub combines filters with "and"."""
    listings = [_listing(web, words, limit, sort, name) for name in formats]
    found: dict[str, HubModel] = {}
    for _unused, model in heapq.merge(*listings, key=lambda pair: pair[0], reverse=True):
        found.setdefault(model.id, model)
        if len(found) == limit:
            break
    return list(found.values())


def _listing(web: Web, words: str, limit: int, sort: str, form: str) -> Iterator[tuple[float, HubModel]]:
    """(sort value, model) of one format; models for other tasks than text are left out."""
    parameters = [
        ("filter", form),
        ("sort", SORTS[sort]),
        ("direction", "-1"),
        ("limit", str(max(limit, MIN_PAGE))),
    ]
    parameters += [("search", words)] if words else []
    if form != "gguf" and not words:
        # otherwise the first pages hold only embedding and image models
        parameters.append(("pipeline_tag", "text-generation"))
    parameters += [("expand", name) for name in _EXPANDED]
    key = _order(sort)
    trouble, count = None, 0
    for item in get_items(web, "/api/models", parameters, _("The search")):
        try:
            info = _info(item, _("The search"))
        except DownloadError as error:
            trouble = error  # one bad entry does not hide the others
            continue
        if (info.pipeline_tag or "") in (*_TEXT_TASKS, *(_VECTOR_TASKS if words else ())):
            yield key(info), _model(info, "")
            count += 1
            if count == limit:
                return
    if trouble is not None and not count:
        raise trouble


def _order(sort: str) -> Callable[[ModelInfo], float]:
    def key(info: ModelInfo) -> float:
        if sort in ("updated", "created"):
            time = info.last_modified if sort == "updated" else info.created_at
            return time.timestamp() if time else 0.0
        return _number(
            {"downloads": info.downloads, "likes": info.likes, "trending": info.trending_score}[sort]
        )

    return key


def _info(item: Any, about: str) -> ModelInfo:
    from huggingface_hub.hf_api import ModelInfo

    make: Callable[..., ModelInfo] = ModelInfo
    try:
        # only what is read here: a strange value elsewhere does no harm
        info = make(
            **{
                name: item[name]
                for name in ("id", "sha", "siblings", *_EXPANDED)
                if item.get(name) is not None
            }
        )
        if not isinstance(info.id, str):
            raise TypeError("id")
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise DownloadError(_("{about}: the Hub's answer lacks expected fields.", about=about)) from error
    return info


def _model(info: ModelInfo, licence: str) -> HubModel:
    """`licence` is a name better than the tag's ("other")."""
    tags = tuple(tag for tag in info.tags or () if isinstance(tag, str))
    gguf = _table(info.gguf)
    config = _table(info.config)
    stored = info.safetensors
    has = {name for name in FORMATS if name in tags}
    has |= {name for name, table in (("gguf", gguf), ("safetensors", stored)) if table}
    if "safetensors" in has:
        has.discard("pytorch")  # the same weights, which are not offered twice
    return HubModel(
        id=info.id,
        author=info.author or info.id.partition("/")[0] * ("/" in info.id),
        downloads=int(_number(info.downloads)),
        likes=int(_number(info.likes)),
        updated=info.last_modified.isoformat() if info.last_modified else "",
        licence=licence
        or next((tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), ""),
        gated=bool(info.gated),
        tags=tags,
        formats=tuple(name for name in FORMATS if name in has),
        architecture=str(gguf.get("architecture") or config.get("model_type") or ""),
        parameters=int(_number(gguf.get("total") or (stored.total if stored is not None else 0))),
        quantisation=str(_table(config.get("quantization_config")).get("quant_method") or "").lower(),
        # such as "base_model:author/name" and "base_model:quantized:author/name"
        base=next((tag.rpartition(":")[2] for tag in tags if tag.startswith("base_model:")), ""),
        drafter=drafter_of([*_list(config.get("architectures")), gguf.get("architecture")]),
    )


def drafter_of(classes: Sequence[Any]) -> str:
    """The kind of drafter that a class of a config.json, or the architecture of a GGUF file, is; "": none.
    What has the class of its decoder alone cannot be told from a model before its tensors are there.
    """
    names = [name.lower() for name in classes if isinstance(name, str)]
    kinds = ("eagle3", "EAGLE-3"), ("dflash", "DFlash")
    return next((kind for part, kind in kinds if any(part in name for name in names)), "")


def _files(data: Any, about: str) -> HubFiles:
    info = _info(data, about)
    if not isinstance(info.sha, str) or not re.fullmatch(r"[0-9a-f]{40,64}", info.sha):
        raise DownloadError(
            _(
                "{about} is listed without its commit, so its files could change during the "
                "download; use another hub.",
                about=about,
            )
        )
    files = []
    for entry in islice(info.siblings or (), MAX_FILES):
        size = entry.lfs.size if entry.lfs else entry.size
        sha256 = entry.lfs.sha256 if entry.lfs else ""
        if not isinstance(entry.rfilename, str) or not isinstance(sha256, str):
            raise DownloadError(_("{about}: the Hub's answer lacks expected fields.", about=about))
        blob = entry.blob_id if isinstance(entry.blob_id, str) and not entry.lfs else ""
        files.append(
            HubFile(
                entry.rfilename,
                size if isinstance(size, int) and size >= 0 else -1,
                sha256.lower(),
                blob.lower(),
            )
        )
    named = _table(data.get("cardData")).get("license_name")
    return HubFiles(_model(info, named if isinstance(named, str) else ""), info.sha, tuple(files))


def _number(value: Any) -> float:
    return (
        float(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
        else 0.0
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
