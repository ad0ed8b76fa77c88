"""Cross-field checks of ``event_time``. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

from blizzard_core.settings.checks.joins import join_problems
from blizzard_core.settings.checks.sources import own_schema_problems
from blizzard_core.settings.document import Config, PipelineSettings
from blizzard_core.settings.event_time import (
    EMITTED_BATCH,
    OURS,
    WINDOW_COLUMNS,
    Branch,
    EventTimeSettings,
    times_of_all,
)
from blizzard_core.settings.schema import FieldSettings
from blizzard_core.settings.yaml_file import Key, SettingProblem

# The other columns that rows have in a query: they say where each is from.
_PLACE = frozenset({"_source_file", "_source_line"})
# Aggregates of these can be grouped by, and duplicates told by them.
_NO_KEY = frozenset({"map"})


def event_time_problems(
    config: Config, pipeline: PipelineSettings, here: Key
) -> Iterator[SettingProblem]:
    """Yield the problems of event time, and of fields that only some sources have."""
    yield from _of_own_blocks(pipeline, here)
    yield from own_schema_problems(pipeline, here)
    if pipeline.query is None and EMITTED_BATCH in pipeline.sink.metadata_columns:
        text = f"{EMITTED_BATCH} is for pipelines with a query over event_time; leave it out"
        yield SettingProblem((*here, "sink", "metadata_columns"), text)
    if pipeline.query is not None:
        yield from _of_query(config, pipeline, pipeline.query, here)
    elif pipeline.event_time is not None:
        yield from _of_watch(pipeline, pipeline.event_time, here)


def _of_query(
    config: Config, pipeline: PipelineSettings, given: EventTimeSettings, here: Key
) -> Iterator[SettingProblem]:
    yield from _of_sources(pipeline, here)
    if pipeline.deduplicate_by:
        yield SettingProblem(
            (*here, "deduplicate_by"),
            "removes duplicates within a batch only; beside event_time give event_time.deduplicate",
        )
    fields = (field.name for source in pipeline.sources for field in pipeline.fields_of(source))
    for name in dict.fromkeys(fields):
        if name.lower().startswith(OURS):
            text = f"{name!r}: names that begin with {OURS} are ours in a query over event_time"
            yield SettingProblem((*here, "schema", "fields"), text)
        elif name.lower() in _PLACE:
            text = f"{name!r} says in a query over event_time where a row is from; rename the field"
            yield SettingProblem((*here, "schema", "fields"), text)
    yield from _of_columns(pipeline, given, here)
    if given.join is None:
        yield from _of_operators(pipeline, given, (*here, "event_time"))
    else:
        yield from join_problems(pipeline, given, (*here, "event_time"))
    yield from _of_output(pipeline, given, here)
    yield from _of_master(config.spark.master, str(here[-1]), given)


# The keys that a reported watermark needs; the first set is of `advanced`.
_AHEAD = frozenset({"max_ahead"})
_WATCHED = frozenset({"column", "delay"})


def _of_watch(
    pipeline: PipelineSettings, given: EventTimeSettings, here: Key
) -> Iterator[SettingProblem]:
    """Yield the problems of a block that only reports a watermark."""
    needless: list[Key] = [
        (key,)
        for key in sorted(given.model_fields_set - _WATCHED - {"advanced"})
        if getattr(given, key) not in ([], {}, None)
    ]
    needless += [("advanced", key) for key in sorted(given.advanced.model_fields_set - _AHEAD)]
    for key in needless:
        yield SettingProblem(
            (*here, "event_time", *key),
            "is for a query, and this block has none: it only reports the watermark. Give window"
            " with aggregates, deduplicate or join, or leave this key out",
        )
    for name, source in pipeline.sources.items():
        place: Key = (*here, "sources", name)
        own = source.event_time
        if own is not None and own.idle_after is not None and len(pipeline.sources) > 1:
            yield SettingProblem(
                (*place, "event_time", "idle_after"),
                "is for a query that waits for all sources; these sources have a watermark each",
            )
        if name in pipeline.query_sources:
            yield SettingProblem((*place, "kind"), _FILES.format(source.kind))
    yield from _of_columns(pipeline, given, here)
    by = pipeline.sink.partition_by
    moved = {each.column for each in by.columns if each.replaces_column} if by else set()
    if found := moved & {column for column, _, _ in _times(pipeline, given, here)}:
        yield SettingProblem(
            (*here, "sink", "partition_by"),
            f"{min(found)!r} would only be in directory names, and event_time reads it from files",
        )


def _of_master(master: str, name: str, given: EventTimeSettings) -> Iterator[SettingProblem]:
    """Yield the problem if executors could not reach the state of the query."""
    place: Key = ("pipelines", name, "event_time", "advanced", "state_path")
    shared = given.advanced.state_path
    is_shared = master.startswith("spark://")
    if not is_shared and not master.startswith("local"):
        yield SettingProblem(("spark", "master"), _MASTER.format(name, master.partition("://")[0]))
    elif not is_shared and shared is not None:
        yield SettingProblem(
            place, f"is for executors of a cluster (spark://); with {master} leave it out"
        )
    elif is_shared and shared is None:
        yield SettingProblem(
            place,
            "is required with spark://: executors keep the state in files, so give a directory"
            " that this daemon and all of them share, under the same path",
        )
    elif shared is not None and not PurePosixPath(shared).is_absolute():
        yield SettingProblem(place, f"{shared!r} is no absolute path, such as /mnt/shared/blizzard")


_FILES = "event_time goes with files for now, not with kind {}"
_MASTER = (
    "event_time of {} needs local[N], or spark:// and a shared advanced.state_path, and not with"
    " {}:// (code on a Connect server cannot see Blizzard's checkpoint, and pods of Kubernetes are"
    " not tested)"
)


def event_time_notes(config: Config) -> Iterator[str]:
    """Yield remarks for people on a valid configuration."""
    for name, pipeline in config.pipelines.items():
        if pipeline.event_time is not None and pipeline.query is None:
            yield (
                f"pipelines.{name}.event_time: without window, deduplicate or join nothing is"
                " computed; rows are published as they arrive, and the watermark is reported"
            )
        for branch in pipeline.branches:
            if not branch.delay_us:
                own = f".sources.{branch.source}" if _has_own_delay(pipeline, branch) else ""
                yield (
                    f"pipelines.{name}{own}.event_time.delay: with 0 a row as old as the newest of"
                    " an earlier batch is late"
                )
                break


def _has_own_delay(pipeline: PipelineSettings, branch: Branch) -> bool:
    source = pipeline.sources[branch.source]
    own = source.event_time
    return own is not None and own.delay is not None


def _of_own_blocks(pipeline: PipelineSettings, here: Key) -> Iterator[SettingProblem]:
    """Yield the problems of the event_time blocks of sources."""
    for name, source in pipeline.sources.items():
        if source.event_time is None:
            continue
        where: Key = (*here, "sources", name, "event_time")
        if pipeline.event_time is None:
            yield SettingProblem(
                where, "needs a pipeline with event_time, and this pipeline has none"
            )
        elif source.event_time.idle_after is not None and len(pipeline.sources) == 1:
            yield SettingProblem(
                (*where, "idle_after"),
                "goes with several sources: an idle one follows the newest time of the others",
            )


def _of_sources(pipeline: PipelineSettings, here: Key) -> Iterator[SettingProblem]:
    for source_name, source in pipeline.sources.items():
        where: Key = (*here, "sources", source_name)
        files = pipeline.file_sources.get(source_name)
        if files is None:
            yield SettingProblem((*where, "kind"), _FILES.format(source.kind))
        elif files.units is not None:
            yield SettingProblem(
                (*where, "units"),
                "a file that appears again would count twice in a window; leave units or event_time"
                " out",
            )
        elif files.advanced.range is not None:
            yield SettingProblem(
                (*where, "advanced", "range"),
                "a window may have rows on both sides of an end of the range; leave it or"
                " event_time out",
            )


def _of_columns(
    pipeline: PipelineSettings, given: EventTimeSettings, here: Key
) -> Iterator[SettingProblem]:
    block: Key = (*here, "event_time")
    if pipeline.schema_.infer:
        yield SettingProblem(
            (*here, "schema", "infer"),
            "event_time needs declared columns; declare those that `blizzard schema` shows",
        )
        return
    if pipeline.transform is not None:
        return  # only Spark knows the columns of a transform; `blizzard validate` asks it
    yield from _of_fields(pipeline, given, block)


def _of_fields(
    pipeline: PipelineSettings, given: EventTimeSettings, block: Key
) -> Iterator[SettingProblem]:
    for column, place, names in _times(pipeline, given, block[:-1]):
        for name in names:
            fields = {field.name: field for field in pipeline.fields_of(name)}
            found = [*_of_time(fields.get(column), pipeline.no_field(column), place)]
            yield from found
            if found:
                break
    types = pipeline.field_types
    for key, names in (("deduplicate", given.deduplicate), ("group_by", given.group_by)):
        for name in names:
            if name not in types:
                yield SettingProblem((*block, key), pipeline.no_field(name))
            elif types[name] in _NO_KEY:
                yield SettingProblem(
                    (*block, key), f"{name!r} is a {types[name]}, which cannot be compared"
                )


def _times(
    pipeline: PipelineSettings, given: EventTimeSettings, here: Key
) -> Iterator[tuple[str, Key, list[str]]]:
    """Return the event-time columns by name, each with its sources."""
    others = []
    for name, source in pipeline.sources.items():
        own = source.event_time
        if own is not None and own.column is not None:
            yield own.column, (*here, "sources", name, "event_time", "column"), [name]
        else:
            others.append(name)
    # The default must be a column even if each source has its own.
    yield given.column, (*here, "event_time", "column"), others or [*pipeline.sources]


def _of_time(field: FieldSettings | None, no_field: str, place: Key) -> Iterator[SettingProblem]:
    """Yield the problem if a field cannot be an event time; ``no_field`` if there is none."""
    if field is None:
        yield SettingProblem(place, no_field)
    elif field.type != "timestamp":
        yield SettingProblem(place, f"{field.name!r} is {field.type}; it must be a timestamp")
    elif field.nullable:
        yield SettingProblem(
            place,
            f"{field.name!r} may be null, and a row without a time belongs to no window. Declare it"
            " nullable: false; rows without a time become dead letters",
        )


def _of_operators(
    pipeline: PipelineSettings, given: EventTimeSettings, block: Key
) -> Iterator[SettingProblem]:
    for key, names in (("deduplicate", given.deduplicate), ("group_by", given.group_by)):
        for name in (name for name, times in Counter(names).items() if times > 1):
            yield SettingProblem((*block, key), f"names {name!r} twice")
    yield from _of_mode(pipeline, given, block)
    if not given.aggregates:
        yield from _of_rows(given, block)
        return
    window = given.window
    if window is not None and [b.column for b in pipeline.branches] in [
        [g] for g in given.group_by
    ]:
        yield SettingProblem(
            (*block, "group_by"),
            "names the event time, and all rows of one time are in one window; leave window out",
        )
    if window is not None and window.gap is not None and not given.group_by:
        yield SettingProblem(
            (*block, "group_by"), "is required with window.gap; name the columns of a session"
        )
    reserved = dict.fromkeys((*WINDOW_COLUMNS, EMITTED_BATCH), "a column of windows")
    for key, some in (("group_by", given.group_by), ("aggregates", [*given.aggregates])):
        yield from _name_clashes(reserved, some, (*block, key))


def _of_rows(given: EventTimeSettings, block: Key) -> Iterator[SettingProblem]:
    """Yield the problems of a block without aggregates."""
    if given.window is not None:
        yield SettingProblem(
            (*block, "aggregates"), "is required with window; give what to compute of each window"
        )
    elif given.group_by:
        yield SettingProblem(
            (*block, "aggregates"), "is required with group_by; give what to compute of each group"
        )


def _of_mode(
    pipeline: PipelineSettings, given: EventTimeSettings, block: Key
) -> Iterator[SettingProblem]:
    """Yield what Spark cannot do in the mode."""
    mode, window = given.mode, given.window
    if mode == "append":
        if given.aggregates and window is None and not given.groups_by_time(pipeline.branches):
            one = times_of_all(pipeline.branches)
            time = f"or {one!r} in group_by" if one else "since sources differ in their columns"
            yield SettingProblem(
                (*block, "aggregates"),
                f"needs window, {time}: mode append publishes rows when their window is closed",
            )
        return
    if mode == "complete" and not given.aggregates:
        yield SettingProblem(
            (*block, "mode"),
            "complete publishes all results each time; give aggregates, or use append",
        )
    if given.aggregates and given.deduplicate:
        yield SettingProblem(
            (*block, "deduplicate"), f"goes with aggregates in mode append only, not in {mode}"
        )
    if mode == "update" and window is not None and window.gap is not None:
        yield SettingProblem(
            (*block, "mode"),
            "update does not go with window.gap: a session that grows is another one; use append",
        )
    if given.aggregates and window is None and not given.group_by:
        yield SettingProblem(
            (*block, "aggregates"), "needs window or group_by, by which rows are aggregated"
        )


def _name_clashes(reserved: dict[str, str], names: list[str], key: Key) -> Iterator[SettingProblem]:
    for name in dict.fromkeys(names):
        owner = reserved.setdefault(name.lower(), f"given in {key[-1]}")
        if owner != f"given in {key[-1]}" or sum(n.lower() == name.lower() for n in names) > 1:
            yield SettingProblem(
                key, f"{name!r} is {owner} already (case does not count); choose another name"
            )


def _of_output(
    pipeline: PipelineSettings, given: EventTimeSettings, here: Key
) -> Iterator[SettingProblem]:
    sink = pipeline.sink
    by = sink.partition_by
    if by is not None and by.prefix_template and by.column is None:
        yield SettingProblem(
            (*here, "sink", "partition_by", "prefix_template"),
            "takes the folder from a file's path, and a row of event_time may come from many"
            " files; give partition_by.column",
        )
    if given.mode != "append" and EMITTED_BATCH not in sink.metadata_columns:
        yield SettingProblem(
            (*here, "event_time", "mode"),
            f"{given.mode} publishes versions of its results; add {EMITTED_BATCH} to"
            " sink.metadata_columns, which shows the newest version",
        )
    if not given.aggregates and given.join is None:
        return
    many = "a window has many" if given.join is None else "a pair has two"
    for name in sink.metadata_columns:
        if name != EMITTED_BATCH:
            yield SettingProblem(
                (*here, "sink", "metadata_columns"),
                f"{name} describes one row of a file, and {many}; leave it out",
            )
