"""All services of one window, created together and closed together."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from desktop.services.comparison.comparison import ComparisonService
from desktop.services.composer.composer_services import ComposerServices
from desktop.services.conversations.chat_list import ChatList
from desktop.services.conversations.titles import ChatTitles
from desktop.services.local_server.local_server import LocalServer
from desktop.services.models.devices import DeviceService
from desktop.services.models.fit_estimates import LibraryService
from desktop.services.models.hub import HubService
from desktop.services.models.local_models import LocalModelsService
from desktop.services.models.memory_forecast import MemoryForecast
from desktop.services.models.starter_download import DownloadService
from desktop.services.provenance.provenance import ProvenanceService
from desktop.services.providers.provider_service import ProviderService
from desktop.services.session.chat_session import ChatSession
from desktop.services.session.context_meter import ContextMeter
from desktop.services.settings.validation import ValidationService
from desktop.services.system.backups import BackupService
from desktop.services.system.data_folder import DataFolder
from desktop.services.system.updates import UpdateService
from desktop.services.tools.tool_service import ToolService
from desktop.services.transfer.transfer import TransferService

__all__ = ["Services"]

log = logging.getLogger(__name__)


class Services(NamedTuple):
    """What the views use. `folder` contains the program's data, `models` the downloaded models."""

    folder: Path
    models: Path
    session: ChatSession
    local_models: LocalModelsService
    download: DownloadService
    validation: ValidationService
    hub: HubService
    devices: DeviceService
    library: LibraryService
    chat_list: ChatList
    transfer: TransferService
    backups: BackupService
    composer: ComposerServices
    provenance: ProvenanceService
    context_meter: ContextMeter
    memory_forecast: MemoryForecast
    data_folder: DataFolder
    comparisons: ComparisonService
    titles: ChatTitles
    local_server: LocalServer
    providers: ProviderService
    updates: UpdateService
    tools: ToolService

    def close(self) -> None:
        """End their threads, the session last: it saves what the others still report."""
        helpers = (
            self.local_server, self.titles, self.context_meter, self.transfer, self.backups, self.chat_list,
            self.validation, self.devices, self.download, self.hub, self.library, self.composer,
            self.local_models, self.provenance.hashes, self.memory_forecast, self.data_folder,
            self.providers, self.updates, self.tools, self.session,
        )  # fmt: skip
        ended = [helper.close() for helper in helpers]  # close all of them, even if one fails
        if not all(ended):
            log.error("a thread did not end in time")
