"""Settings of file formats: one block for each `type`.

Option names are those of Spark in snake case where the meaning is equal. A default differs from
Spark's only where Spark's loses or alters data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from blizzard_core.limits import RECORDS_LEVELS
from blizzard_core.settings.base import Settings

# Spark's options for what is not a property of a file here.
_ELSEWHERE = {
    "mode": "error_handling.on_bad_record",
    "bad_records_path": "error_handling.dlq_path",
    "column_name_of_corrupt_record": "dead letters, which hold the record",
    "rescued_data_column": "schema.unexpected_fields: capture",
    "path_glob_filter": "path_glob_filter of the source",
    "compression": "advanced.compression of the source",
}


class FormatOptions(Settings):
    """Options of a format.

    ``endings`` are the names of its files, before the ending of a codec. ``spark_names`` are
    Spark's options under another name here. ``streams`` says whether files may be compressed.
    """

    endings: ClassVar[tuple[str, ...]] = ()
    spark_names: ClassVar[Mapping[str, str]] = {}
    streams: ClassVar[bool] = True

    @model_validator(mode="before")
    @classmethod
    def _name_sparks_options(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        for key in data:
            name = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", str(key)).lower()
            if str(key) in cls.model_fields:
                continue
            if name in _ELSEWHERE:
                raise ValueError(f"{key} is no option of a format: use {_ELSEWHERE[name]}")
            known = cls.spark_names.get(name, name if name in cls.model_fields else "")
            if known:
                raise ValueError(f"{key} is {known} here")
        return data


class NdjsonOptions(FormatOptions):
    """One JSON object in each line."""

    type: Literal["ndjson"] = "ndjson"
    """One JSON object in each line."""

    endings: ClassVar[tuple[str, ...]] = (".ndjson", ".jsonl", ".json")


class JsonOptions(FormatOptions):
    """Options of JSON documents: docs/reference/formats.md."""

    type: Literal["json"]
    """JSON documents."""
    records: str = Field(default="", examples=["data.items"])
    """Path of the array of records; default: the root."""
    encoding: Literal["utf-8", "utf-16", "utf-16-le", "utf-16-be"] = "utf-8"
    """utf-16: with a byte order mark."""

    endings: ClassVar[tuple[str, ...]] = (".json",)
    spark_names: ClassVar[Mapping[str, str]] = {"charset": "encoding"}

    @property
    def keys(self) -> tuple[str, ...]:
        """The names on the path to the array."""
        return tuple(self.records.split(".")) if self.records else ()

    @model_validator(mode="after")
    def _check_path(self) -> Self:
        if not all(self.keys) or len(self.keys) > RECORDS_LEVELS:
            raise ValueError(
                f"records: {self.records!r} is no path: write at most {RECORDS_LEVELS} names with"
                " a dot between, such as data.items"
            )
        return self


def _with_type(value: Any) -> Any:
    """Return the block of a format that was given by its name."""
    return {"type": value} if isinstance(value, str) else value


def _type_of(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("type", ""))
    return str(getattr(value, "type", ""))


# A new format is a line in both of these, and one in `blizzard_py.formats.names`.
FORMATS: tuple[type[FormatOptions], ...] = (NdjsonOptions, JsonOptions)
FormatSettings: TypeAlias = Annotated[
    Annotated[NdjsonOptions, Tag("ndjson")] | Annotated[JsonOptions, Tag("json")],
    Discriminator(_type_of),
    BeforeValidator(_with_type),
]
