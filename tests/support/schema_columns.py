"""Columns of a schema."""

from __future__ import annotations

from typing import Any

from blizzard_core.settings.schema import FieldSettings
from blizzard_py.job import FieldSpec
from blizzard_py.schema.field_specs import field_spec


def column(name: str, kind: Any, **more: Any) -> FieldSpec:
    return field_spec(FieldSettings.model_validate({"name": name, "type": kind, **more}))
