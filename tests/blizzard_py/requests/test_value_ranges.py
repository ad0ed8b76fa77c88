"""Ranges of a table's values by request: each row once, beside the live source, over deaths."""

from __future__ import annotations

import contextlib
import datetime as dt
import random
import threading
from typing import Any

import pyarrow as pa
import pytest

from blizzard_core.errors import BlizzardError, Cancelled, FencedError, StateError
from blizzard_py.edits import checkpoint_edit
from blizzard_py.job import AddedColumns, ErrorTolerance, FieldSpec, SqlSteps
from blizzard_py.requests.document import End
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.requests.progress import RequestState
from blizzard_py.sources.tables.ranges import RangeRefused, value_of
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.source_state import checkpoint_path
from tests.support.group_reader import rows_of
from tests.support.memory_store import Died, Dying
from tests.support.pipeline_harness import overtaking
from tests.support.query_harness import QueryHarness
from tests.support.request_harness import drain_requests, outcomes_of, preview_of, submit
from tests.support.toy_connection import ToyTable

TIMED = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("text", pa.string())])
TIME_FIELDS = (
    FieldSpec("at", "timestamp", nullable=True),
    FieldSpec("text", "string", nullable=True),
)
SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
ALL = list(range(1, 31))


class ValueRangeHarness(QueryHarness):
    """A table with rows 1 to 30, of which the live source reads those above 20."""

    def __init__(self, **asking: Any) -> None:
        super().__init__(ToyTable("ranges", kind="clock", schema=SCHEMA), **asking)
        self.put(*ALL)

    def put(self, *numbers: int) -> None:
        self.table.rows += [{"n": number, "text": f"t{number}"} for number in numbers]

    def begin(self) -> None:
        """The live source begins above 20, and has read what is there."""
        self.change(lambda state: checkpoint_edit.set_columns(state, {"n": 20}, ("n",)))
        self.drain()

    def change(self, edit: Any) -> None:
        with contextlib.closing(self.pipeline()) as found:
            checkpoint_edit.change(found, checkpoint_edit.read_checkpoint(found), edit, self.now)

    def ask(self, first: str, last: str, **options: Any) -> str:
        return submit(self.parts(), {"values": [first, last]}, **options)

    def end(self, request_id: str) -> RequestState | End:
        return ended(self, request_id)

    def numbers(self) -> list[int]:
        return sorted(row["n"] for row in self.table_rows())

    def cancel(self, request_id: str) -> None:
        Mailbox(self.sink, self.parts().id).cancel(
            request_id, "ann", "2026-11-25T09:12:04+00:00", "a test"
        )


def ended(world: QueryHarness, request_id: str) -> RequestState | End:
    """Return the end of a request by the mailbox, or its state by the checkpoint."""
    found = Mailbox(world.sink, world.parts().id).end_record(request_id)
    if found is not None:
        return found
    state = read_state(world.sink, world.parts().id)
    return state.work.requests[request_id]


def texts_of(world: QueryHarness) -> list[str]:
    """The texts of all rows, after what groups have replaced."""
    objects = {path: data for path, (data, _) in world.sink.objects.items()}
    return sorted(row["text"] for row in rows_of(objects))


def started_world() -> ValueRangeHarness:
    world = ValueRangeHarness()
    world.begin()
    assert world.numbers() == list(range(21, 31))
    return world


@pytest.mark.promise("G-169")
def test_chunks_bring_each_row_once_and_move_no_watermark() -> None:
    world = started_world()
    request = world.ask("1", "21", chunk="step=7")
    world.put(31, 32)
    world.drain()
    assert world.numbers() == [*ALL, 31, 32]
    assert world.known()["watermark"] == {"n": 32}
    assert world.known()["covered"] == [[{"n": 1}, {"n": 21}]]
    assert not world.known()["chunk"]
    assert world.end(request).state == "done"
    assert world.end(request).counts["rows"] == 20
    assert set(outcomes_of(world.parts(), request).values()) == {"ingested"}


def test_backfill_skips_ranges_that_earlier_backfills_read() -> None:
    world = started_world()
    world.ask("5", "9")
    world.drain()
    world.ask("12", "15", chunk="step=2")
    world.drain()
    assert world.known()["covered"] == [[{"n": 5}, {"n": 9}], [{"n": 12}, {"n": 15}]]
    request = world.ask("1", "21", chunk="step=6")
    lines = preview_of(world.parts(), {"values": ["1", "21"]}, chunk="step=6")
    assert [line.state for line in lines].count("present") == 2
    world.drain()
    again = world.ask("1", "21", chunk="step=6")
    assert again != request
    world.drain()
    assert set(outcomes_of(world.parts(), again).values()) == {"present"}
    assert world.numbers() == ALL


def test_a_range_that_would_double_rows_is_rejected() -> None:
    world = started_world()
    for first, last, why in (
        ("1", "22", "reads everything from n = 20 on"),
        ("5", "5", "--from must lie below --to"),
        ("x", "5", "'x' is no whole number"),
        ("1", "99", "is settled up to 30"),
    ):
        request = world.ask(first, last)
        world.drain()
        assert world.end(request).state == "rejected"
        assert why in world.end(request).reason
    many = world.ask("-20000", "5", chunk="step=1")
    odd = world.ask("1", "5", chunk="fortnights=1")
    again = world.ask("1", "5", mode="again")
    world.drain()
    assert "too many for one request" in world.end(many).reason
    assert "is no interval" in world.end(odd).reason
    assert "cannot be added" in world.end(again).reason
    assert world.numbers() == list(range(21, 31))


def test_of_one_that_read_everything_no_range_is_left() -> None:
    world = ValueRangeHarness()
    world.drain()
    request = world.ask("1", "5", begin_live_at_end=True)
    world.drain()
    assert "reads everything from the beginning on" in world.end(request).reason
    assert world.numbers() == ALL


def test_new_source_starts_live_reading_at_the_end_of_the_range() -> None:
    world = ValueRangeHarness()
    parts = world.parts()
    plain = submit(parts, {"values": ["1", "21"]})
    drain_requests(parts)
    assert "give --begin-live-at-end" in world.end(plain).reason
    request = world.ask("1", "21", chunk="step=7", begin_live_at_end=True)
    drain_requests(world.parts())
    assert world.end(request).state == "done"
    assert world.numbers() == list(range(1, 21))
    world.drain()
    assert world.numbers() == ALL


def test_a_part_without_rows_is_passed_over() -> None:
    world = ValueRangeHarness()
    world.table.rows = [row for row in world.table.rows if not 5 <= row["n"] < 15]
    world.begin()
    request = world.ask("1", "21", chunk="step=5")
    world.drain()
    assert world.known()["covered"] == [[{"n": 1}, {"n": 21}]]
    assert "empty" in outcomes_of(world.parts(), request).values()
    assert world.numbers() == [n for n in ALL if not 5 <= n < 15]


@pytest.mark.promise("G-169")
def test_a_cancelled_range_goes_on_with_the_next_command() -> None:
    for at in range(1, 40):
        world = started_world()
        request = world.ask("1", "21", chunk="step=4")
        looks = 0

        def cancel(world: ValueRangeHarness = world, request: str = request, at: int = at) -> None:
            nonlocal looks
            looks += 1
            if looks == at:
                world.cancel(request)

        world.table.at_read = cancel
        world.drain()
        world.table.at_read = lambda: None
        world.drain()
        done = world.end(request).state
        assert done in {"cancelled", "done"}
        world.ask("1", "21", chunk="step=3")
        world.drain()
        assert world.numbers() == ALL, at
        if looks < at:
            break
    assert looks < at


@pytest.mark.promise("G-169")
def test_a_death_at_every_change_neither_doubles_nor_loses_a_row() -> None:
    at, steps = -1, 0
    while at <= steps:
        world = started_world()
        dying = Dying(world.sink, world.dlq)
        dying.arm(at)
        dying.count = 0
        asked = False
        while True:
            try:
                if not asked:
                    world.ask("1", "21", chunk="step=9")
                    asked = True
                world.drain()
            except Died:
                continue
            break
        steps = max(steps, dying.count) if at < 0 else steps
        dying.arm(-1)
        world.put(31)
        world.drain()
        assert world.numbers() == [*ALL, 31], at
        at += 1


@pytest.mark.promise("G-169")
def test_an_owner_that_is_replaced_in_a_chunk_doubles_nothing() -> None:
    for job in range(6):
        world = started_world()
        world.ask("1", "21", chunk="step=9")
        pipeline, jobs = world.pipeline(), 0

        def take_over(world: ValueRangeHarness = world) -> None:
            world.drain()

        with contextlib.suppress(FencedError):
            for _ in range(20):
                if jobs == job:
                    with overtaking(world.engine, take_over):
                        world.drain(pipeline)
                    break
                jobs += 1
                pipeline.cycle(threading.Event())
        world.drain()
        assert world.numbers() == ALL, job


@pytest.mark.promise("G-171")
def test_rows_that_are_all_bad_end_the_request_alone() -> None:
    world = ValueRangeHarness()
    world.put(*range(1, 21))
    world.table.task_rows = 100
    for row in world.table.rows:
        row["text"] = row["text"] if row["n"] > 20 else None
    world.job = {"tolerance": ErrorTolerance(max_bad_fraction=0.1)}
    world.fields = (world.fields[0], FieldSpec("text", "string", nullable=False))
    world.begin()
    request = world.ask("1", "21")
    world.put(31)
    world.drain()
    assert world.end(request).state == "failed"
    assert "rows are bad" in world.end(request).reason
    assert not world.known()["covered"]
    world.put(32)
    world.drain()
    assert world.numbers() == [*range(21, 31), 31, 32]


@pytest.mark.promise("G-170")
def test_a_lost_checkpoint_leaves_no_range_that_would_double() -> None:
    world = started_world()
    world.ask("1", "21")
    world.drain()
    world.sink.delete(checkpoint_path(world.parts().id))
    world.change(lambda state: checkpoint_edit.set_columns(state, {"n": 30}, ("n",)))
    world.drain()
    request = world.ask("1", "21")
    world.drain()
    assert world.end(request).state == "rejected"
    assert world.numbers() == ALL


def test_a_range_of_two_columns_or_a_snapshot_is_refused_by_name() -> None:
    world = ValueRangeHarness(snapshot=True, replaces=True)
    request = world.ask("1", "21")
    drain_requests(world.parts())
    assert "is no table or API that is read above a watermark" in world.end(request).reason
    files = submit(world.parts(), {"range": ["a", "b"]})
    drain_requests(world.parts())
    assert "has no files" in world.end(files).reason


def test_a_replacing_table_is_read_again_from_a_time_on() -> None:
    start = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
    table = ToyTable("timed ranges", "at", kind="clock", schema=TIMED)
    world = QueryHarness(table, TIME_FIELDS, replaces=True, backward={"hours": 1})
    world.job = {"added_columns": AddedColumns(unit=True)}
    table.rows += [{"at": start + dt.timedelta(hours=h), "text": f"t{h}"} for h in range(10)]
    world.drain()
    for row in table.rows:
        row["text"] += "!"
    table.rows.append({"at": start + dt.timedelta(hours=9.5), "text": "t9.5"})
    world.drain()
    first = [f"t{h}" for h in range(8)]
    assert texts_of(world) == sorted([*first, "t8", "t9!", "t9.5"])
    for values, mode, why in (
        (["2026-05-01T05:00", "2026-05-01T07:00"], "add", "give --replace"),
        (["2026-05-01T11:00", ""], "replace", "is not below the watermark"),
        (["2026-05-01T05:00", "2026-05-01T06:00"], "replace", "leave --to and --chunk out"),
    ):
        request = submit(world.parts(), {"values": values}, mode=mode)
        world.drain()
        assert why in ended(world, request).reason
    request = submit(world.parts(), {"values": ["2026-05-01T04:30", ""]}, mode="replace")
    world.drain()
    assert ended(world, request).state == "done"
    mended = [f"t{h}!" for h in range(5, 10)]
    assert sorted({*texts_of(world)} & {*mended}) == mended
    assert len(texts_of(world)) == len(table.rows)


def test_settings_that_change_meanwhile_end_the_request() -> None:
    world = started_world()
    request = world.ask("1", "21", chunk="step=4")
    pipeline = world.pipeline()
    while not world.known()["covered"]:
        pipeline.cycle(threading.Event())
    changed = world.job
    world.job = {"sql": SqlSteps(("n",))}
    world.drain()
    assert world.end(request).state == "failed"
    assert "configuration of this source changed" in world.end(request).reason
    world.job = changed
    world.ask("1", "21", chunk="step=4")
    world.drain()
    assert world.numbers() == ALL


def test_backfill_duplicates_no_rows_when_replacing_is_turned_on() -> None:
    world = started_world()
    request = world.ask("1", "21", chunk="step=4")
    pipeline = world.pipeline()
    world.table.at_read = pipeline.cancel  # its batch is begun, and nothing of it is read
    with contextlib.suppress(Cancelled):
        pipeline.cycle(threading.Event())
    world.table.at_read = lambda: None
    world.asking = {"replaces": True, "backward": {"hours": 1}}
    with contextlib.suppress(StateError):
        world.drain()
    world.asking = {}
    world.drain()
    assert world.end(request).state in {"failed", "done"}
    world.ask("1", "21")
    world.drain()
    assert world.numbers() == ALL


def test_rows_may_still_join_the_highest_value_under_max() -> None:
    world = ValueRangeHarness()
    world.table.kind = "max"
    request = world.ask("1", "31", begin_live_at_end=True)
    drain_requests(world.parts())
    assert "is settled up to 30" in world.end(request).reason
    assert "columns" not in world.checkpoint()


def test_values_between_two_chunks_are_in_one_of_them() -> None:
    world = ValueRangeHarness()
    world.fields = (FieldSpec("n", "float64", nullable=True), world.fields[1])
    world.table.schema = pa.schema([("n", pa.float64()), ("text", pa.string())])
    world.table.rows = [{"n": n / 4, "text": f"t{n}"} for n in range(4, 121)]
    world.begin()
    world.ask("1", "10", chunk="step=3")
    world.ask("10", "21", chunk="step=4")
    world.drain()
    assert sorted(row["n"] for row in world.table_rows()) == [n / 4 for n in range(4, 121)]


def test_a_chunk_is_one_batch_however_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blizzard_py.ingest.batch_loop._FIRST_BYTES", 1)
    world = started_world()
    world.ask("1", "21")
    world.drain()
    [told] = [job for job in world.engine.jobs if job.files[0].path.endswith("-000000#0")]
    assert len(told.files) == 10  # of two rows each


def test_a_bad_row_ends_a_request_that_may_pass_none() -> None:
    world = ValueRangeHarness()
    world.table.rows[4]["text"] = None
    world.job = {"tolerance": ErrorTolerance("fail")}
    world.fields = (world.fields[0], FieldSpec("text", "string", nullable=False))
    world.begin()
    request = world.ask("1", "21")
    world.put(31)
    world.drain()
    assert world.end(request).state == "failed"
    assert "stopped at a bad record" in world.end(request).reason
    assert not world.known()["covered"]
    assert world.row_letters() == []
    assert world.numbers() == [*range(21, 31), 31]


def test_a_range_may_begin_with_the_first_time_there_is() -> None:
    start = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
    world = QueryHarness(ToyTable("first time", "at", kind="clock", schema=TIMED), TIME_FIELDS)
    rows = [{"at": start + dt.timedelta(hours=h), "text": f"t{h}"} for h in range(3)]
    world.table.rows += rows
    values = ["0001-01-01", "2026-05-01T01:00"]
    request = submit(world.parts(), {"values": values}, begin_live_at_end=True)
    drain_requests(world.parts())
    assert ended(world, request).state == "done"
    assert world.texts() == ["t0"]
    world.drain()
    assert world.texts() == ["t0", "t1", "t2"]


def test_another_watermark_column_leaves_no_range() -> None:
    world = started_world()
    world.change(lambda state: checkpoint_edit.set_columns(state, {"m": 20}, ("m",)))
    world.change(lambda state: checkpoint_edit.set_columns(state, {"n": 30}, ("n",)))
    request = world.ask("1", "21")
    world.drain()
    assert world.end(request).state == "rejected"
    assert "reads everything from the beginning on" in world.end(request).reason


def test_an_older_checkpoint_leaves_no_range_that_would_double() -> None:
    world = started_world()
    path = checkpoint_path(world.parts().id)
    older = world.sink.objects[path]
    world.ask("1", "21")
    world.drain()
    world.sink.objects[path] = older
    world.change(lambda state: checkpoint_edit.set_columns(state, {"n": 30}, ("n",)))
    request = world.ask("1", "21")
    world.drain()
    assert world.end(request).state == "rejected"
    assert world.numbers() == ALL


@pytest.mark.parametrize("zone", [None, dt.UTC])
def test_ends_of_times_are_as_the_column_has_them(zone: dt.tzinfo | None) -> None:
    like = dt.datetime(2026, 5, 1, tzinfo=zone)
    assert value_of("2026-05-01T04:00", "at", like) == dt.datetime(2026, 5, 1, 4, tzinfo=zone)
    for text in ("0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00", "2026-05-01T00:00-04:00"):
        if zone is None:
            with pytest.raises(RangeRefused, match="have no zone; give --from and --to as they"):
                value_of(text, "at", like)
        else:
            assert value_of(text, "at", like) == dt.datetime.fromisoformat(text)


@pytest.mark.promise("G-169")
def test_random_ranges_deaths_and_cancels_bring_each_row_once() -> None:
    for seed in range(30):
        draw = random.Random(seed)
        world = started_world()
        dying = Dying(world.sink, world.dlq)
        ids: list[str] = []
        top = 30
        for _ in range(draw.randrange(3, 9)):
            dying.arm(draw.choice([-1, draw.randrange(60)]))
            with contextlib.suppress(Died, BlizzardError):
                deed = draw.randrange(4)
                if deed < 2:
                    first = draw.randrange(1, 20)
                    last = draw.randrange(first + 1, 22)
                    ids.append(world.ask(str(first), str(last), chunk=draw.choice(["", "step=3"])))
                elif deed == 2 and ids:
                    world.cancel(draw.choice(ids))
                else:
                    top += 1
                    world.put(top)
                for _ in range(draw.randrange(5)):
                    world.pipeline().cycle(threading.Event())
        dying.arm(-1)
        world.drain()
        world.ask("1", "21", chunk="step=5")
        world.drain()
        assert world.numbers() == list(range(1, top + 1)), seed
