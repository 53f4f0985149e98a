"""Serves the panes of the device and of drafting, which stand in for some fields of the settings."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject

from desktop.items.models.devices import device_choices, device_fields, device_value
from desktop.services.models.devices import DeviceService
from desktop.services.session.chat_session import ChatSession
from desktop.views.models.controller import ModelController, meant_model
from desktop.views.models.model_picker import ModelPicker
from desktop.views.settings.model import device_pane, drafting_pane
from desktop.views.settings.model.device_pane import DevicePane
from desktop.views.settings.model.drafting_pane import DraftingPane
from desktop.views.settings.settings_pane import Inspector
from desktop.views.widgets.listening import listen
from engine.settings import LoadSettings, Settings, SpeculationSettings
from engine.words import _

__all__ = ["ModelSettingsController"]


class ModelSettingsController(QObject):
    """Puts both panes into the inspector; the device can also be chosen in the menu of `picker`."""

    def __init__(
        self,
        session: ChatSession,
        devices: DeviceService,
        models: ModelController,
        inspector: Inspector,
        picker: ModelPicker,
    ) -> None:
        super().__init__(inspector)
        self._session, self._devices, self._models, self._picker = session, devices, models, picker
        self.device, self.drafting = DevicePane(), DraftingPane()
        inspector.set_extra(
            LoadSettings,
            self.device,
            replaces=device_pane.REPLACED,
            words="device gpu cuda processor cpu graphics card nvidia vram",
        )
        inspector.set_extra(SpeculationSettings, self.drafting, replaces=drafting_pane.REPLACED)
        self._connect_device()
        self._connect_drafting()
        session.settings_changed.connect(self._show_settings)
        self._show_device()
        self._show_drafting()

    def _connect_device(self) -> None:
        devices, pane, picker = self._devices, self.device, self._picker
        pane.chosen.connect(lambda value: self._session.set_settings(self._on(value)))
        pane.reset_requested.connect(self._reset_device)
        pane.devices_requested.connect(devices.look)
        picker.device_chosen.connect(self._run_on)
        picker.entries_requested.connect(devices.look)
        # The memory of a device has been taken or freed.
        listen(self, self._session.model_changed, lambda _model: devices.look())
        listen(self, devices.found, lambda _usable: self._show_device())

    def _connect_drafting(self) -> None:
        session, pane, ask = self._session, self.drafting, self._models.ask_for_model
        pane.changed.connect(self._set_drafting)
        pane.reset_requested.connect(lambda name: session.reset_setting(SpeculationSettings, name))
        pane.candidates_requested.connect(self._look_for_drafts)
        pane.file_requested.connect(lambda: ask(_("Choose a draft model's file"), self._draft_with))
        pane.folder_requested.connect(
            lambda: ask(_("Choose a draft model's folder"), self._draft_with, folder=True)
        )
        session.drafts.changed.connect(pane.show_candidates)
        session.model_changed.connect(pane.show_model)
        session.running_changed.connect(pane.show_stats)
        listen(self, session.stats_changed, lambda stats, _reason: pane.show_stats(stats))
        pane.show_model(session.model)

    def _show_settings(self, cls: type[Settings]) -> None:
        if cls is LoadSettings:
            self._show_device()
        elif cls is SpeculationSettings:
            self._show_drafting()

    # -- the device

    def _show_device(self) -> None:
        settings = self._session.settings(LoadSettings)
        self.device.show_usable(self._devices.usable)
        self.device.show_values(settings, self._session.layers.sources(LoadSettings))
        value = device_value(settings)
        self._picker.show_devices(device_choices(self._devices.usable, value), value)

    def _on(self, value: str) -> LoadSettings:
        backend, gpus = device_fields(value)
        return dataclasses.replace(self._session.settings(LoadSettings), backend=backend, gpus=gpus)

    def _run_on(self, value: str) -> None:
        """Chosen in the model's menu: move the loaded model there at once."""
        if value != device_value(self._session.settings(LoadSettings)):
            self._session.reload_with(self._on(value))

    def _reset_device(self) -> None:
        for name in device_pane.REPLACED:
            self._session.reset_setting(LoadSettings, name)

    # -- drafting

    def _show_drafting(self) -> None:
        layers = self._session.layers
        self.drafting.show_values(
            layers.settings(SpeculationSettings),
            layers.sources(SpeculationSettings),
            layers.after_reset(SpeculationSettings),
        )

    def _look_for_drafts(self) -> None:
        self._models.look_for_models()
        self._session.drafts.refresh()

    def _set_drafting(self, name: str, value: Any) -> None:
        now = self._session.settings(SpeculationSettings)
        self._session.set_settings(dataclasses.replace(now, **{name: value}))

    def _draft_with(self, path: Path) -> None:
        self._set_drafting("draft_model", str(meant_model(path)))
