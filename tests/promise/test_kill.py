"""``kill -9`` of the real processes at every step, on a local disk and through an S3 API."""

from __future__ import annotations

import pytest

from tests.support.dying_main import BLIZZARD_POINTS, PENGUIN_POINTS
from tests.support.scenario import Scenario, scenario_on

# Where a job has just run, so that a JVM and its workers have to die as well. Elsewhere the
# tasks run in the daemon's process, which takes a fifth of the time.
SPARK_POINTS = ("2-ingested",)
# A local rename has no half.
LOCAL_POINTS = tuple(point for point in BLIZZARD_POINTS if point != "4-one-copied")
# On both sides of the commit point, and between the copies and deletions that renames are there;
# what a death leaves elsewhere does not depend on the store. `make chaos` strikes everywhere.
S3_POINTS = ("3-prepared", "4-one-renamed", "4-one-copied")


@pytest.fixture(
    params=[
        *(("local", point) for point in LOCAL_POINTS),
        *(("s3", point) for point in S3_POINTS),
    ],
    ids="-".join,
)
def at(request: pytest.FixtureRequest) -> tuple[Scenario, str]:
    store, point = request.param
    return scenario_on(store, request), point


def fill(scenario: Scenario) -> list[int]:
    """Six good files in three days and a bad one; returns the ids that must arrive."""
    for day in (1, 2, 3):
        for hour in (0, 1):
            first = day * 100 + hour * 10
            scenario.put_rows(
                f"date=2024-01-0{day}/hour=0{hour}/17000{first}-a.ndjson.gz",
                *range(first, first + 10),
            )
    scenario.put("date=2024-01-02/hour=01/1700999-a.ndjson.gz", b"this is not gzip")
    return [100 * day + 10 * hour + n for day in (1, 2, 3) for hour in (0, 1) for n in range(10)]


@pytest.mark.promise("G-019")
def test_blizzard_killed_at_every_step(at: tuple[Scenario, str]) -> None:
    scenario, point = at
    expected = fill(scenario)
    with_spark = point in SPARK_POINTS
    scenario.kill_at(point if with_spark else f"DIRECT:{point}", "blizzard")
    # Penguin looks at whatever the dead process left, before anyone cleans up.
    scenario.commit()
    if with_spark:
        scenario.once("blizzard")
    else:
        scenario.ingest()
    scenario.commit()
    assert scenario.ids() == expected
    source = scenario.status("blizzard")["pipelines"]["events"]["sources"]["main"]
    assert source["state"] == "Idle"
    assert source["in_flight"] == []
    assert source["totals"] == {
        "batches": 1,
        "files": 6,
        "quarantined": 1,
        "rows": 60,
        "bytes": source["totals"]["bytes"],
        "outputs": source["totals"]["outputs"],
        "bad_rows": 0,
    }
    letters = [
        entry.path
        for page in scenario.table.list_range("_blizzard/dlq/", "_blizzard/dlq0")
        for entry in page.entries
    ]
    assert len(letters) == 1


@pytest.mark.promise("G-019")
@pytest.mark.parametrize("store", ["local", "s3"])
def test_penguin_killed_around_its_commit(request: pytest.FixtureRequest, store: str) -> None:
    """The commit that makes the table and one to it, at each point on one of the stores."""
    scenario = scenario_on(store, request)
    first, second = PENGUIN_POINTS if store == "local" else reversed(PENGUIN_POINTS)
    expected = fill(scenario)
    scenario.ingest()
    scenario.kill_at(first, "penguin")
    scenario.commit()
    assert scenario.ids() == expected
    table = scenario.status("penguin")["tables"]["events"]
    assert table["txn_version"] == 1
    scenario.put_rows("date=2024-01-03/hour=02/1700.ndjson.gz", 999)
    scenario.ingest()
    scenario.kill_at(second, "penguin")
    scenario.commit()
    assert scenario.ids() == [*expected, 999]
    assert scenario.status("penguin")["tables"]["events"]["txn_version"] == 2
