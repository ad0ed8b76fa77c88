"""Takeover of the original's checkpoints, compared with the files that the original reads next.

Its rules, from its documentation: with a `partition_filter` it lists the partitions of the
lookback, without one everything; in a partition that has a watermark it takes what sorts
above that, in one that has none everything. Where it kept a global watermark only, partitions
below that one's are skipped, and in that one it takes what sorts above.
"""

from __future__ import annotations

import datetime as dt
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blizzard_core.settings.time_formats import PartitionFilter
from tests.support.pipeline_harness import PipelineHarness

CHECKPOINT = "_blizzard/events_main_checkpoint.json"
TODAY = dt.datetime(2024, 1, 28, 12, tzinfo=dt.UTC)
DAYS = [f"date={TODAY - dt.timedelta(days=back):%Y-%m-%d}" for back in range(8)]
FILES = st.dictionaries(
    st.sampled_from(DAYS), st.sets(st.sampled_from("123456789"), min_size=1), min_size=1
)
MARKS = st.dictionaries(st.sampled_from(DAYS), st.sampled_from("123456789"), min_size=1)


def rows_after_takeover(
    files: dict[str, set[str]], document: dict[str, object], lookback: int | None
) -> list[str]:
    """Return the rows after some days of polls from the original's checkpoint."""
    known = PartitionFilter(prefix_template="date=%Y-%m-%d", lookback=lookback)
    world = PipelineHarness(partition_filter=known if lookback else None)
    world.now = TODAY.timestamp()
    for day, names in files.items():
        for name in names:
            world.put(f"{day}/{name}.json", f"{day}/{name}")
    raw = {"schema_version": 1, "last_update_ts": int(world.now) - 60, **document}
    world.sink.put_atomic(CHECKPOINT, json.dumps(raw).encode())
    world.drain()
    for _ in range(3):  # other starts, sweeps between them, and nothing comes twice
        world.now += 86_401
        world.drain()
    assert world.letters() == []
    return world.rows()


@pytest.mark.promise("G-058")
@settings(max_examples=60, deadline=None)
@given(files=FILES, marks=MARKS, lookback=st.sampled_from([None, 1, 3, 7]))
def test_with_a_watermark_for_each_partition(
    files: dict[str, set[str]], marks: dict[str, str], lookback: int | None
) -> None:
    top = max(marks)
    document = {
        "watermark": {"state": "Idle", "value": f"{top}/{marks[top]}.json"},
        "partition_watermarks": {day: f"{name}.json" for day, name in marks.items()},
    }
    looked_at = DAYS if lookback is None else DAYS[: lookback + 1]
    expected = sorted(
        f"{day}/{name}"
        for day, names in files.items()
        for name in names
        if day in looked_at and (day not in marks or name > marks[day])
    )
    assert rows_after_takeover(files, document, lookback) == expected


@pytest.mark.promise("G-058")
@settings(max_examples=60, deadline=None)
@given(
    files=FILES,
    day=st.sampled_from(DAYS),
    mark=st.sampled_from("123456789"),
    lookback=st.sampled_from([None, 1, 3, 7]),
)
def test_with_a_global_watermark_only(
    files: dict[str, set[str]], day: str, mark: str, lookback: int | None
) -> None:
    document = {
        "watermark": {"state": "Active", "value": f"{day}/{mark}.json"},
        "partition_watermarks": {},
    }
    looked_at = DAYS if lookback is None else DAYS[: lookback + 1]
    expected = sorted(
        f"{found}/{name}"
        for found, names in files.items()
        for name in names
        if found in looked_at and (found > day or (found == day and name > mark))
    )
    assert rows_after_takeover(files, document, lookback) == expected
