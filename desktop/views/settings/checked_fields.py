"""The fields of a chat's settings that the engine checks."""

from __future__ import annotations

from collections.abc import Mapping

from desktop.services.settings.validation import ValidationService
from desktop.views.settings.constraint_fields import ConstraintFields
from desktop.views.settings.form import SettingsForm
from desktop.views.settings.validated_fields import CheckedLines, ValidatedFields
from engine.settings import AdapterSettings, ConstraintSettings, Settings, StopSettings

__all__ = ["checked_fields"]


def checked_fields(
    forms: Mapping[type[Settings], SettingsForm], validation: ValidationService
) -> tuple[ValidatedFields, ...]:
    """Check these fields of the forms while the user types; the caller keeps what is returned."""
    return (
        ConstraintFields(forms[ConstraintSettings], validation),
        CheckedLines(forms[ConstraintSettings], ("logit_bias",), validation, "bias"),
        ValidatedFields(forms[StopSettings], ("stop_regex",), validation, "expression"),
        CheckedLines(forms[AdapterSettings], ("adapters",), validation, "adapters"),
    )
