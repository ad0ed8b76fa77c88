"""What a source's own ``schema`` and the rest of its pipeline make of one another. Pure.

Rows of all sources go through one query, so a name means one column, of one type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from blizzard_core.settings.document import PipelineSettings
from blizzard_core.settings.schema import RESCUED, FieldSettings, check_readable
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.settings.yaml_file import Key

Finding: TypeAlias = tuple[Key, str]


def own_schema_problems(pipeline: PipelineSettings, here: Key) -> Iterator[Finding]:
    """Every finding about the fields that sources have by themselves, in the order of the file."""
    shared = {field.name.lower() for field in pipeline.schema_.fields}
    taken: dict[str, tuple[str, FieldSettings]] = {}
    for name, source in pipeline.sources.items():
        own = source.schema_ if isinstance(source, SourceSettings) else None
        if own is None:
            continue
        where: Key = (*here, "sources", name, "schema")
        if pipeline.query is None or len(pipeline.sources) == 1:
            yield (
                where,
                (
                    "is for sources that share a query over event_time; declare the fields in the"
                    " pipeline's schema"
                ),
            )
            continue
        if pipeline.transform is not None:
            yield where, "does not go with transform, which is one for the rows of all sources"
        try:
            check_readable(own.fields, by_name=pipeline.schema_.unexpected_fields != "ignore")
        except ValueError as error:
            yield where, str(error)
        for number, field in enumerate(own.fields):
            for text in _of_field(pipeline, field, shared, taken.get(field.name.lower())):
                yield (*where, "fields", number, "name"), text
            taken.setdefault(field.name.lower(), (name, field))
    if pipeline.query is not None and pipeline.transform is None:
        yield from _of_duplicates(pipeline, pipeline.query.deduplicate, here)


def _of_duplicates(pipeline: PipelineSettings, keys: list[str], here: Key) -> Iterator[Finding]:
    """Null is a value like any other to who removes duplicates."""
    known = pipeline.field_types.keys() & set(keys)  # of the others it is said that they are none
    for name in pipeline.sources:
        if known and known.isdisjoint(field.name for field in pipeline.fields_of(name)):
            yield (
                (*here, "event_time", "deduplicate"),
                f"sources.{name} has none of these fields, so that one row of it would stay",
            )


def _of_field(
    pipeline: PipelineSettings,
    field: FieldSettings,
    shared: set[str],
    other: tuple[str, FieldSettings] | None,
) -> Iterator[str]:
    if field.name.lower() in shared:
        yield f"{field.name!r} is in the pipeline's schema already (case does not count)"
    if pipeline.schema_.unexpected_fields == "capture" and field.name.lower() == RESCUED:
        yield f"{RESCUED!r} is what unexpected_fields: capture adds"
    if other is None:
        return
    source, known = other
    if known.name != field.name:
        yield f"{field.name!r} is {known.name!r} in sources.{source}; write them alike"
    elif _type(known) != _type(field):
        yield (
            f"{field.name!r} is {field.type} here and {known.type} in sources.{source}, or not the"
            " same inside; what two sources have under one name has one type"
        )


def _type(field: FieldSettings) -> dict[str, object]:
    return field.model_dump(exclude={"nullable"})
