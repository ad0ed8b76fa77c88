"""The order guard finds names that do not sort in time, and accuses nobody else."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blizzard_core.storage.protocol import Entry, order_key
from blizzard_py.sources.files.order_guard import SAMPLE, Finding, inspect, name_time

START = 1_706_450_400.0  # 2024-01-28T14:00:00Z
HOUR = "date=2024-01-28/hour=14"
TOLERANCE = 300.0

Namer = Callable[[float, random.Random], str]


def uuid4(_at: float, rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def uuid7(at: float, rng: random.Random) -> str:
    value = (int(at * 1000) << 80) | (7 << 76) | (rng.getrandbits(12) << 64)
    return str(uuid.UUID(int=value | (2 << 62) | rng.getrandbits(62)))


def stamped(at: float, rng: random.Random) -> str:
    return f"{int(at)}-{uuid4(at, rng)}"


def iso(at: float, rng: random.Random) -> str:
    return f"{dt.datetime.fromtimestamp(at, dt.UTC):%Y-%m-%dT%H:%M:%SZ}-{uuid4(at, rng)}"


def compact(at: float, rng: random.Random) -> str:
    return f"events-{dt.datetime.fromtimestamp(at, dt.UTC):%Y%m%d%H%M%S}-{uuid4(at, rng)}"


def listing(entries: Sequence[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda e: order_key(e.path))


def files(
    namer: Namer, count: int, span: float = 3600.0, folder: str = HOUR, seed: int = 0
) -> list[Entry]:
    """``count`` files written evenly over ``span`` seconds."""
    rng = random.Random(seed)
    ats = [START + i * span / count for i in range(count)]
    return listing([Entry(f"{folder}/{namer(at, rng)}.ndjson.gz", 1, at) for at in ats])


def check(
    entries: Sequence[Entry], known: Sequence[str] = (), depth: int = 2
) -> tuple[Finding, ...]:
    return inspect(entries, depth, known, TOLERANCE)


def kinds(entries: Sequence[Entry], known: Sequence[str] = ()) -> list[str]:
    return [finding.kind for finding in check(entries, known)]


# -- random names ---------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_thirty_random_uuids_written_over_an_hour_are_found(seed: int) -> None:
    (finding,) = check(files(uuid4, 30, seed=seed))
    assert (finding.kind, finding.place, finding.others) == ("random_names", HOUR, 0)
    written = {e.path: e.modified for e in files(uuid4, 30, seed=seed)}
    low, high = finding.examples
    assert order_key(low) < order_key(high)
    assert written[low] > written[high] + TOLERANCE
    assert low in finding.message
    assert "UUIDv7" in finding.message
    assert "\n" not in finding.message


@pytest.mark.parametrize("namer", [stamped, uuid7, iso, compact])
def test_names_that_begin_with_their_time_are_in_order(namer: Namer) -> None:
    assert check(files(namer, 500)) == ()


@pytest.mark.parametrize("namer", [stamped, uuid7, iso, compact])
def test_copy_in_random_order_raises_no_finding(namer: Namer) -> None:
    rng = random.Random(3)
    entries = files(namer, 300)
    copied = [Entry(e.path, e.size, START + 1e6 + rng.uniform(0, 7200)) for e in entries]
    assert check(copied) == ()


def test_bulk_copy_of_random_names_raises_no_finding() -> None:
    rng = random.Random(1)
    copied = [Entry(e.path, 1, float(int(START + rng.uniform(0, 250)))) for e in files(uuid4, 500)]
    assert check(copied) == ()
    same_second = [Entry(e.path, 1, START) for e in copied]
    assert check(same_second) == ()


def test_too_few_files_are_no_evidence() -> None:
    assert check(files(uuid4, 15)) == ()


def test_a_few_late_files_among_many_are_late_and_not_random() -> None:
    rng = random.Random(2)
    entries = files(lambda at, _: f"{int(at * 10) - int(START) * 10:09d}", 200)
    late = [Entry(e.path, 1, e.modified + (rng.random() < 0.05) * 1200) for e in entries]
    assert check(late) == ()


def test_daily_order_does_not_hide_random_names_within_a_day() -> None:
    rng = random.Random(5)
    entries = []
    for day in range(30):
        for i in range(50):
            at = START + day * 86_400 + i * 1200
            name = f"{dt.datetime.fromtimestamp(at, dt.UTC):%Y%m%d}-{uuid4(at, rng)}"
            entries.append(Entry(f"{name}.json", 1, at))
    (finding,) = inspect(listing(entries), 0, (), TOLERANCE)
    assert (finding.kind, finding.place) == ("random_names", "")
    assert "the source's root" in finding.message


def test_constant_time_prefix_does_not_hide_random_names() -> None:
    entries = files(lambda at, rng: f"{int(START)}-{uuid4(at, rng)}", 60)
    assert kinds(entries) == ["random_names"]


def test_random_names_are_found_in_the_newest_of_many_places() -> None:
    entries = [
        e for h in range(24) for e in files(uuid4, 40, folder=f"date=d/hour={h:02d}", seed=h)
    ]
    (finding,) = check(listing(entries))
    assert finding.kind == "random_names"
    assert finding.others >= 5
    assert f"and {finding.others} more" in finding.message


def test_names_that_sort_backwards_do_not_follow_time() -> None:
    assert kinds(files(lambda at, _: f"{int(START + 1e5 - at):09d}", 60)) == ["random_names"]


# -- unpadded numbers -----------------------------------------------------------


def test_unpadded_hours_are_named() -> None:
    entries = [Entry(f"date=2024-01-28/hour={h}/{int(START)}.json", 1, START) for h in range(8, 12)]
    (finding,) = check(listing(entries))
    assert finding.kind == "unpadded_numbers"
    assert finding.place == "date=2024-01-28"
    assert finding.examples == ("date=2024-01-28/hour=8", "date=2024-01-28/hour=11")
    assert "hour=09" in finding.message


def test_unpadded_hours_are_seen_in_tracked_partitions() -> None:
    known = ["date=2024-01-28/hour=9", "date=2024-01-28/hour=10"]
    assert kinds([], known) == ["unpadded_numbers"]
    assert kinds([], ["date=2024-01-28/hour=09", "date=2024-01-28/hour=10"]) == []
    assert kinds([], ["date=2024-01-28/hour=1", "date=2024-01-28/hour=10"]) == []


def test_unpadded_months_below_a_year_need_no_key() -> None:
    assert kinds([], ["raw/2024/9", "raw/2024/10"]) == ["unpadded_numbers"]
    assert kinds([], ["raw/2024/09", "raw/2024/10"]) == []


def test_shards_are_no_times_but_batches_in_sequence_are() -> None:
    def folders(key: str, modified: Callable[[int], float]) -> list[Entry]:
        return listing([Entry(f"{key}={i}/f.json", 1, modified(i)) for i in range(1, 21)])

    rng = random.Random(0)
    assert kinds(folders("shard", lambda _: START + rng.uniform(0, 3600))) == []
    assert kinds(folders("batch", lambda i: START + i * 60)) == ["unpadded_numbers"]


def test_unpadded_file_numbers_are_named() -> None:
    (finding,) = check(listing([Entry(f"{HOUR}/{i}.json", 1, START) for i in (8, 9, 10, 11)]))
    assert finding.kind == "unpadded_numbers"
    assert finding.examples == (f"{HOUR}/8.json", f"{HOUR}/11.json")
    assert kinds([Entry(f"{HOUR}/part-{i}.json", 1, START) for i in (10, 9)]) == [
        "unpadded_numbers"
    ]


@pytest.mark.parametrize(
    "names",
    [
        ("09.json", "10.json"),
        ("8.json", "9.json", "90.json"),
        ("9f.json", "10ab.json"),  # hexadecimal
        ("1706450400-a.json", "1706450399123-a.json"),  # seconds and milliseconds
        ("1706450400.json", "1706450401.json"),
    ],
)
def test_numbers_that_sort_in_order_are_left_alone(names: tuple[str, ...]) -> None:
    assert kinds([Entry(f"{HOUR}/{name}", 1, START) for name in names]) == []


def test_a_tenth_digit_matters_only_when_both_lengths_are_there() -> None:
    assert kinds([Entry(f"{HOUR}/999999999.json", 1, START)]) == []
    both = [Entry(f"{HOUR}/{n}.json", 1, START) for n in ("100000000000", "99999999999")]
    assert kinds(both) == ["unpadded_numbers"]


# -- clocks ---------------------------------------------------------------------


@pytest.mark.parametrize("namer", [stamped, uuid7, iso, compact])
def test_a_writer_with_a_fast_clock_is_named(namer: Namer) -> None:
    rng = random.Random(9)
    fast = Entry(f"{HOUR}/{namer(START + 3600 + 400, rng)}.json", 1, START + 3600)
    (finding,) = check(listing([*files(namer, 100), fast]))
    assert (finding.kind, finding.place, finding.examples) == ("clock_ahead", HOUR, (fast.path,))
    assert "NTP" in finding.message


@pytest.mark.parametrize("namer", [stamped, uuid7, iso, compact])
def test_a_clock_within_the_tolerance_is_right(namer: Namer) -> None:
    rng = random.Random(9)
    near = Entry(f"{HOUR}/{namer(START + 3600 + 290, rng)}.json", 1, START + 3600)
    assert check(listing([*files(namer, 100), near])) == ()


def test_local_time_in_names_is_a_zone_and_not_a_fast_clock() -> None:
    entries = [
        Entry(e.path, 1, e.modified - 2 * 3600 + i % 90) for i, e in enumerate(files(compact, 100))
    ]
    assert check(entries) == ()


def test_counters_that_look_like_times_are_no_clocks() -> None:
    assert kinds([Entry(f"{HOUR}/20000000{i:02d}.json", 1, START) for i in range(50)]) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("1706450400-x.json", START),
        ("1706450400123.json", START + 0.123),
        ("1706450400123456_x", START + 0.123456),
        ("1706450400000000000", START),
        ("2024-01-28T14:00:00Z.json", START),
        ("2024-01-28T16:00:00+02:00.json", START),
        ("2024-01-28T12:30:00-01:30", START),
        ("20240128T160000+0200", START),
        ("20240128T140000-1200-x", START),
        ("2024-01-28_14-00.json", START),
        ("20240128140000.json", START),
        ("a-b_c.1706450400.json", START),
        ("018d506a-3d00-7abc-8abc-0123456789ab.json", 0x018D506A3D00 / 1000),
        ("018D506A3D007ABC8ABC0123456789AB", 0x018D506A3D00 / 1000),
        ("018d506a-3d00-4abc-8abc-0123456789ab", None),
        ("2024-01-28.json", None),
        ("2024-13-28T14:00:00Z", None),
        ("17064504001", None),
        ("1706450400abc", None),
        ("0000000001.json", None),
        ("event-abc123.json", None),
        ("", None),
    ],
)
def test_the_time_in_a_name(name: str, expected: float | None) -> None:
    found = name_time(name)
    assert (None if found is None else found.at) == (
        None if expected is None else pytest.approx(expected)
    )


def test_a_name_made_to_slow_the_patterns_down_does_not() -> None:
    assert name_time("a_" * 20_000) is None


# -- properties -----------------------------------------------------------------


@given(
    namer=st.sampled_from([stamped, uuid7, iso, compact]),
    count=st.integers(1, 1500),
    span=st.floats(1, 30 * 86_400),
    jitter=st.floats(0, TOLERANCE - 1),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=100, deadline=None)
def test_tidy_writers_are_never_accused(
    namer: Namer, count: int, span: float, jitter: float, seed: int
) -> None:
    """Names from padded times, files finished up to the tolerance later, in any order."""
    rng = random.Random(seed)
    entries = []
    for _ in range(count):
        at = START + rng.uniform(0, span)
        day = f"{dt.datetime.fromtimestamp(at, dt.UTC):date=%Y-%m-%d/hour=%H}"
        entries.append(Entry(f"{day}/{namer(at, rng)}.json", 1, at + rng.uniform(0, jitter)))
    known = sorted({e.path.rpartition("/")[0] for e in entries})
    assert inspect(listing(entries), 2, known, TOLERANCE) == ()


@given(count=st.integers(1, 400), span=st.floats(1, 86_400), seed=st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_padded_counters_with_jitter_are_never_accused(count: int, span: float, seed: int) -> None:
    rng = random.Random(seed)
    entries = [
        Entry(f"{i:08d}.json", 1, START + i * span / count + rng.uniform(0, TOLERANCE))
        for i in range(count)
    ]
    assert inspect(entries, 0, (), TOLERANCE) == ()


@pytest.mark.promise("G-014")
@given(count=st.integers(60, 5000), seed=st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_random_names_are_always_found(count: int, seed: int) -> None:
    found = check(files(uuid4, count, span=7200, seed=seed))
    assert [f.kind for f in found] == ["random_names"]


@given(
    paths=st.lists(st.text(alphabet="0129afT-_./=é %hour", min_size=1, max_size=30), max_size=50),
    depth=st.integers(0, 3),
    known=st.lists(st.text(alphabet="019/=h", max_size=10), max_size=5),
)
@settings(max_examples=300, deadline=None)
def test_odd_names_do_not_trip_it(paths: list[str], depth: int, known: list[str]) -> None:
    entries = [Entry(p, 1, START + i * 1000) for i, p in enumerate(paths)]
    for finding in inspect(listing(entries), depth, known, TOLERANCE):
        assert finding.examples
        assert finding.message


def test_a_large_listing_costs_a_bounded_sample() -> None:
    class Counting(list[Entry]):
        looked = 0

        def __getitem__(self, index):  # type: ignore[no-untyped-def,override]  # noqa: ANN001, ANN204  # counts only
            found = super().__getitem__(index)
            self.looked += len(found) if isinstance(index, slice) else 1
            return found

        def __iter__(self):  # type: ignore[no-untyped-def,override]  # noqa: ANN204
            raise AssertionError("walked over the whole listing")

    entries = Counting(files(uuid4, 20_000))
    assert kinds(entries) == ["random_names"]
    assert entries.looked <= SAMPLE
