"""Restored state of queries over event time, read beside running daemons. Writes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blizzard_core.errors import ConfigError, StateError
from blizzard_core.extras import require
from blizzard_core.settings.document import Config
from blizzard_py.app.wiring import owner_context, owners
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.state_paths import StatePaths
from blizzard_py.state.stream_state import StreamState, moment
from blizzard_py.streaming.state_archive import StateArchive

if TYPE_CHECKING:  # Spark is imported for what has state, and for nothing else
    from blizzard_py.engines.spark.engine import SparkEngine
    from blizzard_py.streaming.state_reader import OperatorRows

# A daemon that settles a batch removes what the state before named, so a copy may miss a part.
_TRIES = 5


def event_state(config: Config, pipeline: str | None, most: int) -> dict[str, Any]:
    """Return the state of each query over event time, with at most ``most`` rows of each operator.

    Of ``pipeline``, or of all. Starts Spark if there is any state. Raises `ConfigError`,
    `StateError`, `StorageError`, `EngineError`.
    """
    queries = [
        owner_context(config, (name, source))
        for name, source in owners(config)
        if config.pipelines[name].query is not None and pipeline in {None, name}
    ]
    if not queries:
        where = "configuration" if pipeline is None else f"pipelines.{pipeline}"
        raise ConfigError(
            where, ["has no query over event_time, so there is no state to look into"]
        )
    engine = local_engine(config)
    try:
        return {
            "pipelines": {each.pipeline: _query_document(each, engine, most) for each in queries}
        }
    finally:
        engine.stop()


def operators_ending_by(
    config: Config, where: tuple[str, str], until_ms: int
) -> tuple[OperatorRows, ...]:
    """Return the operators of a source's query and how much of each ends by a time.

    Starts Spark. Raises as `event_state` does.
    """
    engine = local_engine(config)
    try:
        _, found = _operators(owner_context(config, where), engine, 1, until_ms)
        return found
    finally:
        engine.stop()


def local_engine(config: Config) -> SparkEngine:
    """Return a local Spark; executors of a cluster would not find the copy."""
    require("spark")
    from blizzard_py.engines.spark.engine import checking_engine  # noqa: PLC0415  # see above

    return checking_engine("local", config.spark.conf)


def _query_document(parts: SourceContext, engine: SparkEngine, most: int) -> dict[str, Any]:
    stream, operators = _operators(parts, engine, most)
    # Of several sources nobody knows which one the watermark will follow: the longest is safe.
    delay = max(branch.delay_us for branch in parts.branches) // 1000
    sources = [branch.source for branch in parts.branches]
    return {
        "source": ", ".join(sources),
        "batch": stream.batch,
        "watermark": moment(stream.watermark_ms),
        "operators": [
            {
                "name": operator.name,
                "rows": operator.count,
                "first": [
                    {
                        "key": row.key,
                        "value": row.value,
                        "ends": None if row.ends_ms is None else moment(row.ends_ms),
                        # The watermark is so far behind the newest row.
                        "let_go_by_a_row_after": None
                        if row.ends_ms is None
                        else moment(row.ends_ms + delay),
                    }
                    for row in operator.first
                ],
            }
            for operator in operators
        ],
    }


def _operators(
    parts: SourceContext, engine: SparkEngine, most: int, until_ms: int = 0
) -> tuple[StreamState, tuple[OperatorRows, ...]]:
    # Spark is imported for what has state, and for nothing else.
    from blizzard_py.engines.spark.scratch import Scratch  # noqa: PLC0415  # see above
    from blizzard_py.streaming.state_reader import read_operator_rows  # noqa: PLC0415  # see above

    packs = StateArchive(parts.stores.sink, StatePaths(parts.id).stream)
    scratch = Scratch()
    try:
        for last in (*[False] * (_TRIES - 1), True):
            state = read_state(parts.stores.sink, parts.id)
            stream = None if state is None else state.kind.stream
            if stream is None or not stream.packs:
                return stream or StreamState(query={}), ()
            copy = Path(scratch.path) / "state"
            try:
                packs.restore(stream.packs, copy)
            except StateError:
                shutil.rmtree(copy, ignore_errors=True)
                if last:
                    raise
                continue
            return stream, read_operator_rows(engine.session(), copy, most, stream.query, until_ms)
        raise AssertionError  # the last try returns or raises
    finally:
        scratch.close()
