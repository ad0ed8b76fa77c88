"""Outputs that wait for their commit are found by what their footers say."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blizzard_core.handover.groups import UNIT_FILE_PREFIX
from blizzard_core.handover.published import first_name
from blizzard_py.state.waiting_outputs import WaitingOutput, newest_waiting
from tests.support.memory_store import MemoryStorage

MAIN, OTHER = "events/main", "events/other"
DAY = "date=2024-01-28"


def name(number: int) -> str:
    return f"{first_name(number)}-7000-8000-000000000000"


def parquet(output_id: str | None, padding: int = 0, text: str = "a") -> bytes:
    pairs = {"padding": "x" * padding, **({} if output_id is None else {OUTPUT: output_id})}
    table = pa.table({"row": [text]}).replace_schema_metadata(pairs)
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


OUTPUT = "blizzard.output_id"


class Table(MemoryStorage):
    """A table's directory that counts the footers that are read."""

    footers = 0

    def put(self, number: int, source: str, batch: int, attempt: int = 1, padding: int = 0) -> str:
        path = f"{DAY}/{name(number)}.parquet"
        data = parquet(f"{source}/{name(batch)}/{attempt}/0", padding)
        self.put_atomic(path, data)
        return path

    def read_range(self, path: str, start: int, end: int) -> bytes:
        self.footers += 1
        return super().read_range(path, start, end)

    def mirror(self, last: int, version: int = 1, text: str | None = None) -> None:
        """A committer's state: it has passed all up to the output of that number."""
        path = f"{DAY}/{name(last)}.parquet"
        document = {
            "schema_version": 1,
            "watermark": {"state": "Active", "value": path},
            "partition_watermarks": {DAY: path.rpartition("/")[2]},
            "partition_depth": 1,
            "last_update_ts": last,
            "txn_version": version,
        }
        data = json.dumps(document) if text is None else text
        self.put_atomic("_penguin/lake_checkpoint.json", data.encode())


def newest(table: Table, source: str = MAIN, version: int = 1) -> WaitingOutput | None:
    return newest_waiting(table, source.__eq__, {"penguin-lake": version}, 2)


@pytest.mark.promise("G-197")
def test_the_newest_output_of_the_run_is_found() -> None:
    table = Table()
    table.put(1, MAIN, 1)
    path = table.put(2, MAIN, 2, attempt=3)
    table.put(3, f"{MAIN}~replay", 3)
    table.put(4, OTHER, 4)
    assert newest(table) == WaitingOutput(path, name(2), 3)
    assert newest(table, f"{MAIN}~replay").batch == name(3)  # type: ignore[union-attr]
    assert newest(table, "events/none") is None


def test_one_footer_is_read_where_the_newest_is_ours() -> None:
    table = Table()
    for number in range(50):
        table.put(number, MAIN, number)
    assert newest(table).batch == name(49)  # type: ignore[union-attr]
    assert table.footers == 1


def test_outputs_that_a_committer_has_passed_are_not_read() -> None:
    table = Table()
    for number in range(50):
        table.put(number, MAIN, number)
    table.mirror(49)
    assert newest(table) is None
    assert table.footers == 0


@pytest.mark.promise("G-197")
@pytest.mark.parametrize("text", [None, "null", "{}", '{"schema_version": 99}', "\x00"])
def test_marks_of_another_moment_are_not_believed(text: str | None) -> None:
    table = Table()
    table.put(1, MAIN, 1)
    table.mirror(1, version=2, text=text)
    assert newest(table, version=1) is not None
    assert newest(Table()) is None


def test_a_long_footer_is_read() -> None:
    table = Table()
    table.put(1, MAIN, 1, padding=200_000)
    assert newest(table).batch == name(1)  # type: ignore[union-attr]


def test_files_of_others_tell_nothing() -> None:
    table = Table()
    files = (b"", b"PAR1", b"\xff" * 99, parquet(None), parquet("odd"))
    for number, data in enumerate(files):
        table.put_atomic(f"{DAY}/{name(number)}.parquet", data)
    ours = parquet(f"{MAIN}/{name(9)}/1/0")
    table.put_atomic(f"{DAY}/part-0.parquet", ours)
    table.put_atomic(f"{DAY}/{UNIT_FILE_PREFIX}{name(9)}.parquet", ours)
    assert newest(table) is None


def test_values_that_look_like_an_id_tell_nothing() -> None:
    table = Table()
    forged = f"{OUTPUT}\x18\x3a{MAIN}/{name(9)}/1/0"
    path = f"{DAY}/{name(1)}.parquet"
    table.put_atomic(path, parquet(f"{MAIN}/{name(1)}/1/0", text=forged))
    assert newest(table) == WaitingOutput(path, name(1), 1)
