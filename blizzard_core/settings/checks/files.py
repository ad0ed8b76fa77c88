"""Cross-field checks of sources of files: columns from paths, budgets, queues, cleaning, leases."""

from __future__ import annotations

from collections.abc import Iterator

from blizzard_core.settings.checks.places import area_of
from blizzard_core.settings.document import Config, PipelineSettings
from blizzard_core.settings.globs import template_names
from blizzard_core.settings.schema import FieldSettings, odd_names
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.settings.store_use import (
    WEBHOOK,
    NotificationSettings,
    budget_of,
    cost_of,
    currency_of,
    least_budget,
    queue_problems,
)
from blizzard_core.settings.yaml_file import Key, SettingProblem
from blizzard_core.storage.opening import problems_of
from blizzard_core.storage.protocol import is_hidden

_COMPLETE_SCANS = (
    "is not for a query over event_time: files that wait for a complete scan would have late rows"
)
_SETTLED = "is not for a query over event_time: rows of settled files wait in its state"


def path_column_problems(
    _config: Config, pipeline: PipelineSettings, here: Key
) -> Iterator[SettingProblem]:
    """Yield the problems of columns that come from paths."""
    fields = {field.name.lower(): field for field in pipeline.fields}
    types = pipeline.path_types
    for name, source in pipeline.file_sources.items():
        where: Key = (*here, "sources", name)
        for column, kind in source.path_columns.items():
            for text in _of_column(column, fields.get(column.lower()), pipeline):
                yield SettingProblem((*where, "path_columns", column), text)
            if types[column] != kind:
                text = f"is {kind} here and {types[column]} in another source; use one type"
                yield SettingProblem((*where, "path_columns", column), text)
        for column in template_names(source.advanced.path_template or ""):
            if column not in source.path_columns:
                text = f"has {{{column}}}, which path_columns does not name; give its type there"
                yield SettingProblem((*where, "advanced", "path_template"), text)
    if pipeline.transform is None and pipeline.query is None:
        yield from _of_output(pipeline, here)


def _of_column(
    column: str, field: FieldSettings | None, pipeline: PipelineSettings
) -> Iterator[str]:
    if field is not None:
        yield (
            f"{column!r} is also a field of the schema (case does not count); leave the field out,"
            f" or give it another name, with from: {field.input_name}"
        )
    if not column or is_hidden(column):
        yield f"{column!r} must not be empty, nor begin with _ or .: such folders are hidden"
    elif pipeline.transform is None:
        yield from odd_names([FieldSettings(name=column, type="string")])
    others = pipeline.path_types.keys() - {column}
    if any(other.lower() == column.lower() for other in others):
        yield f"{column!r} is in path_columns in another spelling, too; Delta ignores case"


def _of_output(pipeline: PipelineSettings, here: Key) -> Iterator[SettingProblem]:
    """Yield the uses of columns in all rows that only rows of some sources have."""
    by, sink = pipeline.sink.partition_by, (*here, "sink")
    used = {
        (*sink, "partition_by"): [each.column for each in by.columns] if by else [],
        (*sink, "sort_by"): [name for name, _ in pipeline.sink.sort_keys],
        (*here, "deduplicate_by"): pipeline.deduplicate_by,
    }
    for key, names in used.items():
        for column in dict.fromkeys(names):
            for source_name, source in pipeline.sources.items():
                files = source.as_files
                lacks = files is None or column not in files.path_columns
                if column in pipeline.path_types and lacks:
                    text = f"names {column!r}, which is not in path_columns of {source_name!r}"
                    yield SettingProblem(key, text)


def file_source_problems(
    config: Config, pipeline: PipelineSettings, here: Key
) -> Iterator[SettingProblem]:
    """Yield the problems of listings, notifications, certificates and cleaning."""
    is_query = pipeline.query is not None
    for name, source in pipeline.file_sources.items():
        where: Key = (*here, "sources", name)
        if source.has_scan_limits:
            yield from _of_scan_limits(source, where, is_query=is_query)
        if source.notifications is not None:
            found = source.notifications
            yield from _of_notifications(config, source.uri, found, where, is_query=is_query)
        if is_query and source.complete_after is not None:
            text = f"{_SETTLED}; leave it out, and go by the watermark"
            yield SettingProblem((*where, "complete_after"), text)
        if is_query and source.clean is not None:
            text = f"{_SETTLED}, which may have to be built again from the files; leave it out"
            yield SettingProblem((*where, "clean"), text)


def _of_scan_limits(
    source: SourceSettings, where: Key, *, is_query: bool
) -> Iterator[SettingProblem]:
    """Yield what is wrong with a budget of LIST requests, or with seldom complete scans."""
    cost, interval = source.max_list_cost, source.advanced.full_scan_interval
    if is_query:
        key = ("advanced", "full_scan_interval") if cost is None else ("max_list_cost",)
        text = f"{_COMPLETE_SCANS}; leave it out, and poll less often"
        yield SettingProblem((*where, *key), text)
        return
    if cost is None:
        return
    price, tracked = source.advanced.list_price, source.advanced.max_tracked_partitions
    least = least_budget(tracked + 1, interval)
    if budget_of(cost, price) >= least:
        return
    enough, currency = f"{least} requests/hour", currency_of(cost)
    if currency:
        enough = f"{cost_of(least, price):.2f} {currency}/month ({enough})"
    time = "six hours" if interval is None else "advanced.full_scan_interval"
    yield SettingProblem(
        (*where, "max_list_cost"),
        f"does not pay a complete scan of {tracked} tracked partitions in {time} and frequent scans"
        f" in the same hour; the least that does is {enough}, or lower"
        " advanced.max_tracked_partitions",
    )


def _of_notifications(
    config: Config, uri: str, found: NotificationSettings, where: Key, *, is_query: bool
) -> Iterator[SettingProblem]:
    here = (*where, "notifications")
    if is_query:
        yield SettingProblem(here, f"{_COMPLETE_SCANS}; leave it out")
    for text in queue_problems(found.uri, uri):
        yield SettingProblem((*here, "uri"), text)
    if found.uri == WEBHOOK and config.metrics is None:
        text = "webhook: needs metrics.address, where POST /notify is served"
        yield SettingProblem((*here, "uri"), text)
    same_queue = (
        other.notifications.advanced.foreign
        for _, _, other in config.file_sources()
        if other.notifications is not None
        and (other.notifications.uri, other.notifications.token) == (found.uri, found.token)
    )
    policy = next(same_queue)  # that of the first source in the file
    if policy != found.advanced.foreign:
        text = f"is {policy} for another source with the same queue; give both the same"
        yield SettingProblem((*here, "advanced", "foreign"), text)


def replica_problems(config: Config) -> Iterator[SettingProblem]:
    """Yield the problems of leases, and of sources that replicas cannot share."""
    found = config.global_.replicas
    if found is None:
        return
    here, options = ("global", "replicas", "uri"), found.advanced.storage_options
    wrong = list(problems_of(found.uri, options))
    yield from (SettingProblem(here, text) for text in wrong)
    for place, _, source in config.file_sources():
        if not wrong and area_of(found.uri, options).overlaps(
            area_of(source.uri, source.storage_options)
        ):
            where = ".".join(place)
            yield SettingProblem(
                here, f"overlaps {where}.source_uri: leases would be read as data; move it"
            )
        if source.notifications is not None and source.notifications.uri == WEBHOOK:
            yield SettingProblem(
                (*place, "notifications", "uri"),
                "webhook: goes to one replica, and another one may have the source; use a"
                " queue, or leave out global.replicas",
            )
