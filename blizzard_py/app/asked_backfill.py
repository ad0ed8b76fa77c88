"""``blizzard backfill`` of a table or an API: refused, claimed, run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

from blizzard_core.daemon import Loop, run
from blizzard_core.errors import WatermarkError
from blizzard_core.settings.document import Config
from blizzard_core.signals import stop_on_signals
from blizzard_py.app.wiring import NoEngine, parts_of, source_pipeline, spark_engine
from blizzard_py.edits import checkpoint_edit
from blizzard_py.engines.lazy import LazyEngine
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.job import Engine
from blizzard_py.slices.compare import order
from blizzard_py.sources.parts import Parts
from blizzard_py.sources.tables.backfill import (
    BackfillSource,
    RangeRefused,
    ends_of,
    fitting,
    last_of,
    parsed_value,
    pieces_of,
    refusal,
    slug_of,
)
from blizzard_py.sources.tables.windows import to_stored
from blizzard_py.state.backfills import BACKFILL, backfills_of
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.source_state import SourceState


def backfill_asked(
    config: Config, where: tuple[str, str], ends: tuple[str, str], chunk: str, *, save: bool
) -> int:
    """Read ``[from, to)`` in chunks. Returns the exit code.

    With ``save`` the live source, which may not have begun, begins at ``to``; that is saved
    before anything is read. Raises `ConfigError`, `RangeRefused`.
    """
    engine = LazyEngine(partial(spark_engine, config, "blizzard-backfill"))
    stop = threading.Event()
    worker = backfill_worker(config, where, ends, chunk, engine, save=save)
    grace_secs = config.global_.shutdown_grace
    with stop_on_signals(stop, grace_secs), closing(worker):
        try:
            return run([worker], Loop(True, 0, grace_secs), stop)
        finally:
            engine.stop()


def backfill_worker(
    config: Config,
    where: tuple[str, str],
    ends: tuple[str, str],
    chunk: str,
    engine: Engine,
    *,
    save: bool,
) -> SourcePipeline:
    """The backfill as a worker, the range being its own. Raises as `backfill_asked` does."""
    live = parts_of(config, where, NoEngine())
    assert live.asked is not None  # noqa: S101  # the caller has looked
    if live.asked.replaces:
        raise RangeRefused(
            f"{live.name}: what it reads again replaces what it published; have it read again from"
            " --from with `blizzard checkpoint set --column`"
        )
    if len(live.asked.columns) != 1:
        raise RangeRefused(f"{live.name}: a range is of one watermark column, and it has several")
    [column] = live.asked.columns
    field = next((each for each in live.ingest.fields if each.name == column), None)
    first, last = (parsed_value(text, field) for text in ends)
    pieces_of(first, last, chunk)
    check_others = partial(
        _check_others, live, ends, lambda text: parsed_value(text, field), column
    )
    check_others()
    first, last = _within_bound(live, (first, last), column)
    pieces = pieces_of(first, last, chunk)
    ends_with = last_of(live.asked, last)
    state = read_state(live.stores.sink, live.id) or SourceState()
    if save and state == SourceState(source=state.source, last_update_ts=state.last_update_ts):
        _claim(live, {column: ends_with}, column)
        state = read_state(live.stores.sink, live.id) or SourceState()
    why = refusal(state.columns, column, ends_with)
    if why is not None:
        raise RangeRefused(f"{live.name}: {why}")
    parts = parts_of(config, where, engine, suffix=f"{BACKFILL}{slug_of(*ends)}")
    assert parts.asked is not None  # noqa: S101  # of the same source
    source = partial(BackfillSource, asking=parts.asked, pieces=pieces, check_others=check_others)
    return SourcePipeline(parts, source)


def _claim(live: Parts, watermark: dict[str, object], column: str) -> None:
    """The live source begins at the range's end, whoever starts it from now on."""
    found = source_pipeline(live)
    seen = checkpoint_edit.stored(found)
    kept = to_stored(watermark)
    checkpoint_edit.change(
        found, seen, lambda state: checkpoint_edit.set_columns(state, kept, (column,)), time.time()
    )


def _within_bound(live: Parts, ends: tuple[Any, Any], column: str) -> tuple[Any, Any]:
    """The ends as the column's own values are: times have a zone where those have one.

    Raises `RangeRefused` for a range that ends above what is settled, since rows that come into it
    later would be nobody's, and for one that the column's values cannot be compared with.
    """
    assert live.asked is not None  # noqa: S101  # the caller has looked
    connection = live.asked.connection
    with closing(connection):
        reached = connection.bound(live.asked.bound_kind, live.asked.settle_secs).value.get(column)
    if reached is None:
        raise RangeRefused(f"{live.name}: there is nothing to read by {column} yet")
    first, last = (fitting(end, reached) for end in ends)
    try:
        beyond = order(column, last_of(live.asked, last), reached) > 0
    except WatermarkError as error:
        raise RangeRefused(f"{live.name}: --from and --to are of another kind: {error}") from error
    if beyond:
        raise RangeRefused(
            f"{live.name}: {column} is settled up to {reached} by now; rows that come below --to"
            " later would be read by nobody, so give a --to that is not beyond it"
        )
    return first, last


def _check_others(
    live: Parts, ends: tuple[str, str], parsed: Callable[[str], Any], column: str
) -> None:
    """Raise `RangeRefused` if another backfill of the source has rows of the range."""
    first, last = map(parsed, ends)
    for source_id in backfills_of(live.stores.sink, live.id):
        others = ends_of(source_id.removeprefix(f"{live.id}{BACKFILL}"))
        if others == ends:
            continue
        low, high = map(parsed, others)
        if order(column, first, high) < 0 and order(column, low, last) < 0:
            raise RangeRefused(
                f"{live.name}: the backfill from {others[0]} to {others[1]} has rows of it; give"
                " the same range to go on with that one, or one beside it"
            )
