"""Assembly of Penguin's parts, in this module only."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeAlias

from blizzard_core.daemon import Loop, run
from blizzard_core.errors import REFUSED, BlizzardError, Conflict, Unavailable
from blizzard_core.handover.published import runs_in
from blizzard_core.handover.quarantine import spelled
from blizzard_core.log import get_logger
from blizzard_core.observability.heartbeat import (
    Beating,
    heartbeats,
    read_life,
    source_heartbeat,
    table_heartbeat,
)
from blizzard_core.observability.metered_storage import metered
from blizzard_core.observability.run_sinks import run_sinks
from blizzard_core.observability.runs import Job, RunLog, RunSink
from blizzard_core.observability.status import Panel
from blizzard_core.observability.stopped import commit_problem, ingest_problem
from blizzard_core.observability.uncommitted import (
    Uncommitted,
    read_committed,
    waiting_groups,
    waiting_of,
)
from blizzard_core.redact import redacted
from blizzard_core.settings.document import Config
from blizzard_core.signals import stop_on_signals
from blizzard_core.storage.clock import StoreClock, elapsed
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Storage
from blizzard_core.threads import ThreadPool
from penguin_py.activity import TableActivity
from penguin_py.delta.table import DeltaLog
from penguin_py.groups.discard import DiscardRefused, DiscardResult
from penguin_py.intake.footers import REMEDY
from penguin_py.keyed.merger import Merger
from penguin_py.keyed.pipeline import KeyedPipeline
from penguin_py.model import CLOCK_SKEW_SECS
from penguin_py.page import page_providers
from penguin_py.pipeline import TablePipeline
from penguin_py.planning.batch_planner import Forecast
from penguin_py.planning.memory import Snapshot
from penguin_py.settings import KeyedTable, Table, check_stores, keyed_tables_of, tables_of

AnyPipeline: TypeAlias = TablePipeline | KeyedPipeline


def probe_path(state_name: str) -> str:
    """Return where an instance's object lies, relative to the table's directory."""
    return f"_penguin/{state_name}_probe"


def probe_store(storage: Storage, state_name: str, clock: StoreClock) -> None:
    """Set the clock to the store's; three requests, four the first time. Raises `StorageError`.

    It is repeated before each sweep, which compares times of files: the store's clock may have been
    corrected since. An hour of difference is ignored, so polls do not see time jump. The
    conditional write also reveals a store that ignores conditions; see `Storage.put_if`.
    """
    path = probe_path(state_name)
    try:
        storage.put_if(path, b"", None)
    except Conflict:
        storage.put_atomic(path, b"")
    found = storage.stat(path)
    if found is None:
        raise Unavailable(f"{storage.uri}/{path}: is gone right after it was written")
    clock.correct(found.modified, CLOCK_SKEW_SECS)


# Footers wait on the network, not on the processor, so there are more of them at
# once than `total_concurrency` asks for work.
FOOTERS_PER_WORKER = 4
# Tables that `status` reads at the same time: each costs some twenty requests.
_CONCURRENCY = 8


@contextmanager
def build(config: Config, tables: Iterable[Table] | None = None) -> Iterator[list[TablePipeline]]:
    """Build the pipelines of tables, by default all, with one limited thread pool.

    Opens no connection.
    """
    threads = config.global_.advanced.total_concurrency * FOOTERS_PER_WORKER
    with ThreadPool(max_workers=threads, thread_name_prefix="footer") as pool:
        wanted = tables_of(config) if tables is None else tables
        yield [table_pipeline(table, pool) for table in wanted]


def table_pipeline(table: Table, pool: Executor) -> TablePipeline:
    """Build one table's pipeline with the product's own storage and Delta log."""
    activity = TableActivity(table.name, table.uri, time.time)
    storage = metered(open_storage(table.uri, table.storage_options), activity.beat)
    log = DeltaLog(table, storage, pool)
    if table.is_local:  # its files have their times from the machine's clock
        return TablePipeline(table, storage, log, pool, time.time, activity)
    clock = StoreClock(time.time, elapsed)
    prepare = partial(probe_store, storage, table.state_name, clock)
    return TablePipeline(table, storage, log, pool, clock, activity, prepare)


def keyed_pipelines(
    config: Config, pool: Executor, *, is_patient: bool = True
) -> list[KeyedPipeline]:
    """Build the pipelines of all keyed tables. Opens no connection."""
    return [_keyed_pipeline(keyed, pool, is_patient) for keyed in keyed_tables_of(config)]


def _keyed_pipeline(keyed: KeyedTable, pool: Executor, is_patient: bool) -> KeyedPipeline:
    activity = TableActivity(keyed.name, keyed.table.uri, time.time)

    def opened(table: Table) -> tuple[Storage, DeltaLog]:
        storage = metered(open_storage(table.uri, table.storage_options), activity.beat)
        return storage, DeltaLog(table, storage, pool)

    changes, table = opened(keyed.changes), opened(keyed.table)
    merger = Merger(keyed, changes, table, time.time, activity)
    return KeyedPipeline(merger, is_patient=is_patient)


def run_daemon(
    config: Config, *, once: bool, where: str = "CONFIG", address: str | None = None
) -> int:
    """Commit for every table until the work is done or a signal comes. Returns the exit code.

    ``where`` is the path of the configuration, for commands on the status page. ``address`` serves
    the page there instead of where the configuration says.
    """
    tables = [*tables_of(config), *(keyed.table for keyed in keyed_tables_of(config))]
    check_stores(tables)
    log = get_logger(daemon="penguin")
    stop = threading.Event()
    limits = config.global_
    loop = Loop(
        once,
        limits.advanced.poll_jitter,
        limits.advanced.shutdown_grace,
        renewed=config.secrets.changed,
    )
    with (
        stop_on_signals(stop, loop.grace_secs),
        build(config) as pipelines,
        ThreadPool(_CONCURRENCY) as pool,
        run_sinks(config, "penguin") as sinks,
        ExitStack() as stack,
    ):
        keyed = keyed_pipelines(config, pool, is_patient=not once)
        workers: list[AnyPipeline] = [*pipelines, *keyed]
        metrics = config.metrics
        page_address = address or (metrics and (metrics.penguin_address or metrics.address))
        if page_address:
            # A daemon without an address needs no server.
            from blizzard_core.observability.web import served  # noqa: PLC0415  # see above

            stack.enter_context(served(page_address, _panel(config, workers, where)))
        stack.enter_context(heartbeats(_beating(tables, workers), once=once))
        report_runs(workers, sinks)
        log.info("started", tables=[worker.name for worker in workers], once=once)
        if once:  # changes are merged once all are committed
            code = run(pipelines, loop, stop) or (run(keyed, loop, stop) if keyed else 0)
        else:
            code = run(workers, loop, stop)
        if once and not code and any(each.missing(each.snapshot()) for each in pipelines):
            code = REFUSED
        log.info("stopped", exit_code=code)
    return code


def report_runs(workers: Sequence[AnyPipeline], sinks: Sequence[RunSink]) -> None:
    """Let the activities report their commits to other systems."""
    for worker in workers:
        job = Job("penguin", worker.name, None, redacted(worker.activity.place))
        worker.activity.runs = RunLog(job, sinks)


def _panel(config: Config, workers: Sequence[AnyPipeline], where: str) -> Panel:
    calls = [w.calls for w in workers if isinstance(w, TablePipeline) and w.calls is not None]
    views, providers = [w.activity for w in workers], page_providers(config, where)
    return Panel("penguin", views, time.time, providers, recipients=calls)


def _beating(tables: Sequence[Table], workers: Sequence[AnyPipeline]) -> list[Beating]:
    return [
        Beating(
            worker.activity,
            open_storage(table.uri, table.storage_options),
            table_heartbeat(table.state_name),
        )
        for worker, table in zip(workers, tables, strict=True)
    ]


def plan(config: Config) -> tuple[dict[str, Any], list[str]]:
    """Plan the next poll of every table; return it and the errors of tables that failed."""
    return _with_keyed(config, _collect(config, _plan_table), KeyedPipeline.outlook)


def status(config: Config) -> tuple[dict[str, Any], list[str]]:
    """Return the state of every table, from storage alone, and the errors of unreadable ones."""
    tables = {table.name: table for table in tables_of(config)}
    found = _collect(
        config, lambda pipeline: _status_of(pipeline, tables[pipeline.name]), _CONCURRENCY
    )
    return _with_keyed(config, found, KeyedPipeline.status)


def _with_keyed(
    config: Config,
    found: tuple[dict[str, Any], list[str]],
    describe: Callable[[KeyedPipeline], dict[str, Any] | None],
) -> tuple[dict[str, Any], list[str]]:
    """Add what is known of the keyed tables, if there are any, and the errors of those."""
    document, errors = found
    with ThreadPool(_CONCURRENCY) as pool:
        for pipeline in keyed_pipelines(config, pool):
            keyed = document.setdefault("keyed", {})
            try:
                keyed[pipeline.name] = describe(pipeline)
            except BlizzardError as error:
                errors.append(f"{pipeline.name}: {error}")
    return document, errors


def rebuild(config: Config, name: str, *, dry_run: bool) -> dict[str, Any]:
    """Make a keyed table anew from its changes, unless ``dry_run``. Raises `BlizzardError`."""
    with ThreadPool(_CONCURRENCY) as pool:
        pipelines = {each.name: each for each in keyed_pipelines(config, pool)}
        if name not in pipelines:
            known = ", ".join(pipelines) or "none"
            raise DiscardRefused(f"there is no keyed table {name!r}; there are: {known}")
        return pipelines[name].rebuild(dry_run=dry_run)


def reconcile(config: Config, *, dry_run: bool) -> tuple[dict[str, Any], list[str]]:
    """Compare every table's directory with its log and, without ``dry_run``, commit stragglers."""
    return _collect(config, partial(_reconcile_table, dry_run=dry_run))


def discard(
    config: Config, name: str, outputs: Sequence[str], source: str | None, *, dry_run: bool
) -> DiscardResult:
    """Discard outputs, and the next group of a source, of one table. Raises `BlizzardError`."""
    with build(config) as pipelines:
        found = next((pipeline for pipeline in pipelines if pipeline.name == name), None)
        if found is None:
            known = ", ".join(pipeline.name for pipeline in pipelines)
            raise DiscardRefused(f"there is no table {name!r}; there are: {known}")
        return found.discard(outputs, source, dry_run=dry_run)


def _reconcile_table(pipeline: TablePipeline, *, dry_run: bool) -> dict[str, Any]:
    forecast = None
    if dry_run:
        found, forecast = pipeline.sweep_outlook()
    else:
        found = pipeline.reconcile(dry_run=False)
        stop = threading.Event()
        while pipeline.cycle(stop):
            pass
    return {
        "stragglers": [entry.path for entry in found.stragglers],
        "retries": [entry.path for entry in found.retries],
        "overdue": [entry.path for entry in found.overdue],
        "orphans": [entry.path for entry in found.orphans],
        "missing": pipeline.missing(pipeline.snapshot()),
        "dry_run": dry_run,
        **({} if forecast is None else _forecast_to_json(forecast)),
    }


def _forecast_to_json(forecast: Forecast) -> dict[str, Any]:
    """Return the files that would not be committed, with reasons."""
    return {
        "refused": [
            {"path": spelled(r.entry.path), "stage": r.stage, "error": r.reason}
            for r in forecast.rejections
        ],
        "waiting": [entry.path for entry in forecast.waiting],
        "unreadable": [
            {"path": failure.entry.path, "error": str(failure.error)} for failure in forecast.failed
        ],
        "not_looked_into": forecast.unread,
    }


def _collect(
    config: Config, describe: Callable[[TablePipeline], dict[str, Any]], concurrency: int = 1
) -> tuple[dict[str, Any], list[str]]:
    """Describe each table, ``concurrency`` at a time."""
    tables: dict[str, Any] = {}
    errors: list[str] = []

    def described(pipeline: TablePipeline) -> dict[str, Any] | BlizzardError:
        try:
            return describe(pipeline)
        except BlizzardError as error:
            return error

    with build(config) as pipelines, ThreadPool(concurrency) as pool:
        for pipeline, found in zip(pipelines, pool.map(described, pipelines), strict=True):
            if isinstance(found, BlizzardError):
                errors.append(f"{pipeline.name}: {found}")
            else:
                tables[pipeline.name] = found
    return {"tables": tables}, errors


def _plan_table(pipeline: TablePipeline) -> dict[str, Any]:
    snapshot, found, forecast = pipeline.outlook()
    return {
        "txn_version": snapshot.memory.txn_version or None,
        "watermark": snapshot.memory.progress.value,
        "files": [entry.path for entry in found],
        **_forecast_to_json(forecast),
        "groups": {
            source: {**found.to_json(), "due": found.due}
            for source, found in pipeline.groups(snapshot).items()
        },
        "left_out": {
            "count": len(pipeline.left_out),
            "example": pipeline.left_out[0] if pipeline.left_out else None,
            "remedy": REMEDY if pipeline.left_out else None,
        },
    }


def _status_of(pipeline: TablePipeline, table: Table) -> dict[str, Any]:
    snapshot = pipeline.snapshot()
    progress = snapshot.memory.progress
    groups = {s: found.to_json() for s, found in pipeline.groups(snapshot).items()}
    return {
        "delta_version": None if snapshot.state is None else snapshot.state.version,
        "txn_version": snapshot.memory.txn_version or None,
        "state": progress.state,
        "watermark": progress.value,
        "partition_watermarks": {
            partition: known.watermark
            for partition, known in sorted(progress.partitions.items())
            if partition and known.watermark is not None
        },
        "last_update_ts": snapshot.memory.updated,
        "quarantine": _quarantine_of(pipeline, snapshot),
        "missing": pipeline.missing(snapshot),
        "groups": groups,
        **_daemons_of(pipeline, table, groups),
    }


def _daemons_of(pipeline: TablePipeline, table: Table, grouped: Iterable[str]) -> dict[str, Any]:
    """Return what waits for its commit, and the daemons that should work on it."""
    storage, now = open_storage(table.uri, table.storage_options), time.time()
    committed = read_committed(storage, now, table_heartbeat(table.state_name))
    refused = pipeline.quarantined()
    waiting = Uncommitted()
    for source in runs_in(storage):
        waiting = waiting.plus(waiting_of(storage, source, committed, refused))
    for source in grouped:
        waiting = waiting.plus(waiting_groups(storage, source, committed))
    lives = {
        source: read_life(storage, source_heartbeat(source), now) for source in table.source_ids
    }
    problems = [
        commit_problem(waiting, committed, now, table.settings.poll_interval),
        *dict.fromkeys(ingest_problem(life, now) for life in lives.values()),
    ]
    return {
        "uncommitted": waiting.to_json(now),
        "committer": committed.to_json(),
        "sources": {source: life.to_json() for source, life in lives.items()},
        "problems": [each.to_json() for each in problems if each is not None],
    }


def _quarantine_of(pipeline: TablePipeline, snapshot: Snapshot) -> dict[str, Any]:
    """Summarize quarantined files with missing rows; resolved ones are counted separately."""
    records = pipeline.quarantined()
    settled = pipeline.resolved_records(snapshot, records)
    open_ = [record for path, record in records.items() if path not in settled]
    newest = max(open_, key=lambda record: record.timestamp, default=None)
    return {
        "count": len(open_),
        "settled": len(settled),
        "newest": None
        if newest is None
        else {"path": newest.path, "error": newest.error, "timestamp": newest.timestamp},
    }
