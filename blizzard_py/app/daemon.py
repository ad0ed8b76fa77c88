"""The daemon."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from blizzard_core.checkpoint.writer_identity import TakeoverPolicy, allow_takeover
from blizzard_core.daemon import Loop, run
from blizzard_core.errors import FAILING, REFUSED, ConfigError, StateError, StorageError
from blizzard_core.log import get_logger
from blizzard_core.observability.heartbeat import Beating, heartbeats, source_heartbeat
from blizzard_core.observability.run_sinks import run_sinks
from blizzard_core.observability.runs import Columns, Job, RunLog, RunSink
from blizzard_core.redact import redacted
from blizzard_core.settings.document import Config
from blizzard_core.settings.needed_extras import check_extras, needed_extras
from blizzard_core.signals import stop_on_signals
from blizzard_core.storage.opening import open_storage
from blizzard_py.app.engine import spark_engine
from blizzard_py.app.live_progress import show_progress
from blizzard_py.app.machine import check_at_start
from blizzard_py.app.notifications import Notifications
from blizzard_py.app.refused_watch import RefusedWatch
from blizzard_py.app.workers import build
from blizzard_py.engines.lazy import LazyEngine
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.job import as_read
from blizzard_py.schema.field_specs import field_document
from blizzard_py.sources.context import SourceContext

if TYPE_CHECKING:
    # Without an address a daemon needs no page and explains no file, off a terminal it needs no
    # tables, and alone no replicas.
    from rich.console import Console

    from blizzard_core.observability.posts import Recipient
    from blizzard_py.app.replica_worker import ReplicaWorker
    from blizzard_py.app.replicas import Sharing
    from blizzard_py.explain import Explanation


def run_daemon(
    config: Config,
    *,
    once: bool,
    fresh: bool = False,
    admission: TakeoverPolicy = allow_takeover,
    where: str = "CONFIG",
    address: str | None = None,
    penguin_page: str | None = None,
) -> int:
    """Run every source until the work is done or a signal comes. Return the exit code.

    ``where`` is the path of the configuration, for commands that the page shows. ``address`` serves
    the page there instead of where the configuration says, and ``penguin_page`` is the address of
    Penguin's page if it is to be part of this one. ``fresh`` forces a cold start of sources
    whose checkpoint is missing. ``admission`` may leave sources to the daemon that runs them.
    """
    if not config.pipelines:
        raise ConfigError("configuration", ["pipelines: is required to run blizzard"])
    check_extras(needed_extras(config))
    check_at_start(config)
    log = get_logger(daemon="blizzard")
    engine = LazyEngine(partial(spark_engine, config, "blizzard"), config.spark.idle_stop)
    stop = threading.Event()
    limits = config.global_
    loop = Loop(
        once,
        limits.advanced.poll_jitter,
        limits.advanced.shutdown_grace,
        renewed=config.secrets.changed,
    )
    workers = build(config, engine, fresh=fresh, admission=admission, once=once)
    sharing = _sharing(config, workers, once=once, fresh=fresh)
    turning: Sequence[SourcePipeline | ReplicaWorker] = sharing.workers if sharing else workers
    configured = None if config.metrics is None else config.metrics.address
    notifications = Notifications([w.parts for w in workers if w.parts.hints is not None])
    watch = RefusedWatch(workers)
    beating = [
        Beating(
            each.activity or worker.activity,
            open_storage(each.ingest.sink.uri, each.ingest.sink.options),
            source_heartbeat(each.letters_id),
        )
        for worker in workers
        for each in worker.each
    ]
    with (
        stop_on_signals(stop, loop.grace_secs),
        _page(config, workers, where, address or configured, penguin_page, notifications.webhooks),
        watch.looking(),
        notifications.receiving(),
        run_sinks(config, "blizzard") as sinks,
        heartbeats(beating, once=once),
    ):
        report_runs(turning, sinks)
        log.info("started", sources=[p.name for w in workers for p in w.each], once=once)
        if sharing and config.spark.idle_stop is None:
            engine.start_in_background(warm=True)  # a replica that stands by takes over at once
        try:
            # The lease goes before the engine, whose end may take longer than a lease.
            with sharing.membership.taking_part(stop) if sharing else nullcontext():
                shown = {w.name: w.meter for w in workers}
                with show_progress(shown, _terminal() if once else None):
                    code = run(turning, loop, stop, ended=_release)
                for worker in turning:  # those that ended before
                    _release(worker)
        finally:
            for worker in turning:
                worker.end_jobs()
            engine.stop()
            for worker in turning:
                worker.close()
        if once and not code:
            failing = [w.name for w in workers if w.source.is_failing]
            if failing:
                log.warning("units_failing", sources=failing)
            code = FAILING if failing else REFUSED if watch.look() else 0
        log.info("stopped", exit_code=code)
    return code


def _sharing(
    config: Config, workers: Sequence[SourcePipeline], *, once: bool, fresh: bool
) -> Sharing | None:
    """Return the share of this replica; None for a daemon that has all sources."""
    if config.global_.replicas is None:
        return None
    from blizzard_py.app.replicas import check_replicas, share_sources  # noqa: PLC0415  # see above

    check_replicas(config, once=once)
    return share_sources(config.global_.replicas, workers, fresh=fresh)


def _page(
    config: Config,
    workers: Sequence[SourcePipeline],
    where: str,
    address: str | None,
    penguin_page: str | None,
    recipients: Sequence[Recipient],
) -> AbstractContextManager[None]:
    """Serve the page; without an address its modules are not imported."""
    if address is None:
        return nullcontext()
    from blizzard_core.observability.address import WebAddress  # noqa: PLC0415  # see above
    from blizzard_core.observability.status import Panel  # noqa: PLC0415  # see above
    from blizzard_core.observability.web import served  # noqa: PLC0415  # see above
    from blizzard_py.app.page_providers import page_providers  # noqa: PLC0415  # see above

    providers = page_providers(
        workers,
        where,
        partial(_with_untaken, config),
        samples=WebAddress.parse(address).is_loopback,
    )
    views = [each.activity or w.activity for w in workers for each in w.each]
    return served(address, Panel("blizzard", views, time.time, providers, penguin_page, recipients))


def _with_untaken(config: Config, parts: SourceContext, found: Explanation) -> Explanation:
    # It brings Arrow and what reads files, which a daemon that does little never needs.
    from blizzard_py.app.new_fields import with_untaken  # noqa: PLC0415  # see above

    return with_untaken(config, parts, found)


def report_runs(
    workers: Sequence[SourcePipeline | ReplicaWorker], sinks: Sequence[RunSink]
) -> None:
    """Let the activities report their batches to other systems."""
    for worker in workers:
        for each in worker.each:
            places = (redacted(each.stores.source.uri), redacted(each.ingest.sink.uri))
            log = RunLog(Job("blizzard", each.name, *places), sinks, partial(_columns, worker))
            (each.activity or worker.activity).runs = log


def _columns(worker: SourcePipeline | ReplicaWorker) -> Columns:
    documents = map(field_document, as_read(worker.fields))
    return tuple((column["name"], column["type"]) for column in documents)


def _release(worker: SourcePipeline | ReplicaWorker) -> None:
    """Record that the source has no owner; if that fails, operators decide by themselves."""
    try:
        worker.release()
    except (StateError, StorageError) as error:
        pipeline, _, source = worker.name.partition("/")
        log = get_logger(pipeline=pipeline, source=source)
        log.warning("not_released", reason=str(error))


def _terminal() -> Console | None:
    """Return where a person watches, None in a container or a pipe."""
    if not sys.stderr.isatty():
        return None
    from rich.console import Console  # noqa: PLC0415  # see above

    console = Console(stderr=True)
    return console if console.is_terminal else None
