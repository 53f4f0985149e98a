"""All services of one window, made together and ended together."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from desktop.services.backups import BackupService
from desktop.services.catalogue import CatalogueService
from desktop.services.checks import CheckService
from desktop.services.context_meter import ContextMeter
from desktop.services.data_place import DataPlace
from desktop.services.devices import DeviceService
from desktop.services.download import DownloadService
from desktop.services.exchange import ExchangeService
from desktop.services.hub import HubService
from desktop.services.library import LibraryService
from desktop.services.memory_forecast import MemoryForecast
from desktop.services.origins import OriginService
from desktop.services.session import ChatSession
from desktop.services.shelf import Shelf
from desktop.services.writing import Writing

__all__ = ["Services"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Services:
    """What the views talk to. `folder` holds the program's data, `models` the models that are fetched."""

    folder: Path
    models: Path
    session: ChatSession
    catalogue: CatalogueService
    download: DownloadService
    checks: CheckService
    hub: HubService
    devices: DeviceService
    judge: LibraryService
    shelf: Shelf
    exchange: ExchangeService
    backups: BackupService
    writing: Writing
    origins: OriginService
    meter: ContextMeter
    memory: MemoryForecast
    place: DataPlace

    def close(self) -> None:
        """End their threads, the session last: what the others still tell it is saved with it."""
        helpers = (
            self.meter, self.exchange, self.backups, self.shelf, self.checks, self.devices, self.download, self.hub, self.judge,
            self.writing, self.catalogue, self.origins.hashes, self.memory, self.place, self.session,
        )  # fmt: skip
        ended = [helper.close() for helper in helpers]  # every one is closed, whatever the others say
        if not all(ended):
            log.error("a thread did not end in time")
