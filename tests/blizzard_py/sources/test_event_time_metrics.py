"""Metrics of a batch with event time."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import REGISTRY

from blizzard_py.sources.activity import SourceActivity
from blizzard_py.state.event_times import EventTimes
from blizzard_py.state.source_state import KindState, SourceState
from blizzard_py.state.stream_state import OperatorState, QueryBatch, StreamState

TARGET = "metrics/of_event_time"


def sample(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"blizzard_{name}", {"target": TARGET, **labels})


def test_a_batch_is_counted_once_however_often_it_is_saved() -> None:
    activity = SourceActivity(TARGET, "", lambda: 5.0)
    line = QueryBatch(
        batch=1,
        files=1,
        rows=5,
        used_watermark_ms=0,
        watermark_ms=1_000,
        times=EventTimes(5, 1_000, 9_000, 4_500.0, (3, 0, 0, 0, 1, *[0] * 7, 1)),
        operators=(OperatorState("stateStoreSave", 3, 99, 4, 2, 1),),
    )
    stream = StreamState(query={}, batch=1, history=(line,))
    activity.saved(SourceState())
    for _ in range(2):
        activity.saved(SourceState(kind=KindState(stream=stream)))
    assert sample("event_time_rows_total", behind="0") == 3
    assert sample("event_time_rows_total", behind="60") == 1
    assert sample("event_time_rows_total", behind="inf") == 1
    assert sample("event_time_batch_seconds", statistic="min") == 1
    assert sample("event_time_batch_seconds", statistic="max") == 9
    assert sample("event_time_batch_seconds", statistic="avg") == 4.5
    assert sample("operator_state_rows", operator="stateStoreSave") == 3
    assert sample("operator_state_bytes", operator="stateStoreSave") == 99
    changes = [
        sample("operator_rows_total", operator="stateStoreSave", change=change)
        for change in ("updated", "removed", "dropped")
    ]
    assert changes == [4, 2, 1]
    # Of a batch without rows the times of the one before stay.
    empty = replace(line, batch=2, times=None)
    activity.saved(
        SourceState(kind=KindState(stream=replace(stream, batch=2, history=(line, empty))))
    )
    assert sample("event_time_rows_total", behind="0") == 3
    assert sample("event_time_batch_seconds", statistic="max") == 9
