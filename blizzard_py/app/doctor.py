"""Everything that can be known before Blizzard's first batch, for `blizzard doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from blizzard_core.daemon import StopEvent
from blizzard_core.doctor.findings import CheckResult, failed
from blizzard_core.doctor.stores import UsedStore, check_stores
from blizzard_core.errors import BlizzardError, ConfigError
from blizzard_core.notifications.receiver import open_queue
from blizzard_core.redact import redacted
from blizzard_core.settings.document import Config
from blizzard_core.settings.store_use import WEBHOOK
from blizzard_core.text import counted
from blizzard_py.app.machine import check_machine
from blizzard_py.app.query_validation import check_source
from blizzard_py.app.validation import checkpoint_notes, table_problems, validate_pipelines


def examine(
    config: Config, stop: StopEvent, *, writes_sources: bool = False
) -> Iterator[CheckResult]:
    """Check this machine, stores, tables and APIs, and the tables to write to.

    Ends early by ``stop``. Of files nothing is shown but a name, of tables and APIs nothing but
    columns.
    """
    found: list[CheckResult] = []
    stores = check_stores(stores_of(config), stop, writes_sources=writes_sources)
    for each in chain(check_machine(config), stores):
        found.append(each)
        yield each
    for check in (_queries, _queues, _tables):
        if not stop.is_set():
            yield from check(config, found)


def stores_of(config: Config) -> Iterator[UsedStore]:
    """Return every store that the configuration names, in its order."""
    for pipeline in config.pipelines.values():
        for source in pipeline.file_sources.values():
            clean, options = source.clean, source.storage_options
            tag = "" if clean is None else clean.put_tag
            yield UsedStore("source", source.uri, options, cleans=clean is not None, tag=tag)
            if clean is not None and clean.archive_uri is not None:
                yield UsedStore("archive", clean.archive_uri, options)
        sink = pipeline.sink
        yield UsedStore("table", sink.table_uri, sink.storage_options)
        errors = pipeline.error_handling
        if errors.advanced.dlq_path:
            dlq_options = errors.dlq_options(sink.storage_options)
            yield UsedStore("dead letters", errors.advanced.dlq_path, dlq_options)
    replicas = config.global_.replicas
    if replicas is not None:
        yield UsedStore("leases", replicas.uri, replicas.advanced.storage_options)


def _queries(config: Config, _found: Sequence[CheckResult]) -> Iterator[CheckResult]:
    """Connect to each table and API, and ask for columns without rows."""
    for name, pipeline in config.pipelines.items():
        for source_name in pipeline.query_sources:
            subject = f"source {name}/{source_name}"
            try:
                notes = check_source(config, name, source_name)
            except BlizzardError as error:
                yield from failed(subject, "query", error)
                continue
            yield CheckResult(subject, "query", "ok", "answers with its columns")
            for note in notes:
                yield CheckResult(subject, "query", "note", note)


def _queues(config: Config, _found: Sequence[CheckResult]) -> Iterator[CheckResult]:
    """Ask each queue of notifications for the number of its messages. Receives none."""
    seen: set[str] = set()
    for pipeline in config.pipelines.values():
        for source in pipeline.file_sources.values():
            settings = source.notifications
            if settings is None or settings.uri == WEBHOOK or settings.uri in seen:
                continue
            seen.add(settings.uri)
            subject = f"queue {redacted(settings.uri)}"
            try:
                queue = open_queue(settings.uri, source.uri, source.storage_options)
                try:
                    count = queue.count()
                finally:
                    queue.close()
            except BlizzardError as error:
                yield from failed(subject, "queue", error)
                continue
            waiting = "" if count is None else f"; {counted(count, 'message')} waiting"
            yield CheckResult(subject, "queue", "ok", f"answers{waiting}")


def _tables(config: Config, found: Sequence[CheckResult]) -> Iterator[CheckResult]:
    """Compare the columns of pipelines with their tables; not of those out of reach.

    Without Java no transform can be checked.
    """
    failures = {each.subject for each in found if each.result == "failed"}
    has_java = not any(each.check == "java" and each.result == "failed" for each in found)
    there = {
        name: pipeline
        for name, pipeline in config.pipelines.items()
        if UsedStore("table", pipeline.sink.table_uri).subject not in failures
    }
    if not there:
        return
    reachable = config.model_copy(update={"pipelines": there})
    try:
        if has_java:
            notes = validate_pipelines(reachable)
        else:
            problems, notes = table_problems(reachable)
            if problems:
                raise ConfigError("configuration", problems)
        notes += checkpoint_notes(reachable)
    except BlizzardError as error:
        yield from failed("configuration", "tables", error)
        return
    pipelines = counted(len(there), "pipeline")
    yield CheckResult("configuration", "tables", "ok", f"the columns of {pipelines} fit")
    for note in notes:
        yield CheckResult("configuration", "tables", "note", note)
