"""Defects that the simulator found, each as its shortest plan."""

from __future__ import annotations

import pytest

from blizzard_core.log import silence
from tests.simulation.plan import Event, Plan, Settings, event
from tests.simulation.run import play

DAY = "date=2024-01-28"
WEEK = 700_000.0


def write(at: float, path: str, source: int | None = None, **more: object) -> Event:
    return event(at, "write", path=path, manner="in_order", source=source, **more)


def fault(at: float, kind: str, place: str, secs: float, *, upcoming: bool = False) -> Event:
    return event(
        at,
        "fault",
        who="blizzard",
        next=upcoming or None,
        fault=kind,
        place=place,
        countdown=0,
        secs=secs,
    )


FOUND = {
    # Scans that found nothing did not fix where a cold start began.
    "a floor that follows the clock over an empty source": Plan(
        31,
        Settings(layout="hours", lookback=3),
        (
            event(92.7, "kill", who="blizzard", secs=WEEK),
            event(92.7, "kill", who="penguin", secs=WEEK),
            write(95.4, f"{DAY}/hour=12/1706443269-001.ndjson"),
        ),
        WEEK + 200,
    ),
    # A retry and the sweeps waited for the date that a wrong clock had noted.
    "a store whose clock was ahead while a file waits for another try": Plan(
        112,
        Settings(layout="regions", sources=2, tracked=2, grace=20.0, store_skew=2_592_000.0),
        (
            write(21.9, "region=eu/1706443221-013.ndjson", 1),
            write(22.1, "region=us/1706443213-012.ndjson", 1, unreadable=200.0),
            write(50.6, "region=ap/1706443135-014.ndjson", 1),
            write(54.7, "region=us/1706443245-015.ndjson", 1),
            write(170.8, "region=ap/1706443354-024.ndjson", 1),
            event(188.1, "kill", who="blizzard", secs=42_072.0),
            event(29_028.9, "store_clock", skew=0.0),
        ),
        29_089.0,
    ),
    # The second source's files were judged by how deep the first one's partitions are.
    "a source that is flat beside one that is not": Plan(
        753_517_439,
        Settings(layout="days", sources=2, scan_files=6),
        (
            *(write(n - 6, f"170644319{n}-00{n}.ndjson", 1) for n in range(6)),
            write(300.0, f"{DAY}/1706443500-015.ndjson", 1),
            write(600.0, "date=2024-01-26/1706443800-019.ndjson", 1),
        ),
        660.0,
    ),
    # Commits that seemed older than the batch, by a clock that was put right since, were not read.
    "outputs that are committed, let go and deleted after the store's clock was put right": Plan(
        950_001_182,
        Settings(layout="hours", store_skew=2_592_000.0),
        (
            write(-2.5, f"{DAY}/hour=11/1706443104-001.ndjson"),
            write(0.4, f"{DAY}/hour=12/1706443200-004.ndjson"),
            fault(0.4, "dies_after", "delete", 0.0),
            event(0.4, "downtime", who="blizzard", secs=360.0),
            event(15.2, "store_clock", skew=0.0),
            event(152.0, "restored", back=1),
            event(299.2, "vacuumed", kept=0.0),
        ),
        359.2,
    ),
    # What the original had done closed a partition that none of our scans had seen.
    "an original's partitions, of which one may be tracked": Plan(
        1240,
        Settings(layout="regions", sources=2, tracked=1),
        (
            write(-2.8, "region=us/1706443197-005.ndjson", 1),
            write(-2.1, "region=eu/1706443197-001.ndjson", 1),
            event(0.0, "original", left=30),
            write(6.2, "region=ap/1706443206-017.ndjson", 1),
        ),
        36.2,
    ),
    # What a lookback closed was taken for history that nobody had ingested.
    "a backfill of what the original has done": Plan(
        5368,
        Settings(layout="hours", lookback=3, store_skew=2_592_000.0),
        (
            write(-7.4, f"{DAY}/hour=11/1706443167-003.ndjson"),
            event(0.0, "original", left=60),
            event(404.9, "backfill"),
        ),
        434.9,
    ),
    "files that the original has done, given by hand": Plan(
        6021,
        Settings(layout="regions"),
        (
            write(-1.4, "region=eu/1706443198-007.ndjson"),
            event(0.0, "original", left=30, value_only=True),
            event(115.9, "kill", who="penguin", secs=275_218.0),
            event(
                152_508.9, "ingest", count=1, fault="dies_before", place="checkpoint", countdown=0
            ),
        ),
        152_540.0,
    ),
    # The slower of two first starts saw no checkpoint, then the other's journal.
    "two daemons that begin at the same moment": Plan(
        500_090,
        Settings(),
        (
            event(0.3, "kill", who="blizzard", secs=5.0),
            fault(0.3, "pauses_before", "list", 60.0, upcoming=True),
            write(4.0, f"{DAY}/1706443204-002.ndjson"),
            event(7.1, "kill", who="blizzard", secs=22.0),
            event(68.6, "rival", who="blizzard"),
        ),
        128.6,
    ),
    # The slower of two starts judged the checkpoint by a fence record from before the other's work.
    "a start that sleeps while another publishes": Plan(
        273,
        Settings(batch_files=1),
        (
            write(1.0, f"{DAY}/1706443201-001.ndjson"),
            event(60.0, "kill", who="blizzard", secs=5.0),
            fault(60.0, "pauses_before", "taken", 20.0, upcoming=True),
            *(write(62.0 + i, f"{DAY}/170644326{i}-00{i + 2}.ndjson") for i in range(4)),
            event(75.0, "rival", who="blizzard"),
        ),
        200.0,
    ),
    # It went by the configuration's way of tracking, which has no range.
    "a backfill under a configuration that the daemon refuses": Plan(
        500_118,
        Settings(lookback=1),
        (
            write(10.0, f"{DAY}/1706443208-004.ndjson"),
            event(100.0, "misconfigured", what="tracking", secs=100.0),
            event(150.0, "backfill"),
        ),
        260.0,
    ),
    # It took what was lettered for new to the daemon, and put the letter away.
    "a replay while the checkpoint is lost": Plan(
        110_042,
        Settings(layout="regions", poll=15.0),
        (
            write(-51.1, "1706443148-002.ndjson", flavour="v2"),
            event(171.9, "replay"),
            event(174.0, "checkpoint_lost", secs=100.0),
        ),
        204.0,
    ),
    # It listed every name in grace, however many there are.
    "a rebuilt checkpoint of many names in grace": Plan(
        110_012,
        Settings(layout="flat", inline_names=2),
        (
            write(100.6, "1706443233-006.ndjson"),
            write(100.9, "1706443295-005.ndjson"),
            write(101.1, "1706443301-007.ndjson"),
            event(192.7, "checkpoint_lost", secs=30.0, remedy="rebuild"),
        ),
        252.0,
    ),
    # It took the lowest partition that was ingested for the beginning, which lay below it.
    "a checkpoint rebuilt while the lookback's older days are empty": Plan(
        130_134,
        Settings(lookback=3),
        (
            write(-560.3, f"{DAY}/1706442639-001.ndjson"),
            event(26.3, "checkpoint_lost", secs=30.0, remedy="rebuild"),
            write(31.3, "date=2024-01-27/1706443231-006.ndjson"),
        ),
        92.0,
    ),
    # The sweep took a file that the backfill had tried and was going to try again.
    "a late sweep that ingests beside a backfill": Plan(
        130_166,
        Settings(lookback=1, late_files="ingest"),
        (
            write(225.6, f"{DAY}/1706443425-027.ndjson"),
            event(235.4, "backfill"),
            write(458.8, "date=2024-01-23/1706443658-052.ndjson", unreadable=200.0),
        ),
        410.0,
    ),
    # Its sweep was not due before the time that a wrong clock had noted.
    "a committer whose clock was ahead for a while": Plan(
        150_020,
        Settings(layout="hours", partitioned=True, penguin_tracked=2),
        (
            write(-712.1, "date=2024-01-23/hour=11/1706442487-005.ndjson"),
            write(-1.8, f"{DAY}/hour=11/1706443198-001.ndjson"),
            event(53.9, "clock", who="penguin", secs=3600.0),
            write(139.7, f"{DAY}/hour=12/1706443334-018.ndjson"),
            write(201.6, "date=2024-01-26/hour=12/1706443401-028.ndjson"),
        ),
        261.6,
    ),
    # It looked for the output under the name that a recovery had given up since.
    "a checkpoint of the middle of publishing that comes back": Plan(
        81_000_361,
        Settings(layout="hours", poll=15.0),
        (
            event(13.7, "fault", who="blizzard", fault="dies_before", place="copy", countdown=1),
            write(14.2, f"{DAY}/hour=12/1706443214-001.ndjson"),
            write(17.2, f"{DAY}/hour=12/1706443217-002.ndjson"),
            event(44.4, "set_aside"),
            event(142.3, "put_back", what="checkpoint", remedy="rebuild", secs=15.0),
        ),
        172.3,
    ),
    # What another writer had compacted looked like rows that nobody has.
    "a redo of an output of which a copy was committed": Plan(
        700_347,
        Settings(layout="region_days"),
        (
            write(88.9, f"region=ap/{DAY}/1706443234-002.ndjson"),
            event(109.7, "stray", what="copy"),
            event(311.1, "redone"),
            write(321.7, f"region=ap/{DAY}/1706443521-015.ndjson"),
            event(418.7, "compacted"),
        ),
        480.0,
    ),
    # A message older than a complete scan, by two clocks, counted as one of a listed file.
    "a hint by another clock than the store's": Plan(
        441_807_172,
        Settings(layout="regions", store_skew=2_592_000.0, full_scan=86_400.0, hints=True),
        (write(249.9, "region=ap/1706443449-029.ndjson"),),
        309.9,
    ),
    # Their own checkpoint was of files that the right configuration does not name.
    "files given under a wrong source_uri": Plan(
        1,
        Settings(),
        (
            *(write(70.0 + i, f"{DAY}/170644323{i}-01{i}.ndjson", flavour="v2") for i in range(3)),
            event(274.3, "misconfigured", what="source_uri", secs=60.0),
            event(309.0, "ingest", count=1, fault="dies_after", place="write", countdown=3),
        ),
        370.0,
    ),
}


@pytest.mark.parametrize("plan", FOUND.values(), ids=FOUND)
def test_old_findings_stay_fixed(plan: Plan) -> None:
    silence()
    outcome = play(plan)
    assert not outcome.violations, outcome.story
