"""Columns from the configuration, and back. Arrow is not loaded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from blizzard_core.settings.schema import FieldSettings, FieldType, TypeSettings, decimal_digits
from blizzard_py.job import FieldSpec


def field_spec(settings: FieldSettings) -> FieldSpec:
    """Return a column as configured."""
    found = _spec(settings.name, settings)
    return replace(found, source=settings.from_) if settings.from_ else found


def _spec(name: str, settings: TypeSettings) -> FieldSpec:
    kind, precision, scale = settings.type, 0, 0
    if kind.startswith("decimal"):
        precision, scale = decimal_digits(kind)
        kind = "decimal"
    children = [field_spec(field) for field in settings.fields or ()]
    children += [_spec("element", settings.items)] if settings.items else []
    children += [_spec("value", settings.values)] if settings.values else []
    return FieldSpec(
        name,
        cast("FieldType", kind),  # the settings admit no other
        settings.nullable,
        tuple(children),
        precision,
        scale,
        settings.unit,
        settings.coerce,
    )


def field_document(spec: FieldSpec) -> dict[str, Any]:
    """Return the entry of ``schema.fields`` for a column, the inverse of `field_spec`."""
    source = {"from": spec.source} if spec.source else {}
    return {"name": spec.name, **source, **_type_document(spec)}


def _type_document(spec: FieldSpec) -> dict[str, Any]:
    decimal = f"decimal({spec.precision},{spec.scale})"
    found: dict[str, Any] = {"type": decimal if spec.type == "decimal" else spec.type}
    if not spec.nullable:
        found["nullable"] = False
    if spec.unit != "iso":
        found["unit"] = spec.unit
    if spec.coerce:
        found["coerce"] = True
    if spec.type == "struct":
        found["fields"] = [field_document(child) for child in spec.children]
    elif spec.type in ("list", "map"):
        inner = _type_document(spec.children[0])
        key = "items" if spec.type == "list" else "values"
        found[key] = inner["type"] if len(inner) == 1 else inner
    return found
