"""The dialog that adds a server, or changes one."""

from __future__ import annotations

import dataclasses

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QComboBox,
    QDialog,
    QDialogButtonBox,
    QFormLayout,
    QLineEdit,
    QPlainTextEdit,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from desktop.views.layout.breakable import breakable
from desktop.views.layout.fill import fill
from desktop.views.layout.spacing import dialog_margins
from desktop.views.widgets.banner import announce
from desktop.views.widgets.combo_box import ComboBox
from desktop.views.widgets.scroll_area import VerticalScrollArea
from desktop.views.widgets.text_label import text_label
from desktop.views.widgets.wheel_guard import guard_wheel
from desktop.views.widgets.wrapping_text import WrappingCheckBox
from engine.errors import BadSetting
from engine.remote import MOST_WAIT, PRESETS, Provider
from engine.words import N_, _, translate

__all__ = ["ProviderDialog"]

_ABOUT = N_("A server with OpenAI's API, on this computer or elsewhere.")
_KEEPS = {
    "keyring": N_("Leave empty to keep the key in the keyring"),
    "this run": (N_("Leave empty to keep the saved key")),
}
_MOST_CONTEXT = 1 << 24


class ProviderDialog(QDialog):
    """Edits `provider`, or a new one with the id that `saved`'s receiver gives it.

    `saved(provider, key, in_keyring)`: `key` is None if it stays as it is.
    """

    saved = Signal(object, object, bool)

    def __init__(self, provider: Provider | None, key_place: str, parent: QWidget) -> None:
        super().__init__(parent)
        self._provider, self._key_place = provider, key_place
        self.setWindowTitle(
            _("Add a server") if provider is None else _("Edit {provider}", provider=provider.name)
        )
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.kind = _combo()
        self.name, self.address, self.key = QLineEdit(), QLineEdit(), QLineEdit()
        self.in_keyring = WrappingCheckBox(_("Save the key in the system's keyring"))
        self.forget_key = WrappingCheckBox(_("Delete the saved key"))
        self.unencrypted = WrappingCheckBox(
            _("Allow an unencrypted connection (http) for messages and the key")
        )
        self.context = QSpinBox()
        self.model, self.wait = QLineEdit(), QSpinBox()
        self.counts = WrappingCheckBox(_("Let the server count tokens while I write a message"))
        self.headers = QPlainTextEdit()
        self.trouble = text_label(tone="danger", wraps=True, plain=True)
        self.trouble.hide()
        buttons = QDialogButtonBox.StandardButton
        self.buttons = QDialogButtonBox(buttons.Save | buttons.Cancel)
        self.buttons.button(buttons.Save).setProperty("tone", "primary")
        self._describe()
        self._show(provider)
        self._arrange()
        self.kind.activated.connect(self._use_preset)
        self.address.textChanged.connect(self._show_encryption)
        self.buttons.accepted.connect(self._save)
        self.buttons.rejected.connect(self.reject)
        self._show_encryption()
        (self.kind if provider is None else self.name).setFocus()

    def _describe(self) -> None:
        for widget, name in (
            (self.kind, _("Kind of server")),
            (self.name, _("Name")),
            (self.address, _("Address")),
            (self.key, _("Key")),
            (self.context, _("Context length")),
            (self.headers, _("Headers")),
            (self.model, _("Model")),
            (self.wait, _("Longest wait")),
        ):
            widget.setAccessibleName(name)
        self.address.setPlaceholderText("https://HOST/v1")
        self.address.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
        self.key.setEchoMode(QLineEdit.EchoMode.Password)
        self.key.setPlaceholderText(
            translate(_KEEPS.get(self._key_place, N_("Only if the server requires one")))
        )
        guard_wheel(self, self.context, self.wait)
        self.context.setRange(0, _MOST_CONTEXT)
        self.context.setSingleStep(1024)
        self.context.setSpecialValueText(_("set by the server"))
        self.context.setSuffix(f" {_('tokens')}")
        self.context.setGroupSeparatorShown(True)
        self.model.setPlaceholderText(_("The first that the server lists"))
        self.model.setToolTip(_("The name of the model that is offered first"))
        self.wait.setRange(0, MOST_WAIT)
        self.wait.setSingleStep(30)
        self.wait.setSpecialValueText(_("as long as it takes"))
        self.wait.setSuffix(" s")
        self.wait.setToolTip(_("How long to wait for a reply to begin, or to continue, before giving up"))
        for box in (self.context, self.wait):  # where the text of the other fields begins
            box.lineEdit().setTextMargins(6, 0, 6, 0)
        self.in_keyring.setToolTip(_("Otherwise the key is kept until you quit Inglenook"))
        self.counts.setToolTip(
            _(
                "Your text is sent to the server for counting before you send the message. Otherwise "
                "tokens are estimated."
            )
        )
        self.headers.setPlaceholderText(_("Name: value, one header per line"))
        self.headers.setTabChangesFocus(True)
        self.headers.setProperty("tone", "field")
        self.headers.setFixedHeight(4 * self.fontMetrics().lineSpacing())

    def _arrange(self) -> None:
        body = QWidget()
        form = QFormLayout()
        fill(QVBoxLayout(body), form, 1, margins=(0, 0, 0, 0))
        form.setContentsMargins(0, 0, 0, 0)
        form.setRowWrapPolicy(QFormLayout.RowWrapPolicy.WrapLongRows)
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
        form.addRow(_("Kind"), self.kind)
        form.addRow(_("Name"), self.name)
        form.addRow(_("Address"), self.address)
        form.addRow(self.unencrypted)  # over the whole width: words of twice the size need it
        form.addRow(_("Key"), self.key)
        form.addRow(self.in_keyring)
        form.addRow(self.forget_key)
        form.addRow(_("Model"), self.model)
        form.addRow(_("Context"), self.context)
        form.addRow(_("Longest wait"), self.wait)
        form.addRow(self.counts)
        form.addRow(_("Headers"), self.headers)
        form.setRowVisible(self.kind, self._provider is None)
        form.setRowVisible(self.forget_key, bool(self._key_place))
        form.insertRow(0, self.trouble)
        self._area = VerticalScrollArea(body)
        about = text_label(translate(_ABOUT), tone="muted", wraps=True, plain=True)
        layout = fill(QVBoxLayout(self), about, (self._area, 1), self.buttons)
        dialog_margins(layout)
        parent = self.parentWidget()
        wide, high = (parent.width(), parent.height()) if parent is not None else (600, 600)
        self.resize(min(560, max(340, wide - 40)), min(560, max(320, high - 40)))

    def _show(self, provider: Provider | None) -> None:
        for preset in PRESETS:
            self.kind.addItem(preset.name, preset)
            if preset.advice:
                place = self.kind.count() - 1
                self.kind.setItemData(place, preset.advice, Qt.ItemDataRole.ToolTipRole)
        self.in_keyring.setChecked(self._key_place != "this run")
        if provider is None:
            self._use_preset()
            return
        self.name.setText(provider.name)
        self.address.setText(provider.base_url)
        self.unencrypted.setChecked(provider.unencrypted)
        self.context.setValue(provider.context_length)
        self.counts.setChecked(provider.counts_tokens)
        self.model.setText(provider.model)
        self.wait.setValue(provider.longest_wait)
        self.headers.setPlainText("\n".join(f"{name}: {value}" for name, value in provider.headers))

    def _use_preset(self) -> None:
        """The usual address of the chosen kind, and its name unless the user has written another."""
        chosen = PRESETS[self.kind.currentIndex()]
        self.address.setText(chosen.base_url)
        if self.name.text() in ("", *(preset.name for preset in PRESETS)):
            own = bool(chosen.advice) and chosen is not PRESETS[-1]
            self.name.setText(chosen.name if own else "")

    def _read(self) -> Provider:
        """Raises `BadSetting`."""
        headers = []
        for line in self.headers.toPlainText().splitlines():
            if line.strip():
                name, colon, value = line.partition(":")
                if not colon:
                    raise BadSetting(
                        _(
                            "The header “{line}” has no colon. Write it as Name: value.",
                            line=line.strip()[:40],
                        )
                    )
                headers.append((name.strip(), value.strip()))
        values = Provider(
            self._provider.id if self._provider is not None else "new", self.name.text(), self.address.text(),
            self.unencrypted.isChecked(), self.context.value(), self.counts.isChecked(), tuple(headers),
            self.model.text(), self.wait.value(),
        )  # fmt: skip
        values.check_encryption()
        if values.encrypted or values.on_this_computer:
            values = dataclasses.replace(values, unencrypted=False)
        return values

    def _show_encryption(self) -> None:
        """The consent is asked for only where it matters."""
        try:
            found = Provider("new", "new", self.address.text())
        except BadSetting:
            asks = False
        else:
            asks = not (found.encrypted or found.on_this_computer)
        self.unencrypted.setVisible(asks)

    def _refuse(self, sentence: str) -> None:
        """Say why the dialog stays open, where it is seen."""
        self.trouble.setText(breakable(sentence))
        self.trouble.setAccessibleName(sentence)
        self.trouble.show()
        self._area.verticalScrollBar().setValue(0)
        announce(self, sentence)

    def _save(self) -> None:
        try:
            provider = self._read()
        except BadSetting as error:
            self._refuse(str(error))
            return
        typed = self.key.text().strip()
        forgets = self.forget_key.isChecked()
        moves = bool(self._key_place) and self.in_keyring.isChecked() != (self._key_place == "keyring")
        if moves and not typed and not forgets:
            self._refuse(_("Enter the key again to store it in another place."))
            return
        key = typed if typed else "" if forgets else None
        self.saved.emit(provider, key, self.in_keyring.isChecked())
        self.accept()


def _combo() -> QComboBox:
    combo = ComboBox()
    combo.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    return combo
