"""The daemon and a backfill."""

from __future__ import annotations

import threading
import time
from functools import partial

from rich.console import Console

from blizzard_core.checkpoint.writer import Admission, anybody
from blizzard_core.daemon import FAILING, REFUSED, Loop, run
from blizzard_core.errors import ConfigError, StateError, StorageError
from blizzard_core.log import get_logger
from blizzard_core.observability.status import Panel
from blizzard_core.observability.web import served
from blizzard_core.settings.document import Config
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.signals import stop_on_signals
from blizzard_py.app.live_progress import shown
from blizzard_py.app.new_fields import with_untaken
from blizzard_py.app.refused_watch import RefusedWatch
from blizzard_py.app.status_page.offers import desk_of
from blizzard_py.app.wiring import (
    NoEngine,
    build,
    parts_of,
    source_of,
    source_pipeline,
    spark_engine,
)
from blizzard_py.engines.lazy import LazyEngine
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.replay.ownership import backfill_ranges
from blizzard_py.sources.files.discovery import Scope, accepts
from blizzard_py.sources.files.opening import open_files
from blizzard_py.sources.ranges import (
    Range,
    RangeRefused,
    begins_over,
    check_earlier,
    check_range,
    is_finished,
    is_ours,
)
from blizzard_py.sources.stale import current_state
from blizzard_py.sources.tables.units import UnitSource
from blizzard_py.state.checkpoint_file import read_ledger, read_state
from blizzard_py.state.siblings import BACKFILL


def run_daemon(
    config: Config,
    *,
    once: bool,
    fresh: bool = False,
    admission: Admission = anybody,
    where: str = "CONFIG",
) -> int:
    """Run every source until the work is done or a signal comes. Returns the exit code.

    ``where`` is where the configuration is, for commands that the page offers.

    ``fresh`` insists on a cold start of sources whose checkpoint is missing; ``admission`` may
    leave sources to the daemon that works on them.
    """
    if not config.pipelines:
        raise ConfigError("configuration", ["pipelines: is required to run blizzard"])
    log = get_logger()
    engine = LazyEngine(partial(spark_engine, config, "blizzard"))
    stop = threading.Event()
    limits = config.global_
    loop = Loop(
        once,
        limits.advanced.poll_jitter,
        limits.shutdown_grace,
        renewed=config.secrets.changed,
    )
    workers = build(config, engine, fresh=fresh, admission=admission)
    desk = desk_of(workers, where, partial(with_untaken, config))
    views = [each.activity or w.activity for w in workers for each in w.each]
    panel = Panel("blizzard", views, time.time, desk)
    address = None if config.metrics is None else config.metrics.address
    watch = RefusedWatch(workers)
    with stop_on_signals(stop, loop.grace_secs), served(address, panel), watch.looking():
        log.info("started", sources=[p.name for w in workers for p in w.each], once=once)
        try:
            with shown({w.name: w.meter for w in workers}, _terminal() if once else None):
                code = run(workers, loop, stop)
            for worker in workers:
                _release(worker)
        finally:
            for worker in workers:
                worker.end_jobs()
            engine.stop()
            for worker in workers:
                worker.close()
        if once and not code:
            failing = [
                w.name for w in workers if isinstance(w.source, UnitSource) and w.source.is_failing
            ]
            if failing:
                log.warning("units_failing", sources=failing)
            code = FAILING if failing else REFUSED if watch.look() else 0
        log.info("stopped", exit_code=code)
    return code


def _release(worker: SourcePipeline) -> None:
    """Say that the source has no owner any more; where that cannot be said people are asked."""
    try:
        worker.release()
    except (StateError, StorageError) as error:
        get_logger(pipeline=worker.pipeline, source=worker.source_name).warning(
            "not_released", reason=str(error)
        )


def _terminal() -> Console | None:
    """Return where a person watches, None in a container or a pipe."""
    console = Console(stderr=True)
    return console if console.is_terminal else None


def backfill(
    config: Config, where: tuple[str, str], chosen: Range, *, replay: bool, anew: bool = False
) -> int:
    """Ingest a closed range of a source beside its live daemon. Returns the exit code.

    With ``replay`` also what was done, and with ``anew`` once more if a replay of it is finished.

    Raises `ConfigError` for an unknown source, `RangeRefused`, and `StateError` where the
    live daemon would be refused, too.
    """
    source = source_of(config, where)
    if not isinstance(source, SourceSettings):
        raise RangeRefused(f"{'/'.join(where)} has no partitions to give --from and --to of")
    for prefix in (chosen.first, chosen.last):
        if accepts(source.advanced.compression)(prefix):
            raise RangeRefused(f"{prefix!r} is a file; --from and --to are partitions")
    parts = parts_of(config, where, NoEngine())
    live = source_pipeline(parts)
    state = current_state(parts)
    check_range(chosen, state, backfill_ranges(parts), replay=replay)
    if state is None:
        raise StateError(f"{live.name}: its checkpoint is gone")
    # Kept in another way, it would say nothing of what this backfill is to leave out.
    live.check(state)
    ledger = read_ledger(live.sink, parts.id)
    suffix = f"{BACKFILL}{chosen.slug}"
    earlier = read_state(live.sink, f"{parts.id}{suffix}")
    check_earlier(earlier, replay=replay)
    scope = Scope(chosen.gap, partial(is_ours, state, ledger, replay=replay))
    again = partial(begins_over, anew=anew) if replay else None
    if again and earlier is not None and is_finished(earlier) and not again(earlier):
        log = get_logger(pipeline=live.pipeline, source=live.source_name)
        remedy = "nothing of it comes again; give --anew to ingest it once more"
        log.warning("range_replayed", begun_ts=earlier.anew_ts, remedy=remedy)
    engine = LazyEngine(partial(spark_engine, config, "blizzard-backfill"))
    stop = threading.Event()
    bounded = source.for_range(state.progress.depth)
    worker = SourcePipeline(
        parts_of(config, where, engine, bounded, suffix),
        partial(open_files, scope=scope),
        begins_over=again,
    )
    grace_secs = config.global_.shutdown_grace
    with stop_on_signals(stop, grace_secs):
        try:
            with shown({worker.name: worker.meter}, _terminal()):
                return run([worker], Loop(True, 0, grace_secs), stop)
        finally:
            engine.stop()
