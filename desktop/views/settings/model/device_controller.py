"""Connects the two places where a device is chosen, the Model pane and the model's menu, with the session."""

from __future__ import annotations

import dataclasses

from PySide6.QtCore import QObject, Slot

from desktop.items.models.devices import device_choices, device_fields, device_value
from desktop.services.models.devices import DeviceService
from desktop.services.session.chat_session import ChatSession
from desktop.views.models.model_picker import ModelPicker
from desktop.views.settings.model.device_pane import REPLACED, DevicePane
from desktop.views.settings.settings_pane import Inspector
from engine.settings import LoadSettings, Settings

__all__ = ["DeviceController"]


class DeviceController(QObject):
    """Puts a `DevicePane` into the inspector, and serves it and the picker's menu."""

    def __init__(
        self,
        session: ChatSession,
        devices: DeviceService,
        inspector: Inspector,
        picker: ModelPicker,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._session, self._devices, self._picker = session, devices, picker
        self.pane = DevicePane()
        inspector.set_extra(
            LoadSettings,
            self.pane,
            replaces=REPLACED,
            words="device gpu cuda processor cpu graphics card nvidia vram",
        )
        self.pane.chosen.connect(self._set)
        self.pane.reset_requested.connect(self._reset)
        picker.device_chosen.connect(self._run_on)
        picker.entries_requested.connect(devices.look)
        self.pane.devices_requested.connect(devices.look)
        session.settings_changed.connect(self._show_settings)
        session.model_changed.connect(lambda _model: devices.look())  # Its memory has been taken or freed.
        devices.found.connect(self._show)
        self._show()

    @Slot()
    def _show(self) -> None:
        settings = self._session.settings(LoadSettings)
        self.pane.show_usable(self._devices.usable)
        self.pane.show_values(
            settings, {name: self._session.source_of(LoadSettings, name) for name in REPLACED}
        )
        value = device_value(settings)
        self._picker.show_devices(device_choices(self._devices.usable, value), value)

    @Slot(object)
    def _show_settings(self, cls: type[Settings]) -> None:
        if cls is LoadSettings:
            self._show()

    def _on(self, value: str) -> LoadSettings:
        backend, gpus = device_fields(value)
        return dataclasses.replace(self._session.settings(LoadSettings), backend=backend, gpus=gpus)

    def _set(self, value: str) -> None:
        self._session.set_settings(self._on(value))

    def _run_on(self, value: str) -> None:
        """Chosen in the model's menu: move the loaded model there at once."""
        if value != device_value(self._session.settings(LoadSettings)):
            self._session.reload_with(self._on(value))

    def _reset(self) -> None:
        for name in REPLACED:
            self._session.reset_setting(LoadSettings, name)
