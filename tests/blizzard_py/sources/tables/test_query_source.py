"""A table read above a watermark through the real protocol and kernel: every row once."""

from __future__ import annotations

import contextlib
import datetime as dt
import random
from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from blizzard_core.errors import (
    BlizzardError,
    PipelineStopped,
    SourceError,
    StateError,
    Unavailable,
    WatermarkError,
)
from blizzard_py.connections.protocol import ReadBound
from blizzard_py.edits import checkpoint_edit
from blizzard_py.edits.checkpoint_store import EditRefused
from blizzard_py.job import ErrorTolerance, FieldSpec, PartitionRule
from blizzard_py.sources.tables import windows
from blizzard_py.state import seen_rows
from blizzard_py.state.column_state import ColumnState
from blizzard_py.state.source_state import KindState, SourceState
from tests.support.memory_store import Died, Dying
from tests.support.promise_scenarios import is_running_batch, killed
from tests.support.query_harness import FIELDS, QueryHarness
from tests.support.toy_connection import ToyTable

NUMBERED = pa.schema([("n", pa.int64()), ("text", pa.string())])
TIMED = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("text", pa.string())])
TIME_FIELDS = (
    FieldSpec("at", "timestamp", nullable=True),
    FieldSpec("text", "string", nullable=True),
)
START = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)


def numbers(kind: Any = "max", **asking: Any) -> QueryHarness:
    return QueryHarness(ToyTable("numbers", kind=kind, schema=NUMBERED), **asking)


def put(world: QueryHarness, *rows: tuple[int, str]) -> None:
    world.table.rows += [{"n": n, "text": text} for n, text in rows]


def hours(world: QueryHarness, *rows: tuple[float, str]) -> None:
    """Rows so many hours after the start; the bound is the latest that was ever said."""
    world.table.rows += [
        {"at": START + dt.timedelta(hours=hour), "text": text} for hour, text in rows
    ]


def timed(**asking: Any) -> QueryHarness:
    table = ToyTable("timed", "at", kind="clock", schema=TIMED)
    return QueryHarness(table, TIME_FIELDS, **asking)


def until(world: QueryHarness, hour: float) -> None:
    world.table.top = START + dt.timedelta(hours=hour)


@pytest.mark.promise("G-135")
def test_rows_come_once_and_ties_with_the_next_window() -> None:
    world = numbers()
    put(world, (1, "a"), (2, "b"), (2, "c"))
    world.drain()
    assert world.texts() == ["a", "b", "c"]
    put(world, (2, "late tie"), (3, "d"))
    world.drain()
    put(world, (3, "late again"), (4, "e"))
    world.drain()
    assert world.texts() == ["a", "b", "c", "d", "e", "late again", "late tie"]
    assert world.known()["watermark"] == {"n": 4}
    assert world.known()["seq"] == 3


@pytest.mark.promise("G-167")
def test_a_poll_without_rows_costs_two_statements_and_no_save() -> None:
    world = numbers("clock")
    put(world, (1, "a"))
    world.drain()
    worker = world.pipeline()
    world.drain(worker)
    jobs, saved = len(world.engine.jobs), dict(world.sink.objects)
    for top in (5, 6):
        world.table.top, world.table.statements = top, 0
        world.drain(worker)
        assert world.table.statements == 2
    assert world.sink.objects == saved
    assert len(world.engine.jobs) == jobs
    put(world, (4, "between"), (7, "later"))
    world.table.top = 7
    world.drain(worker)
    assert world.texts() == ["a", "between", "later"]


@pytest.mark.promise("G-127")
def test_window_of_a_dead_daemon_is_read_again_as_planned() -> None:
    world = numbers()
    put(world, (1, "a"), (2, "b"))
    killed(world, is_running_batch(world))
    planned = world.known()
    put(world, (3, "c"))
    world.engine.jobs.clear()
    world.pipeline().cycle(_Stop())
    first, _ = world.engine.jobs
    read = [task.spec for task in first.reading.tasks.values()]
    assert read == [task["spec"] for task in planned["tasks"]]
    assert world.texts() == ["a", "b", "c"]


class _Stop:
    def is_set(self) -> bool:
        return False

    def set(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002  # as the protocol says
        return False


def troubled_numbers(world: QueryHarness) -> None:
    put(world, (1, "a"), (2, "b"), (3, "c"), (3, "d"), (3, "e"))


def test_rows_below_look_back_are_skipped_and_digests_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(seen_rows, "TAIL", 2)
    world = timed(backward={"hours": 5}, new_only=True)
    hours(world, *((hour, f"r{hour:02}") for hour in range(1, 4)))
    until(world, 3)
    world.drain()
    for hour in range(4, 30):
        hours(world, (hour, f"r{hour:02}"))
        until(world, hour)
        world.drain()
    hours(world, (2, "too late"), (28, "in time"))
    until(world, 30)
    world.drain()
    assert world.texts() == sorted([f"r{hour:02}" for hour in range(1, 30)] + ["in time"])
    kept = sum(segment["count"] for segment in world.known()["seen"])
    assert 5 <= kept <= 20
    listed = {path for path in world.sink.objects if "_seen/" in path}
    assert len(listed) == len(world.known()["seen"])


@pytest.mark.promise("G-136")
def test_longer_or_new_look_back_duplicates_no_row() -> None:
    world = timed()
    hours(world, (1, "a"), (2, "b"), (20, "c"))
    until(world, 20)
    world.drain()
    world.asking = {"backward": {"hours": 10}, "new_only": True}
    hours(world, (15, "unknown whether late"), (21, "d"))
    until(world, 21)
    world.drain()
    world.asking = {"backward": {"days": 10}, "new_only": True}
    hours(world, (20.5, "late"), (22, "e"))
    until(world, 22)
    world.drain()
    assert world.texts() == ["a", "b", "c", "d", "e", "late"]


@pytest.mark.promise("G-138")
def test_failed_task_fails_its_window_and_one_read_is_published() -> None:
    world = numbers()
    troubled_numbers(world)
    reads = []

    def fails_late() -> None:
        reads.append(len(reads))
        if len(reads) == 2:
            world.table.rows[0]["text"] = "a, changed since"
            raise Unavailable("the server went away")

    world.table.at_read = fails_late
    with pytest.raises(Unavailable):
        world.drain()
    assert world.table_rows() == []
    assert world.known()["watermark"] == {}
    world.drain_with_errors()
    assert world.texts() == ["a, changed since", *"bcde"]


def test_a_source_that_refuses_stops_and_passes_nothing() -> None:
    world = numbers()
    troubled_numbers(world)
    world.fields = (*FIELDS, FieldSpec("gone", "string", nullable=True))
    with pytest.raises(SourceError, match="column 'gone' no longer exists"):
        world.drain()
    assert world.table_rows() == []


@pytest.mark.promise("G-139")
def test_a_bound_below_the_watermark_stops() -> None:
    world = numbers()
    put(world, (9, "a"))
    world.drain()
    world.table.rows.clear()
    put(world, (3, "restored"))
    with pytest.raises(WatermarkError, match="below the stored watermark 9"):
        world.drain()


def test_a_watermark_that_was_set_doubles_no_row_at_it() -> None:
    world = numbers()
    put(world, (1, "a"), (2, "b"), (3, "c"))
    world.drain()
    found = world.pipeline()
    edited = checkpoint_edit.set_columns
    seen = checkpoint_edit.read_checkpoint(found)
    checkpoint_edit.change(found, seen, lambda s: edited(s, {"n": 2}, ("n",)), world.now)
    world.drain()
    assert world.texts() == ["a", "b", "c", "c"]
    assert world.known()["seq"] == 3


def test_null_rows_are_in_the_first_window_wherever_it_begins() -> None:
    world = numbers()
    put(world, (1, "a"), (3, "c"))
    asking = world.parts().query_spec
    assert asking is not None

    def first(known: ColumnState) -> bool:
        kept = windows.plan_window(known, asking, FIELDS, ReadBound("max", {"n": 3}), world.now)
        return kept.nulls_first

    begun_at = checkpoint_edit.set_columns(SourceState(), {"n": 2}, ("n",)).kind.columns
    assert begun_at is not None
    assert first(ColumnState())
    assert first(begun_at)
    assert not first(replace(begun_at, watermark={"n": 2.5}))
    assert not first(ColumnState(watermark={"n": 2}))


def test_a_watermark_is_set_on_the_configured_columns_only() -> None:
    with pytest.raises(EditRefused, match="'m' is not one of"):
        checkpoint_edit.set_columns(SourceState(), {"m": 2}, ("n",))
    with pytest.raises(EditRefused, match="give a value for 'm', too"):
        checkpoint_edit.set_columns(SourceState(), {"n": 2}, ("n", "m"))
    with pytest.raises(EditRefused, match="give --column"):
        checkpoint_edit.with_watermark(SourceState(kind=KindState(columns=ColumnState())), "", "x")
    over = checkpoint_edit.reset(SourceState(kind=KindState(columns=ColumnState({"n": 2}, seq=7))))
    assert over.kind.columns == ColumnState(seq=8)


def test_an_emptied_table_is_no_news() -> None:
    world = numbers()
    put(world, (9, "a"))
    world.drain()
    world.table.rows.clear()
    world.drain()
    assert world.texts() == ["a"]


@pytest.mark.promise("G-139")
def test_a_type_that_changed_stops_with_both_types() -> None:
    world = numbers()
    put(world, (9, "a"))
    world.drain()
    world.table.top = "nine"
    with pytest.raises(WatermarkError, match=r"'nine' \(text\) and 9 \(number\)"):
        world.drain()


@pytest.mark.promise("G-139")
def test_other_watermark_columns_are_refused() -> None:
    world = numbers()
    put(world, (9, "a"))
    world.drain()
    world.table.column = "id"
    with pytest.raises(StateError, match="its watermark is on n, the configuration says id"):
        world.drain()


@pytest.mark.promise("G-141")
def test_bad_rows_become_dead_letters_with_row_and_query() -> None:
    table = ToyTable("mixed", schema=pa.schema([("n", pa.int64()), ("text", pa.string())]))
    world = QueryHarness(
        table, (FIELDS[0], FieldSpec("text", "decimal", nullable=True, precision=5, scale=2))
    )
    put(world, (1, "1.5"), (2, "NaN"), (3, "2"))
    world.drain()
    assert [row["n"] for row in world.table_rows()] == [1, 3]
    [letter] = world.row_letters()
    assert letter["raw"] == '{"n": 2, "text": "NaN"}'
    assert letter["where"].startswith("rows {")
    assert letter["path"] == "mem://raw/000000000000#0"
    assert letter["line"] == 2
    assert "column 'text'" in letter["error"]
    assert world.checkpoint()["totals"]["bad_rows"] == 1


def test_bad_rows_stop_where_they_are_to_or_are_no_slips() -> None:
    world = numbers()
    world.fields = (FIELDS[0], FieldSpec("text", "int64", nullable=True))
    put(world, (1, "x"))
    world.job = {"tolerance": ErrorTolerance("fail")}
    with pytest.raises(PipelineStopped, match="stopped at a bad record"):
        world.drain()
    world.job = {}
    world.table.task_rows = 100
    put(world, *((n, "x") for n in range(2, 40)))
    fresh = QueryHarness(world.table, world.fields)
    with pytest.raises(PipelineStopped, match="39 of 39 rows are bad"):
        fresh.drain()
    assert fresh.row_letters() == []


def test_rows_go_to_the_directories_of_their_values() -> None:
    world = numbers()
    world.by = (PartitionRule("text", key="text"),)
    put(world, (1, "a"), (2, "b"), (3, "a"))
    world.drain()
    outputs = [path for path in world.sink.objects if path.endswith(".parquet")]
    assert {path.partition("/")[0] for path in outputs} == {"text=a", "text=b"}


def test_showing_the_state_sends_no_statement() -> None:
    world = numbers()
    put(world, (1, "a"))
    worker = world.drain()
    world.table.statements = 0
    state = worker.load()
    shown = worker.source.status_fields(state)
    assert (shown["watermark"], shown["bound"], shown["rows"]) == ({"n": 1}, "max", 1)
    assert worker.backlog(state).files == 0
    assert world.table.statements == 0


@pytest.mark.promise("G-128")
@pytest.mark.parametrize("seed", range(8))
def test_any_number_of_deaths_while_the_table_is_written(seed: int) -> None:
    chance = random.Random(seed)
    back = seed % 2 == 1
    world = timed(backward={"hours": 4}, new_only=True) if back else numbers()
    expected = []
    top = 0
    dying = Dying(world.sink, world.dlq)
    for step in range(25):
        for number in range(chance.randrange(4)):
            text = f"{step:02}-{number}"
            expected.append(text)
            if back:
                # Late by less than the look-back, as seen from the watermark.
                hours(world, (top + chance.choice([1, 0.5, -1, -2]), text))
            else:
                put(world, (top + chance.choice([0, 1, 1]), text))
        top += 1
        if back:
            until(world, top)
        dying.arm(chance.randrange(30))
        with contextlib.suppress(Died, BlizzardError):
            world.drain()
        world.now += chance.choice([1, 20, 400])
    dying.arm(-1)
    if not back:
        put(world, (top + 5, "last"))
        expected.append("last")
    world.drain_with_errors()
    assert world.texts() == sorted(expected)


CHANGES = [
    ({}, {"backward": {"hours": 5}, "new_only": True}),
    ({"backward": {"hours": 5}, "new_only": True}, {}),
    ({"backward": {"hours": 5}, "new_only": True}, {"key": ("text",)}),
    ({"key": ("text",), "backward": {"hours": 5}, "new_only": True}, {}),
    ({"key": ("text",)}, {"backward": {"hours": 5}, "new_only": True}),
]


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_death_and_new_configuration_keep_every_row_once(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    for at in count():
        world = timed(**before)
        world.table.kind = "max"
        hours(world, (1, "a"), (2, "b"))
        world.drain()
        hours(world, (3, "c"), (2, "tie"))
        dying = Dying(world.sink, world.dlq)
        dying.arm(at)
        with contextlib.suppress(Died, BlizzardError):
            world.drain()
        died = dying.countdown == -1
        dying.arm(-1)
        world.asking = after
        for hour, text in ((4, "d"), (5, "e")):
            world.drain_with_errors()
            hours(world, (hour, text))
        world.drain_with_errors()
        assert world.texts() == ["a", "b", "c", "d", "e", "tie"], at
        if not died:
            assert at > 8
            return


def test_a_tie_comes_also_where_the_bound_is_another_by_now() -> None:
    world = numbers()
    put(world, (1, "a"), (2, "b"))
    world.drain()
    put(world, (2, "tie"))
    world.table.kind, world.table.top = "clock", 3
    world.drain()
    put(world, (3, "below the bound of before"), (4, "c"))
    world.table.top = 5
    world.drain()
    assert world.texts() == ["a", "b", "c", "tie"]


def test_rows_at_the_look_back_bound_are_ingested_once() -> None:
    world = timed(backward={"hours": 5}, new_only=True)
    world.table.kind = "max"
    for hour, text in ((5, "a"), (10, "b"), (11, "c"), (15, "d"), (15, "e"), (16, "f")):
        hours(world, (hour, text))
        world.drain()
    assert world.texts() == ["a", "b", "c", "d", "e", "f"]
    world = numbers(backward={"hours": 5}, new_only=True)
    put(world, (1, "a"), (2, "b"))
    world.drain()
    put(world, (2, "tie"), (3, "c"))
    world.drain()
    assert world.texts() == ["a", "b", "c", "tie"]


def test_added_field_duplicates_nothing_and_removed_field_stops() -> None:
    world = numbers()
    put(world, (1, "a"), (2, "b"))
    world.drain()
    world.fields = (*FIELDS, FieldSpec("more", "string", nullable=True))
    world.table.schema = NUMBERED.append(pa.field("more", pa.string()))
    put(world, (2, "tie"), (3, "c"))
    world.drain()
    assert world.texts() == ["a", "b", "c", "tie"]
    world.fields = FIELDS
    put(world, (4, "d"))
    with pytest.raises(StateError, match="told by column 'more'"):
        world.drain()
