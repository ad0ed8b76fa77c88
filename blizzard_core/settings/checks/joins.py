"""Cross-field checks of ``event_time.join``. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from blizzard_core.settings.document import PipelineSettings
from blizzard_core.settings.event_time import EMITTED_BATCH, EventTimeSettings, JoinSettings
from blizzard_core.settings.yaml_file import Key, SettingProblem

_ALONE = "does not go with join for now; join alone, and compute the rest from its table"


def join_problems(
    pipeline: PipelineSettings, given: EventTimeSettings, block: Key
) -> Iterator[SettingProblem]:
    """Yield the problems of a pipeline's join, in the order of its keys."""
    join = given.join
    assert join is not None  # noqa: S101  # the caller has checked
    for key in ("deduplicate", "window", "group_by", "aggregates"):
        if getattr(given, key):
            yield SettingProblem((*block, key), _ALONE)
    yield from _of_mode(given, join, block)
    here: Key = (*block, "join")
    yield from _of_sides(pipeline, join, here)
    yield from _of_keys(pipeline, join, here)
    if join.upper_us < join.lower_us:
        yield SettingProblem(
            (*here, "upper"), f"{join.upper!r} is less than lower, so no rows would match"
        )
    yield from _of_columns(pipeline, join, here)


def _of_mode(given: EventTimeSettings, join: JoinSettings, block: Key) -> Iterator[SettingProblem]:
    if given.mode == "complete":
        yield SettingProblem(
            (*block, "mode"),
            "complete does not go with join: each pair is published once; use append",
        )
    elif given.mode == "update" and join.type != "inner":
        yield SettingProblem(
            (*block, "mode"),
            f"update goes with joins of type inner only, and this one is {join.type}; use append",
        )


def _of_sides(
    pipeline: PipelineSettings, join: JoinSettings, here: Key
) -> Iterator[SettingProblem]:
    known = ", ".join(pipeline.sources)
    for key, name in (("left", join.left), ("right", join.right)):
        if name not in pipeline.sources:
            yield SettingProblem(
                (*here, key), f"{name!r} is no source of the pipeline; known: {known}"
            )
    if join.left == join.right:
        yield SettingProblem(
            (*here, "right"), f"{join.right!r} is the left source already; name two sources"
        )
    elif others := sorted(pipeline.sources.keys() - {join.left, join.right}):
        other_names = ", ".join(others)
        yield SettingProblem(
            here, f"has two sources, and {other_names} is neither; give it a pipeline of its own"
        )


def _of_keys(pipeline: PipelineSettings, join: JoinSettings, here: Key) -> Iterator[SettingProblem]:
    for name in (name for name, times in Counter(join.on).items() if times > 1):
        yield SettingProblem((*here, "on"), f"names {name!r} twice")
    if pipeline.transform is not None:
        return  # only Spark knows the columns of a transform; `blizzard validate` asks it
    types = pipeline.field_types
    for name in dict.fromkeys(join.on):
        if name not in types:
            yield SettingProblem((*here, "on"), pipeline.no_field(name))
        elif lacks := [side for side in _sides(pipeline, join) if not _has(pipeline, side, name)]:
            yield SettingProblem(
                (*here, "on"), f"{name!r} is no field of {lacks[0]}, so no rows would match"
            )
        elif types[name] == "map":
            yield SettingProblem((*here, "on"), f"{name!r} is a map, which cannot be compared")


def _of_columns(
    pipeline: PipelineSettings, join: JoinSettings, here: Key
) -> Iterator[SettingProblem]:
    reserved = {EMITTED_BATCH}
    for name, place in join.columns.items():
        key: Key = (*here, "columns", name)
        if name.lower() in reserved:
            yield SettingProblem(
                key, "is a column already (case does not count); choose another name"
            )
        reserved.add(name.lower())
        found = join.split_field_name(place)
        if found is None:
            such = f"{join.left}.{join.on[0]} or {join.right}.{join.on[0]}"
            yield SettingProblem(key, f"{place!r} is no field of left or right, such as {such}")
            continue
        source, field = found
        if source == join.right and join.type == "left_semi":
            yield SettingProblem(key, f"{place!r}: left_semi publishes rows of {join.left} alone")
        if pipeline.transform is None and field not in pipeline.field_types:
            yield SettingProblem(key, f"{place!r}: {pipeline.no_field(field)}")
        elif source in pipeline.sources and not _has(pipeline, source, field):
            yield SettingProblem(key, f"{place!r}: {field!r} is a field of other sources alone")


def _sides(pipeline: PipelineSettings, join: JoinSettings) -> list[str]:
    return [name for name in (join.left, join.right) if name in pipeline.sources]


def _has(pipeline: PipelineSettings, source: str, field: str) -> bool:
    """Return whether a source has the field, or a transform may give it."""
    if pipeline.transform is not None:
        return True
    files = pipeline.sources[source].as_files
    known = any(each.name == field for each in pipeline.fields_of(source))
    return known or (files is not None and field in files.path_columns)
