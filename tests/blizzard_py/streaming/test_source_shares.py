"""Each source's rows in a batch, sources that the watermark waits for, and ticks."""

from __future__ import annotations

from dataclasses import replace

from blizzard_core.settings.event_time import Branch
from blizzard_py.job import FinishedFile, IngestResult, StagedBadRecords, UnexpectedField
from blizzard_py.state.stream_state import SourceStream, StreamState
from blizzard_py.streaming.source_shares import (
    idle_in,
    join_reports,
    newest_of,
    sources_after,
    ticks_of,
)
from blizzard_py.streaming.staged_times import TimeTally

HOUR = 3_600_000_000
WEB, APP, BUS = Branch("web", "ts", 10), Branch("app", "ts", 20, HOUR), Branch("bus", "ts", 0)
ALL = (APP, BUS, WEB)


def known(**files_ts: float) -> StreamState:
    sources = {name: SourceStream(files_ts=at) for name, at in files_ts.items()}
    return StreamState(query={}, sources=sources, batch=1)


def test_a_source_is_idle_after_that_long_without_files() -> None:
    state = known(web=0.0, app=1000.0, bus=0.0)
    assert idle_in(state, ALL, ["web"], 1000.0 + 3599) == set()
    assert idle_in(state, ALL, ["web"], 1000.0 + 3600) == {"app"}
    assert idle_in(state, ALL, ["web", "app"], 9000.0) == set()
    # Before the first batch nobody has waited, and without idle_after it is waited for ever.
    assert idle_in(StreamState(query={}), ALL, ["web"], 9e9) == set()


def test_an_idle_source_follows_the_newest_time_of_the_others() -> None:
    state = replace(
        known(),
        sources={
            "app": SourceStream(max_event_time_ms=9_000),
            "bus": SourceStream(max_event_time_ms=4_000),
            "web": SourceStream(),
        },
    )
    assert ticks_of(state, ALL, {"app"}, {"web": 3_000_500}) == {"app": 4_000_000}
    assert ticks_of(state, ALL, {"app"}, {"web": 5_000_001}) == {"app": 5_000_001}
    assert ticks_of(state, ALL, set(), {"web": 5_000_001}) == {}
    assert ticks_of(StreamState(query={}), ALL, {"app"}, {}) == {}


def test_times_before_1970_move_no_watermark() -> None:
    """A tick of that time would not be told from a row."""
    old = {"web": -600_000_000}
    assert ticks_of(StreamState(query={}), ALL, {"app"}, old) == {}
    assert ticks_of(StreamState(query={}), ALL, {"app"}, {"web": 0}) == {}
    assert ticks_of(StreamState(query={}), ALL, {"app"}, {"web": 1}) == {"app": 1}


def test_advance_request_applies_to_all_sources() -> None:
    state = replace(known(), advance_to_ms=7, watermark_ms=3)
    assert ticks_of(state, ALL, (), {}) == {"app": 7_020, "bus": 7_000, "web": 7_010}
    assert ticks_of(state, ALL, {"app"}, {"web": 9_000}) == {"app": 9_000, "bus": 7000, "web": 7010}
    assert ticks_of(replace(state, watermark_ms=7), ALL, (), {}) == {}


def test_sources_after_updates_each_source() -> None:
    found = {"app": TimeTally(late=1, newest_us=5_999), "web": TimeTally(ahead=2)}
    first = sources_after(StreamState(query={}), found, ["app"], (), 50.0)
    assert first["app"] == SourceStream(max_event_time_ms=5, files_ts=50.0, late_rows=1)
    assert first["web"] == SourceStream(files_ts=50.0, ahead_rows=2)
    nothing = {"app": TimeTally(), "web": TimeTally()}
    later = sources_after(replace(known(), sources=first), nothing, ["web"], {"app"}, 90.0)
    assert later["app"] == replace(first["app"], idle=True)
    assert later["web"] == replace(first["web"], files_ts=90.0)
    assert newest_of(found) == {"app": 5_999}
    assert sources_after(StreamState(query={}), {"web": TimeTally()}, ["web"], (), 1.0) == {}


def test_joined_report_names_the_source_of_each_item() -> None:
    one = IngestResult(
        (),
        (FinishedFile("a", "ingested"),),
        2,
        (StagedBadRecords("s", (("a", 1),)),),
        1,
        unexpected=(UnexpectedField("x", "a"),),
    )
    assert join_reports({"web": one}) is one
    found = join_reports({"app": one, "web": IngestResult((), (), 0)})
    assert found.files == (FinishedFile("app:a", "ingested"),)
    assert found.letters == (StagedBadRecords("s", (("app:a", 1),)),)
    assert (found.tasks, found.rows_dropped) == (2, 1)
    assert found.unexpected == (UnexpectedField("x", "app:a"),)
