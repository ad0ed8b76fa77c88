"""The present state and the next step, for people. Writes nothing.

Everything is read from storage and the configuration. No Spark starts and no checkpoint is taken
over, so each function may run beside a daemon.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from blizzard_core.errors import REFUSED, BlizzardError, BucketMissing, StorageError
from blizzard_core.handover.quarantine import QuarantineRecord, quarantined
from blizzard_core.observability.heartbeat import read_life, source_heartbeat
from blizzard_core.observability.stopped import commit_problem, exit_code_of, ingest_problem
from blizzard_core.observability.uncommitted import read_committed, waiting_groups, waiting_of
from blizzard_core.settings.document import Config
from blizzard_core.storage.opening import normalize_uri, open_storage
from blizzard_core.storage.protocol import listed
from blizzard_core.threads import ThreadPool
from blizzard_py.app.event_time import stream_to_json, watch_to_json
from blizzard_py.app.request_listing import find_open_requests
from blizzard_py.app.source_kinds import PlanOptions
from blizzard_py.app.wiring import context_of, infer_from_waiting, inferred_schema, kind_of, views
from blizzard_py.dead_letters.reader import counted
from blizzard_py.edits.checkpoint_store import CheckpointStore
from blizzard_py.ingest.source_view import SourceView
from blizzard_py.replicas.leases import BEHIND, ID_DIGITS, LOOKS, PREFIX, replica_of
from blizzard_py.schema.field_specs import field_spec
from blizzard_py.selection.refused import refusals, refused_outputs
from blizzard_py.slices.instants import stamp
from blizzard_py.sources.cold_start import check_cold_start
from blizzard_py.sources.story import way_out
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.status_notes import last_error, skipped_rows
from blizzard_py.state.stream_query import spelling_changes
from blizzard_py.state.stream_state import StreamState

# Sources that `status` reads at the same time: each costs a dozen requests.
_CONCURRENCY = 8


def schema(config: Config) -> tuple[dict[str, Any], list[str]]:
    """Every pipeline's columns and where they come from. Writes nothing.

    A sample is of the new files of the first source that has any.
    """
    pipelines: dict[str, Any] = {}
    errors: list[str] = []
    for name, pipeline in config.pipelines.items():
        try:
            pipelines[name] = _schema_of(config, name) | {"path_columns": pipeline.path_types}
        except BlizzardError as error:
            errors.append(f"{name}: {error}")
    return {"pipelines": pipelines}, errors


def _schema_of(config: Config, name: str) -> dict[str, Any]:
    from blizzard_py.ingest.inferred_schema import describe_schema  # noqa: PLC0415  # `status` needs none

    pipeline = config.pipelines[name]
    declared = tuple(map(field_spec, pipeline.fields))
    infers = pipeline.schema_.infer
    if not pipeline.schema_.is_found_out:
        return describe_schema("declared", declared)
    for source_name in pipeline.sources:
        parts = context_of(config, (name, source_name))
        found = inferred_schema(name, pipeline, parts.stores, parts.source)
        stored = found.read_stored()
        if stored is not None:
            return describe_schema("inferred" if infers else "added", found.combine(stored), stored)
        if not infers:
            continue
        sampled = infer_from_waiting(parts, found)
        if sampled is not None:
            return describe_schema("sample", found.combine(sampled), sampled)
    return describe_schema("unknown" if infers else "declared", declared)


def plan(
    config: Config,
    *,
    now: dt.datetime | None = None,
    offline: bool = False,
    everything: bool = False,
) -> tuple[dict[str, Any], list[str]]:
    """Return what the next poll of every source would do, and the errors of those that failed.

    A source whose checkpoint is gone is one of these: its next poll would be refused.
    ``now`` (aware) is when that is for tables and APIs; ``offline`` asks none of them;
    ``everything`` lists work units that are closed as well.
    """
    moment = now or dt.datetime.now(dt.UTC)
    options = PlanOptions(config, moment, offline, everything)
    found, errors = _collect(config, partial(_plan_source, options))
    from blizzard_py.app.validation import table_problems  # noqa: PLC0415  # `status` needs none

    try:
        problems, notes = ([], []) if offline else table_problems(config)
        errors += [*problems, *notes]
    except BucketMissing as error:
        errors.append(str(error))
    chosen = [
        source
        for pipeline in config.pipelines.values()
        for source in pipeline.query_sources.values()
    ]
    if not chosen:
        return found, errors
    by_units = any(source.units is not None for source in chosen)
    return {"now": stamp(moment) if by_units else moment.isoformat(), **found}, errors


def status(config: Config) -> tuple[dict[str, Any], list[str]]:
    """Return the state of every source, from storage alone, and the errors."""
    found, errors = _collect(config, partial(_status_of, config), _CONCURRENCY)
    for name, pipeline in config.pipelines.items():
        if pipeline.query is not None and name in found["pipelines"]:
            block = found["pipelines"][name]
            event_times = [source.pop("event_time", None) for source in block["sources"].values()]
            block["event_time"] = next(iter(event_times), None)
    if config.global_.replicas is not None:
        try:
            found = {"replicas": _show_replicas(config, found), **found}
        except StorageError as error:
            errors.append(f"global.replicas: {error}")
    return found, errors


def exit_code(document: Mapping[str, Any]) -> int:
    """Return the exit code of a document of `status`: refused outputs, or a daemon that is down."""
    sources = [s for block in document["pipelines"].values() for s in block["sources"].values()]
    if any(source["refused"]["files"] for source in sources):
        return REFUSED
    return exit_code_of([problem for source in sources for problem in source["problems"]])


def _collect(
    config: Config, describe: Callable[[SourceView], dict[str, Any]], concurrency: int = 1
) -> tuple[dict[str, Any], list[str]]:
    """Describe each source, ``concurrency`` at a time."""
    pipelines: dict[str, Any] = {}
    errors: list[str] = []

    def described(source: SourceView) -> dict[str, Any] | BlizzardError:
        try:
            return describe(source)
        except BlizzardError as error:
            return error
        finally:
            source.close()

    sources = views(config)
    with ThreadPool(concurrency) as pool:
        for source, found in zip(sources, pool.map(described, sources), strict=True):
            block = pipelines.setdefault(source.pipeline, {"sources": {}})
            if isinstance(found, BlizzardError):
                # Some name it themselves, for where nobody else does.
                errors.append(f"{source.name}: {str(found).removeprefix(f'{source.name}: ')}")
            else:
                block["sources"][source.source_name] = found
    return {"pipelines": pipelines}, errors


def _plan_source(options: PlanOptions, source: SourceView) -> dict[str, Any]:
    check_cold_start(source.parts)  # a poll from nothing would be refused, so it finds no files
    state = source.outlook(source.load())
    document = kind_of(source.parts).plan(source, state, options)
    if changes := _spelling_notes(source, state):
        document["notes"] += changes
    return {**document, **_event_time_of(options.config, source, state)}


def _status_of(config: Config, source: SourceView) -> dict[str, Any]:
    state = source.load()
    refused = quarantined(source.sink)
    error = last_error(source.parts.stores.sink, source.parts.home_id)
    return {
        "state": state.position.progress.state,
        "watermark": state.position.progress.value,
        **_shown(source, state),
        "last_update_ts": state.summary.last_update_ts,
        "last_error": error,
        "lag": _lag_of(source, state),
        "dead_letters": _letters_of(source),
        "refused": refusals(refused_outputs(source.parts, refused), way_out(source.parts)),
        **_daemons_of(config, source, state, refused, error),
        **({} if config.global_.replicas is None else {"replica": _holder_id(source)}),
        "in_flight": [
            {
                "batch": batch.batch,
                "attempt": batch.attempt,
                "phase": batch.phase,
                "started_ts": batch.started_ts,
                "files": len(batch.files),
                "outputs": len(batch.results.outputs),
            }
            for batch in state.work.in_flight
        ],
        "requests": [
            {
                "id": found.id,
                "kind": None if found.request is None else found.request.kind,
                "by": None if found.request is None else found.request.by,
                "state": found.state,
                "reason": found.reason,
                "counts": dict(found.counts),
            }
            for found in find_open_requests(source.parts)
        ],
        "totals": asdict(state.summary.totals),
        "unexpected": list(state.summary.unexpected),
        **_event_time_of(config, source, state),
    }


def _daemons_of(
    config: Config,
    source: SourceView,
    state: SourceState,
    refused: Mapping[str, QuarantineRecord],
    error: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return what waits for its commit, and the daemons that should work on it."""
    now, parts, sink = time.time(), source.parts, source.sink
    committed = read_committed(sink, now)
    waiting = waiting_of(sink, parts.home_id, committed, refused)
    if state.ids.group_seq > committed.groups.get(parts.home_id, 0):
        waiting = waiting.plus(waiting_groups(sink, parts.home_id, committed))
    life = read_life(sink, source_heartbeat(parts.letters_id), now)
    problems = (
        ingest_problem(life, now, error),
        commit_problem(waiting, committed, now, _commit_interval(config, source.pipeline)),
    )
    return {
        "daemon": life.to_json(),
        "uncommitted": waiting.to_json(now),
        "committer": committed.to_json(),
        "problems": [each.to_json() for each in problems if each is not None],
    }


def _commit_interval(config: Config, pipeline: str) -> float:
    """Return the time between polls of the pipeline's table; 0 if that is configured elsewhere."""
    table = normalize_uri(config.pipelines[pipeline].sink.table_uri)
    found = (t.poll_interval for t in config.tables.values() if normalize_uri(t.table_uri) == table)
    return max(found, default=0.0)


def _shown(source: SourceView, state: SourceState) -> dict[str, Any]:
    """Return what the source itself shows; of a table also the rows that no window reads."""
    shown = source.source.status_fields(state)
    skipped = skipped_rows(source.parts.stores.sink, source.id) if source.parts.query_spec else ()
    return {**shown, "notes": [*shown.get("notes", ()), *skipped]} if skipped else shown


def _event_time_of(config: Config, source: SourceView, state: SourceState) -> dict[str, Any]:
    """Return where the query of a pipeline over event time is; its block is the pipeline's.

    Of a watermark that is only watched each source has a block of its own.
    """
    parts = source.parts
    if parts.watch is not None:
        return {"event_time": watch_to_json(parts.watch, state.kind.stream)}
    if parts.event_time is None:
        return {}
    stream = _stream_of(source, state)
    return {"event_time": stream_to_json(config.pipelines[parts.pipeline], stream)}


def _stream_of(source: SourceView, state: SourceState) -> StreamState | None:
    """Return the state of a query; with several sources it is in their shared checkpoint."""
    parts = source.parts
    if parts.home_id == parts.id:
        return state.kind.stream
    shared = read_state(source.sink, parts.home_id)
    return None if shared is None else shared.kind.stream


def _spelling_notes(source: SourceView, state: SourceState) -> list[str]:
    """Return a note for each change of the query that only Spark can judge."""
    current_query = source.parts.query_fingerprint
    stream = None if current_query is None else _stream_of(source, state)
    if current_query is None or stream is None:
        return []
    return [
        f"{note}; the next start asks Spark whether that is the same query"
        for note in spelling_changes(stream.query, current_query).values()
    ]


_LAG_UNKNOWN = {**dict.fromkeys(("secs", "files", "apart", "ignored", "error")), "complete": False}


def _lag_of(source: SourceView, state: SourceState) -> dict[str, Any]:
    """Return how long the oldest waiting file has waited.

    A source out of reach is no error here.
    """
    try:
        found = source.backlog(source.outlook(state))
    except StorageError as error:
        return {**_LAG_UNKNOWN, "error": str(error)}
    if found is None:
        return _LAG_UNKNOWN
    waited = None if found.oldest_ts is None else max(0.0, time.time() - found.oldest_ts)
    return {
        "secs": 0.0 if waited is None and found.complete else waited,
        "files": found.files,
        "complete": found.complete,
        "apart": asdict(found.skipped),
        "ignored": found.ignored.to_json(),
        "error": None,
    }


def _letters_of(source: SourceView) -> dict[str, Any]:
    return asdict(counted(source.parts.stores.dlq, source.dead_letters()))


def _holder_id(source: SourceView) -> str | None:
    """Return the replica id of a source's writer; None if nobody has it. Raises `StorageError`."""
    writer = CheckpointStore(source.sink, source.parts.home_id).load().writer
    return None if writer is None or writer.released else writer.id[:ID_DIGITS]


def _show_replicas(config: Config, document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every replica with its sources, and name it in each source of a status document.

    A replica is shown as alive by the machine's clock, which decides nothing. Raises
    `StorageError`.
    """
    settings = config.global_.replicas
    if settings is None:
        return []
    storage, now = open_storage(settings.uri, settings.advanced.storage_options), time.time()
    sources = {
        f"{pipeline}/{name}": source
        for pipeline, block in document["pipelines"].items()
        for name, source in block["sources"].items()
    }
    found = []
    for entry in listed(storage, PREFIX, BEHIND):
        replica = replica_of(entry.path)
        if replica is None:
            continue
        held = [name for name, source in sources.items() if source["replica"] == replica.id]
        for name in held:
            sources[name]["replica"] = str(replica)
        secs = max(0.0, now - entry.modified)
        found.append(
            {
                "name": str(replica),
                "alive": secs <= settings.advanced.lease * (1 + 1 / LOOKS),
                "renewed_secs": secs,
                "config": replica.config,
                "sources": held,
            }
        )
    return found
