"""How a table is partitioned, as the configuration says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from blizzard_core.settings.base import Settings

PartitionType = Literal["string", "int32", "int64", "date", "timestamp", "boolean"]
Transform = Literal["identity", "date", "hour"]

# The strftime template that a transform stands for.
TEMPLATES: Mapping[str, str] = {"date": "%Y-%m-%d", "hour": "%H"}
# Types whose values have one text in a path that every reader reads back the same.
IDENTITY_TYPES: Mapping[str, PartitionType] = {
    "string": "string",
    "int32": "int32",
    "int64": "int64",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp",
}


class PartitionColumn(Settings):
    """One partition column made from a column of the rows.

    ``identity`` takes the value itself, ``date`` the day (``2024-01-28``) and ``hour``
    the hour of the day (``00`` to ``23``) of a timestamp, in UTC. ``name`` is what the
    partition column is called: by default like the column for ``identity``, else like
    the transform. In YAML a plain column name means its ``identity``.
    """

    column: str = Field(min_length=1)
    """A field of the schema."""
    transform: Transform = "identity"
    """The value, or the day or hour of a timestamp, in UTC."""
    name: str = Field(default="", max_length=100)
    """Of the partition column; by default like the column or the transform."""

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: Any) -> Any:
        if isinstance(data, str):
            data = {"column": data}
        if isinstance(data, dict) and not data.get("name"):
            transform = data.get("transform", "identity")
            data = {**data, "name": data.get("column") if transform == "identity" else transform}
        return data

    @model_validator(mode="after")
    def _name_fits_a_template(self) -> Self:
        if self.transform != "identity" and set(self.name) & set("%/="):
            raise ValueError(f"name {self.name!r} must not hold %, / or =")
        return self

    @property
    def replaces_column(self) -> bool:
        """Whether the value moves from the files into the path, as Delta has it."""
        return self.transform == "identity" and self.name == self.column


class PartitionBy(Settings):
    """How the table is partitioned: by the rows' ``columns``, or by a template.

    ``prefix_template`` is a strftime template of ``key=value`` components. The
    time comes from the timestamp column ``column`` of each row or, without it,
    from the source file's own partition. ``types`` gives partition columns a
    Delta type; by default a column's ``identity`` has the type of its field,
    ``%Y-%m-%d`` is a date and anything else a string.
    """

    prefix_template: str | None = None
    """A strftime template of `key=value` components."""
    column: str | None = None
    """The timestamp that fills it; by default the source file's own partition does."""
    columns: list[PartitionColumn] = Field(
        default_factory=list,
        max_length=8,
        examples=[["country", {"column": "time", "transform": "hour"}]],
    )
    """Instead of the template: columns of the rows."""
    types: dict[str, PartitionType] = Field(default_factory=dict)
    """By default a field's own type, date for `%Y-%m-%d`, string otherwise."""

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        if (self.prefix_template is None) == (not self.columns):
            raise ValueError("give either prefix_template or columns")
        if self.columns and self.column is not None:
            raise ValueError("column belongs to prefix_template; columns name their own")
        parts = (self.prefix_template or "").split("/") if not self.columns else []
        if not all(part.partition("=")[0] and part.partition("=")[2] for part in parts):
            raise ValueError("prefix_template must be key=value components joined by /")
        keys = self.keys
        if len({key.lower() for key in keys}) != len(keys):
            raise ValueError("two partition columns have the same name; give one another `name`")
        hidden = [key for key in keys if key.startswith(("_", "."))]
        if hidden:
            raise ValueError(
                f"partition column {hidden[0]!r} must not start with _ or .: such directories"
                " are hidden from readers"
            )
        unknown = sorted(set(self.types) - set(keys))
        if unknown:
            raise ValueError(f"types names {unknown[0]!r}, which is no partition column")
        return self

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the partition columns, in order."""
        if self.columns:
            return tuple(column.name for column in self.columns)
        return tuple(part.partition("=")[0] for part in (self.prefix_template or "").split("/"))

    def column_types(self, fields: Mapping[str, str]) -> dict[str, PartitionType]:
        """Partition column names in order, with their types.

        ``fields`` are the declared fields and their types, as far as there are any.
        """
        by_default: dict[str, PartitionType] = {}
        for column in self.columns:
            if column.transform == "identity":
                kind = fields.get(column.column, "string")
                by_default[column.name] = IDENTITY_TYPES.get(kind, "string")
            elif column.transform == "date":
                by_default[column.name] = "date"
        for part in (self.prefix_template or "").split("/"):
            key, _, value = part.partition("=")
            if value in ("%Y-%m-%d", "%F"):
                by_default[key] = "date"
        return {key: self.types.get(key, by_default.get(key, "string")) for key in self.keys}

    def problems(self, fields: Mapping[str, str]) -> list[str]:
        """What does not fit the declared fields and their types; empty if all does."""
        found: list[str] = []
        if self.column is not None and fields.get(self.column) != "timestamp":
            found.append(
                f"column {self.column!r} must be a timestamp field of the schema,"
                " declared in schema.fields"
            )
        for column in self.columns:
            kind = fields.get(column.column)
            if kind is None:
                found.append(f"column {column.column!r} is not a field of the schema; declare it")
            elif column.transform != "identity" and kind != "timestamp":
                found.append(
                    f"column {column.column!r} is {kind}: {column.transform} needs a timestamp"
                )
            elif column.transform == "identity" and kind not in IDENTITY_TYPES:
                known = ", ".join(IDENTITY_TYPES)
                found.append(f"column {column.column!r} is {kind}; identity takes {known}")
            elif column.transform == "identity" and self.types.get(column.name, kind) != kind:
                found.append(f"types must not differ from the {kind} field {column.column!r}")
        moved = {column.name for column in self.columns if column.replaces_column}
        lowered = {name.lower() for name in fields if name not in moved}
        found += [
            f"key {key!r} is also a field of the schema; rename one"
            for key in self.keys
            if key.lower() in lowered
        ]
        if moved and moved >= set(fields):
            found.append("columns leaves no column for the files")
        return found
