"""An API from the configuration to Parquet files: windows, bad records, look-backs, credentials."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from blizzard_core import redact
from blizzard_py.app import inspection
from blizzard_py.app.wiring import context_of
from blizzard_py.app.workers import source_pipeline
from blizzard_py.dead_letters import reader as letters
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.state.checkpoint_file import read_state
from tests.support.api_server import api_server
from tests.support.direct_engine import DirectEngine
from tests.support.record_api import TOKEN, WHERE, Records, configured, polled
from tests.support.request_harness import submit


def ids(folder: Path) -> list[int]:
    files = sorted((folder / "lake").glob("*.parquet"))
    return sorted(row["id"] for file in files for row in pq.ParquetFile(file).read().to_pylist())


@pytest.mark.promise("G-146")
def test_windows_of_an_api_with_a_bad_record_and_a_plan(tmp_path: Path) -> None:
    try:
        with api_server() as api:
            records = Records(api)
            config = configured(api, tmp_path)
            for number in range(1, 6):
                records.put(number, -10 * number)
            records.put("odd", -5)
            polled(config)
            assert ids(tmp_path) == [1, 2, 3, 4, 5]
            live = context_of(config, WHERE, DirectEngine())
            [found] = letters.objects(live.stores.dlq, live.letters_id)
            [letter] = letters.read(live.stores.dlq, found)
            assert b'"odd"' in letter.raw
            records.now += dt.timedelta(hours=1)
            records.put(6, -30)
            document, errors = inspection.plan(config)
            planned = document["pipelines"]["orders"]["sources"]["crm"]
            assert errors == []
            assert planned["request"]["params"]["since"].startswith("2026-04-30T23:59:00")
            assert planned["query"] is None
            assert TOKEN not in str(document)
            polled(config)
            polled(config)
            assert ids(tmp_path) == [1, 2, 3, 4, 5, 6]
            assert {asked.headers.get("authorization") for asked in api.asked} <= {
                f"Bearer {TOKEN}",
                None,
            }
    finally:
        redact.forget()


def test_a_look_back_of_an_api_publishes_each_version_once(tmp_path: Path) -> None:
    try:
        with api_server() as api:
            records = Records(api)
            mark = {"backward": {"hours": 2}, "reread": "new_only", "key": ["id"]}
            config = configured(api, tmp_path, **mark)
            for number in range(1, 5):
                records.put(number, -10 * number)
            polled(config)
            records.now += dt.timedelta(minutes=30)
            records.put(9, -50)  # late: below the watermark
            records.put("odd", -55)
            polled(config)
            records.now += dt.timedelta(minutes=30)
            records.put(1, -5)  # changed: another version
            polled(config)
            assert ids(tmp_path) == [1, 1, 2, 3, 4, 9]
            live = context_of(config, WHERE, DirectEngine())
            assert len(list(letters.objects(live.stores.dlq, live.letters_id))) == 1
    finally:
        redact.forget()


@pytest.mark.parametrize("format_", ["iso", "datetime", "datetime_ms"])
def test_chunks_and_first_poll_neither_overlap_nor_leave_a_gap(
    tmp_path: Path, format_: str
) -> None:
    """Chunks and what comes after them neither overlap nor leave a row out at their ends."""
    inclusive = "1s" if format_ == "datetime" else "1ms"
    push = {
        "from": {"param": "since", "format": format_},
        "to": {"param": "until", "format": format_, "inclusive": inclusive},
    }
    with api_server() as api:
        records = Records(api)
        config = configured(api, tmp_path, push=push)
        for number in range(9):
            records.put(number, 360 * number)  # the second to fifth day's midnights are among them
            records.put(100 + number, 360 * number - 1 / 60)
        records.now += dt.timedelta(days=3)
        ends = ["2026-05-01", "2026-05-03"]
        parts = context_of(config, WHERE, DirectEngine())
        request = submit(parts, {"values": ends}, chunk="days=1", begin_live_at_end=True)
        with contextlib.closing(source_pipeline(parts, requests_only=True)) as worker:
            while worker.cycle(threading.Event()):
                pass
        ended = Mailbox(parts.stores.sink, parts.id).end_record(request)
        assert ended.state == "done"
        assert ids(tmp_path) == [*range(8), *range(101, 109)]
        polled(config)
    assert ids(tmp_path) == [*range(9), *range(101, 109)]


@pytest.mark.parametrize(
    ("to", "chunk"), [("2026-05-03T12:00", "days=1"), ("2026-05-03", "hours=6")]
)
def test_range_ends_finer_than_the_api_format_are_rejected(
    tmp_path: Path, to: str, chunk: str
) -> None:
    push = {
        "from": {"param": "since", "format": "date"},
        "to": {"param": "until", "format": "date", "inclusive": "1day"},
    }
    with api_server() as api:
        records = Records(api)
        config = configured(api, tmp_path, push=push)
        records.now += dt.timedelta(days=5)
        parts = context_of(config, WHERE, DirectEngine())
        request = submit(parts, {"values": ["2026-05-01", to]}, chunk=chunk, begin_live_at_end=True)
        with contextlib.closing(source_pipeline(parts, requests_only=True)) as worker:
            while worker.cycle(threading.Event()):
                pass
        ended = Mailbox(parts.stores.sink, parts.id).end_record(request)
        assert ended.state == "rejected"
        assert "set a coarser end" in ended.reason
        state = read_state(parts.stores.sink, parts.id)
        assert state.kind.columns is None


def test_a_record_at_the_end_of_a_chunk_comes_once(tmp_path: Path) -> None:
    with api_server() as api:
        records = Records(api)
        config = configured(api, tmp_path, push={"from": {"param": "since"}})
        tick = 1 / 60_000_000
        for number, minutes in enumerate((600, 1440 - tick, 1440, 2880 - tick, 2880)):
            records.put(number, minutes)
        records.now += dt.timedelta(days=3)
        parts = context_of(config, WHERE, DirectEngine())
        ends = ["2026-05-01", "2026-05-03"]
        submit(parts, {"values": ends}, chunk="days=1", begin_live_at_end=True)
        with contextlib.closing(source_pipeline(parts, requests_only=True)) as worker:
            while worker.cycle(threading.Event()):
                pass
        polled(config)
    assert ids(tmp_path) == list(range(5))
