"""Work by hand, wired: dead letters, files, checkpoints. Beside `daemon`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from blizzard_core.daemon import Loop, run
from blizzard_core.errors import ConfigError
from blizzard_core.settings.document import Config
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.signals import INTERRUPTED, stop_on_signals
from blizzard_core.storage.opening import open_storage
from blizzard_py.app.wiring import (
    NoEngine,
    owner_parts,
    parts_of,
    source_of,
    source_pipeline,
    spark_engine,
)
from blizzard_py.dead_letters import reader as letters
from blizzard_py.dead_letters.reader import DeadLetter, DeadLetterObject, UnreadableDeadLetter
from blizzard_py.edits.rebuild import Rebuild
from blizzard_py.edits.rename import Rename
from blizzard_py.engines.lazy import LazyEngine
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.job import Engine
from blizzard_py.replay import (
    Drain,
    Outcome,
    Replay,
    Report,
    file_parts,
    record_parts,
    records_uri,
)
from blizzard_py.replay.sources import original
from blizzard_py.sources.parts import Parts


def sources_of(config: Config, pipeline: str | None, source: str | None) -> list[tuple[str, str]]:
    """The sources that the names choose, all where they are None. Raises `ConfigError`."""
    found = [
        (name, source_name)
        for name, settings in config.pipelines.items()
        for source_name in settings.sources
        if pipeline in {None, name} and source in {None, source_name}
    ]
    if not found:
        source_of(config, (pipeline or "*", source or "*"))
    return found


def listed(
    config: Config, where: list[tuple[str, str]], *, replayed: bool
) -> Iterator[tuple[str, DeadLetterObject, DeadLetter | UnreadableDeadLetter]]:
    """Every dead letter with its source's name and its object; one in memory at a time.

    Of the source's file, also where a replay has written its record into one of its own.
    """
    for place in where:
        parts = parts_of(config, place, NoEngine())
        for found in letters.objects(parts.stores.dlq, parts.letters_id, replayed=replayed):
            try:
                for letter in letters.read(parts.stores.dlq, found):
                    yield parts.name, found, original(parts, letter)
            except UnreadableDeadLetter as error:
                yield parts.name, found, error


def preview(
    config: Config, where: tuple[str, str], letter_id: str | None, *, from_source: bool
) -> list[Outcome]:
    """Return what `replay` would do. Writes nothing. Raises `ConfigError`."""
    live = live_parts(config, where)
    found = _replay(live, NoEngine(), never, from_source=from_source)
    return list(found.preview(chosen_letters(live, letter_id)))


def replay(
    config: Config, where: tuple[str, str], letter_id: str | None, *, from_source: bool
) -> Report:
    """Ingest the files and records of one dead-letter object, or of all.

    Who is told to stop takes no further object; if some are left, that is `INTERRUPTED`.
    Raises `ConfigError`.
    """
    live = live_parts(config, where)
    # Before anything starts: a wrong id is told at once.
    chosen = chosen_letters(live, letter_id)
    with draining(config, "blizzard-replay") as (engine, drain, stop):
        report = _replay(live, engine, drain, from_source=from_source).run(
            found for found in chosen if not stop.is_set()
        )
    if stop.is_set() and len(report.outcomes) < len(chosen):
        return replace(report, exit_code=max(report.exit_code, INTERRUPTED))
    return report


@contextmanager
def draining(config: Config, app: str) -> Iterator[tuple[Engine, Drain, threading.Event]]:
    """An engine that starts when it is needed, what works off a queue with it, and the signal."""
    engine = LazyEngine(partial(spark_engine, config, app))
    stop = threading.Event()
    grace_secs = config.global_.shutdown_grace

    def drain(worker: SourcePipeline) -> int:
        return run([worker], Loop(True, 0, grace_secs), stop)

    with stop_on_signals(stop, grace_secs):
        try:
            yield engine, drain, stop
        finally:
            engine.stop()


def never(_worker: SourcePipeline) -> int:
    """Stands in where nothing may be ingested."""
    raise AssertionError("a preview ingests nothing")


def live_parts(config: Config, where: tuple[str, str]) -> Parts:
    """The parts of a source, to look at or to run beside it. Raises `ConfigError`."""
    source_of(config, where)
    return parts_of(config, where, NoEngine())


def _replay(live: Parts, engine: Engine, drain: Drain, *, from_source: bool) -> Replay:
    records = open_storage(records_uri(live), live.ingest.sink.options)
    return Replay(
        live,
        file_parts(live, engine),
        record_parts(live, engine, records),
        drain,
        from_source=from_source,
    )


def chosen_letters(
    live: Parts, letter_id: str | None, *, replayed: bool = False
) -> list[DeadLetterObject]:
    """The objects there are now: what a replay itself writes must not be replayed by it.

    With ``replayed`` those that are put away count as well.
    """
    found = list(letters.objects(live.stores.dlq, live.letters_id, replayed=replayed))
    if letter_id is None:
        return found
    found = [each for each in found if each.id == letter_id]
    if not found:
        hint = "`blizzard dlq list` shows the ids, with --replayed also those that are done"
        raise ConfigError("--letter", [f"{live.name} has no open letters of that name; {hint}"])
    return found


def rebuild_of(config: Config, where: tuple[str, str]) -> Rebuild:
    """Return what makes a source's checkpoint again. Raises `ConfigError`."""
    source_of(config, where)
    return Rebuild(owner_parts(config, where, NoEngine()), where[1])


def rename_of(
    config: Config, where: tuple[str, str], old_id: str | None, moved_from: str | None
) -> Rename:
    """Return what takes a source's state over from an old id or place. Raises `ConfigError`."""
    live = live_parts(config, where)
    if old_id in {None, live.id} and moved_from is None:
        raise ConfigError(
            "--from",
            [f"{live.id} is the id that {live.name} has; give the old one, or --moved-from"],
        )
    return Rename(live, live.id if old_id is None else old_id, moved_from)


def is_asked(config: Config, where: tuple[str, str]) -> bool:
    """Return whether a source is a table or an API. Raises `ConfigError` for an unknown one."""
    return not isinstance(source_of(config, where), SourceSettings)


def asked_columns(config: Config, where: tuple[str, str]) -> tuple[str, ...]:
    """The watermark's columns of a table or an API. Raises `ConfigError` for another source."""
    source = source_of(config, where)
    if isinstance(source, SourceSettings):
        raise ConfigError(
            "--column", [f"{'/'.join(where)} reads files; give --partition and --watermark"]
        )
    return tuple(source.marks.columns)


def pipeline_of(config: Config, where: tuple[str, str]) -> SourcePipeline:
    """One source, to look at or to change its state. Raises `ConfigError`."""
    return source_pipeline(live_parts(config, where))


def owner_of(config: Config, where: tuple[str, str]) -> SourcePipeline:
    """Return the owner of a source's checkpoint: itself, or the one of several sources.

    Raises `ConfigError`.
    """
    source_of(config, where)
    return source_pipeline(owner_parts(config, where, NoEngine()))
