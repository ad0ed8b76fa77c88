"""Everything that can be known before Blizzard's first batch, for `blizzard doctor`."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from blizzard_core.daemon import StopEvent
from blizzard_core.doctor.findings import CheckResult, failed
from blizzard_core.doctor.stores import UsedStore, check_stores
from blizzard_core.errors import BlizzardError, ConfigError
from blizzard_core.settings.document import Config
from blizzard_core.text import counted
from blizzard_py.app.query_validation import check_source
from blizzard_py.app.validation import checkpoint_notes, validate_pipelines


def examine(config: Config, stop: StopEvent, *, writes_sources: bool = False) -> list[CheckResult]:
    """Check stores, tables, APIs and the tables that Penguin commits to. Ends early by ``stop``.

    Of files nothing is shown but a name, of tables and APIs nothing but columns.
    """
    found = check_stores(stores_of(config), stop, writes_sources=writes_sources)
    for check in (_queries, _tables):
        if not stop.is_set():
            found += check(config, {each.subject for each in found if each.result == "failed"})
    return found


def stores_of(config: Config) -> Iterator[UsedStore]:
    """Return every store that the configuration names, in its order."""
    for pipeline in config.pipelines.values():
        for source in pipeline.file_sources.values():
            yield UsedStore("source", source.uri, source.storage_options)
        sink = pipeline.sink
        yield UsedStore("table", sink.table_uri, sink.storage_options)
        if pipeline.error_handling.dlq_path:
            yield UsedStore("dead letters", pipeline.error_handling.dlq_path, sink.storage_options)


def _queries(config: Config, _failed: Collection[str]) -> Iterator[CheckResult]:
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


def _tables(config: Config, failures: Collection[str]) -> Iterator[CheckResult]:
    """Compare the columns of pipelines with their tables; not of those out of reach."""
    there = {
        name: pipeline
        for name, pipeline in config.pipelines.items()
        if UsedStore("table", pipeline.sink.table_uri).subject not in failures
    }
    reachable = config.model_copy(update={"pipelines": there})
    if not there:
        return
    try:
        notes = validate_pipelines(reachable) + checkpoint_notes(reachable)
    except ConfigError as error:
        yield from failed("configuration", "tables", error)
        return
    pipelines = counted(len(there), "pipeline")
    yield CheckResult("configuration", "tables", "ok", f"the columns of {pipelines} fit")
    for note in notes:
        yield CheckResult("configuration", "tables", "note", note)
