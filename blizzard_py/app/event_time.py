"""A pipeline over event time as people see it, and its present limits."""

from __future__ import annotations

from typing import Any

import msgspec

from blizzard_core.errors import ConfigError
from blizzard_core.settings.document import Config, PipelineSettings
from blizzard_core.settings.event_time import Branch, WatchedColumn
from blizzard_py.state.event_times import BEHIND_SECS, merge_buckets
from blizzard_py.state.stream_state import SourceStream, StreamState, moment, placeholder_query

# What of a settled batch is told where nothing is computed.
_WATCHED = (
    "batch",
    "files",
    "rows",
    "used_watermark_ms",
    "watermark_ms",
    "late_rows",
    "ahead_rows",
    "max_event_time_ms",
    "times",
)


def stream_to_json(pipeline: PipelineSettings, stream: StreamState | None) -> dict[str, Any]:
    """Return ``event_time`` of ``status --json``; counts are 0 before the first batch.

    ``policy`` is the checkpoint's, which is in force whatever the configuration says.
    ``advance_to`` is the operator's target for the next batch.
    """
    given = pipeline.query
    assert given is not None  # noqa: S101  # the caller has looked
    if stream is None or stream.is_watched:  # of a query that watching has become nothing is known
        stream = StreamState(query={"policy": given.advanced.policy})
    document = msgspec.to_builtins(stream)
    return {
        "columns": list(dict.fromkeys(branch.column for branch in pipeline.branches)),
        "policy": stream.query.get("policy", given.advanced.policy),
        "mode": given.mode,
        "batch": stream.batch,
        "watermark": moment(stream.watermark_ms),
        "watermark_ms": stream.watermark_ms,
        "advance_to": moment(stream.advance_to_ms),
        "max_event_time_ms": stream.max_event_time_ms,
        "late_rows": stream.late_rows,
        "partly_late_rows": stream.partly_late_rows,
        "ahead_rows": stream.ahead_rows,
        "unaccounted_rows": stream.unaccounted_rows,
        "state_rows": stream.state_rows,
        "state_bytes": stream.state_bytes,
        "operators": document["operators"],
        "behind": _behind(stream),
        "sources": {
            branch.source: _shown_source(branch, stream, alone=len(pipeline.branches) == 1)
            for branch in pipeline.branches
        },
        "history": document["history"],
    }


def watch_to_json(watch: WatchedColumn, stream: StreamState | None) -> dict[str, Any]:
    """Return ``event_time`` of a source whose watermark is only reported."""
    if stream is None or stream.query != placeholder_query(watch.column):
        stream = StreamState(query={})
    return {
        "column": watch.column,
        "batch": stream.batch,
        "watermark": moment(stream.watermark_ms),
        "watermark_ms": stream.watermark_ms,
        "max_event_time_ms": stream.max_event_time_ms,
        "late_rows": stream.late_rows,
        "ahead_rows": stream.ahead_rows,
        "behind": _behind(stream),
        "history": [
            {name: line[name] for name in _WATCHED} for line in msgspec.to_builtins(stream.history)
        ],
    }


def _behind(stream: StreamState) -> list[dict[str, Any]]:
    """Return the row counts of the batches in ``history`` by delay; the last is open."""
    rows = merge_buckets(line.times for line in stream.history if line.times is not None)
    return [
        {"up_to_secs": secs, "rows": count}
        for secs, count in zip((*BEHIND_SECS, None), rows, strict=True)
    ]


def _shown_source(branch: Branch, stream: StreamState, *, alone: bool) -> dict[str, Any]:
    """Return the numbers of one source; a single source has those of the query."""
    own = stream.sources.get(branch.source, SourceStream())
    if alone:
        own = SourceStream(
            max_event_time_ms=stream.max_event_time_ms,
            late_rows=stream.late_rows,
            partly_late_rows=stream.partly_late_rows,
            ahead_rows=stream.ahead_rows,
        )
    document: dict[str, Any] = msgspec.to_builtins(own)
    del document["files_ts"]
    return document


def refuse_rows(config: Config, where: tuple[str, str], what: str) -> None:
    """Raise `ConfigError` for a pipeline over event time, whose windows are published."""
    _refuse(
        config,
        where,
        f"{what} cannot add rows to published windows; compute them again with a new"
        " pipeline into a table of its own, or of corrections",
    )


def refuse_edit(config: Config, where: tuple[str, str], what: str) -> None:
    """Raise `ConfigError` for a pipeline over event time, whose state fits its files."""
    _refuse(
        config,
        where,
        f"{what} is not made for it: the open windows hold rows of exactly the files that are"
        " done; give the query a new pipeline and a table of its own, or have it forget its open"
        " windows and go on: `blizzard checkpoint reset --event-time`",
    )


def _refuse(config: Config, where: tuple[str, str], text: str) -> None:
    pipeline = config.pipelines.get(where[0])
    if pipeline is not None and pipeline.query is not None:
        raise ConfigError(f"pipelines.{where[0]}.event_time", [text])
