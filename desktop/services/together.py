"""All services of one window, made together and ended together."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from desktop.services.catalogue import CatalogueService
from desktop.services.checks import CheckService
from desktop.services.devices import DeviceService
from desktop.services.download import DownloadService
from desktop.services.hub import HubService
from desktop.services.library import LibraryService
from desktop.services.session import ChatSession
from desktop.services.shelf import Shelf

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

    def close(self) -> None:
        """End their threads, the session last: what the others still tell it is saved with it."""
        helpers = (self.shelf, self.checks, self.devices, self.download, self.hub, self.judge, self.catalogue, self.session)
        ended = [helper.close() for helper in helpers]  # every one is closed, whatever the others say
        if not all(ended):
            log.error("a thread did not end in time")
