"""Checks of a configuration that need more than its text: queries, and tables that take them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from blizzard_core.errors import BlizzardError, ConfigError, StorageError
from blizzard_core.settings.document import Config
from blizzard_core.storage.local_entries import FILE_AS_SOURCE
from blizzard_core.storage.opening import is_local_file
from blizzard_core.storage.protocol import Entry, is_hidden
from blizzard_py.app.wiring import (
    context_of,
    infer_from_waiting,
    inferred_schema,
    ingest_settings,
    of_all_sources,
    query_columns,
    views,
)
from blizzard_py.job import IngestSettings
from blizzard_py.sources.cold_start import check_cold_start
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.file_names import FileFilter
from blizzard_py.sources.files.listing import listing_of
from blizzard_py.sources.files.small_samples import disorder

if TYPE_CHECKING:
    import pyarrow as pa

# A look at a source's names ends after so many files or pages: on a disk a page is a directory.
_NAMES, _PAGES = 100, 20


def validate_pipelines(config: Config) -> list[str]:
    """Return notes on pipelines and their tables, a line each.

    Raises `ConfigError` with every problem: an unusable transform, a table that accepts none of a
    pipeline's files, a file in the place of a directory. No Spark starts without a transform or
    event time. Before the first batch, inferred columns are those of the waiting files; without
    any, only the text of a transform is checked.
    """
    known = list(_known(config))
    made = _made_by_queries(config, known)
    problems, notes = _check_tables(config, [(name, each, made.get(name)) for name, each in known])
    problems += [
        f"{'.'.join(place)}.source_uri: {source.source_uri} {FILE_AS_SOURCE}"
        for place, _, source in config.file_sources()
        if is_local_file(source.source_uri)
    ]
    if problems:
        raise ConfigError("configuration", problems)
    return notes


def checkpoint_notes(config: Config) -> list[str]:
    """Return notes on missing or renamed checkpoints, on sources that track more, and on names.

    A store out of reach from here is left to what is said of the table, which lies in the same.
    """
    notes: list[str] = []
    away: set[str] = set()
    for source in views(config):
        try:
            if source.sink.uri not in away:
                check_cold_start(source.parts)
                if source.parts.has_files:
                    shown = source.source.status_fields(source.load())
                    notes += [f"{source.parts.name}: {note}" for note in shown.get("notes", ())]
                    notes += [f"{source.parts.name}: {note}" for note in _name_notes(source.parts)]
        except StorageError:
            away.add(source.sink.uri)
        except BlizzardError as error:
            notes.append(str(error))
        finally:
            source.close()
    return notes


def _name_notes(parts: SourceContext) -> Iterator[str]:
    """Yield notes on a source's first names, if they are ignored or do not sort in time.

    Raises `StorageError`.
    """
    source, accept = parts.files, FileFilter(parts.files)
    found: list[Entry] = []
    pages = islice(listing_of(parts).list_range("", None), _PAGES)
    for page in pages:
        found += [e for e in page.entries if not is_hidden(e.path) and accept(e)]
        if len(found) >= _NAMES:
            break
    if accept.ignored.files:
        yield accept.ignored.note
    if source.use_watermark and source.advanced.order_guard != "off":
        few = disorder(found)
        yield from [few.message] if few else []


def table_problems(config: Config) -> tuple[list[str], list[str]]:
    """Return the problems of pipelines with their tables, and notes. Starts no Spark.

    Pipelines with a transform or event time are left out, because only Spark knows their columns.
    """
    known = (
        (name, settings)
        for name, settings in _known(config)
        if not settings.sql.transform and config.pipelines[name].query is None
    )
    return _check_tables(config, [(name, settings, None) for name, settings in known])


def _check_tables(
    config: Config, pipelines: list[tuple[str, IngestSettings, pa.Schema | None]]
) -> tuple[list[str], list[str]]:
    # A daemon loads this module, and never needs what reads a table's log while it is idle.
    from blizzard_py.app.table_check import check_tables  # noqa: PLC0415  # see above

    return check_tables(config, pipelines)


def _known(config: Config) -> Iterator[tuple[str, IngestSettings]]:
    """Return what each pipeline's jobs are told, as far as its columns are known.

    Once for each kind of source: where rows are replaced files have a column more.
    """
    for name, pipeline in config.pipelines.items():
        seen: set[bool] = set()
        for source_name, source in pipeline.sources.items():
            settings = ingest_settings(pipeline, source)
            if settings.added_columns.unit in seen:
                continue
            found = _inferred(config, (name, source_name), settings)
            if found is not None:
                seen.add(settings.added_columns.unit)
                yield name, of_all_sources(pipeline, found)


def _inferred(
    config: Config, where: tuple[str, str], settings: IngestSettings
) -> IngestSettings | None:
    """Return the settings with the columns that were inferred, or would be now.

    None where there is nothing yet to tell them by.
    """
    pipeline = config.pipelines[where[0]]
    if not pipeline.schema_.is_found_out:
        return settings
    parts = context_of(config, where)
    schema = inferred_schema(where[0], pipeline, parts.stores, parts.source)
    try:
        stored = schema.read_stored()
    except StorageError:  # out of reach from here, as its table is, which is told
        return settings
    found = stored
    if pipeline.schema_.infer and stored is None:
        # What is wrong with the source or its state is for `plan` and `run` to tell.
        with suppress(BlizzardError):
            found = infer_from_waiting(parts, schema)
    if found is None:
        return None if pipeline.schema_.infer else settings
    return settings.with_fields(schema.combine(found))


def _made_by_queries(
    config: Config, known: list[tuple[str, IngestSettings]]
) -> dict[str, pa.Schema]:
    """Return the columns of each transform or query. Raises `ConfigError`.

    A local Spark checks them, so no cluster is needed. A Connect client may have no Java, so its
    server checks them.
    """
    chosen = {
        name: settings
        for name, settings in known
        if settings.sql.transform or config.pipelines[name].query is not None
    }
    unknown = {
        name: pipeline.transform
        for name, pipeline in config.pipelines.items()
        if pipeline.transform and name not in chosen
    }
    if not chosen and not unknown:
        return {}
    from blizzard_py.engines.spark.engine import checking_engine  # noqa: PLC0415  # see `LazyEngine`

    engine = checking_engine(config.spark.master, config.spark.conf)
    problems: list[str] = []
    made: dict[str, pa.Schema] = {}
    try:
        for name in [*chosen, *unknown]:
            try:
                if name in unknown:
                    engine.check_written(name, unknown[name])
                    continue
                columns = query_columns(engine, config.pipelines[name])
                made[name] = columns(name, chosen[name])
            except ConfigError as error:
                problems += [f"{error.source}: {problem}" for problem in error.problems]
    finally:
        engine.stop()
    if problems:
        raise ConfigError("configuration", problems)
    return made
