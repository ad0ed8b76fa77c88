"""Scans with a cover: they find what their ranges hold, and are judged for these alone."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from blizzard_core.storage.protocol import Range, order_key
from blizzard_core.storage.ranges import Ranges
from blizzard_core.watermark.paths import choose_ranges, covers, split
from blizzard_core.watermark.progress import Progress, ScanTimes, expire_grace, gaps, mark_done
from blizzard_core.watermark.scan import scan
from tests.support.memory_store import MemoryStorage
from tests.support.watermarks import nothing_waits, passed

FOLDERS = st.sampled_from(["a", "a-", "a0", "b", "date=2024-01-01", "date=2024-01-02", "z"])
PATHS = st.one_of(
    st.builds("{}/{}".format, FOLDERS, st.sampled_from("12345")),
    st.builds("{}/{}/{}".format, FOLDERS, FOLDERS, st.sampled_from("123")),
    st.sampled_from("12345"),
)


@st.composite
def parts(draw: st.DrawFn) -> tuple[Progress, list[str], Ranges]:
    """A progress, the paths at its source, and some of its ranges."""
    paths = draw(st.lists(PATHS, unique=True, max_size=30))
    done = [path for path in paths if draw(st.booleans())]
    known = passed(Progress(depth=draw(st.sampled_from([1, 2]))), done)
    later = [path for path in paths if path not in done and draw(st.booleans())]
    known = mark_done(known, later, 100.0, nothing_waits)
    return known, paths, Ranges(tuple(gap for gap in gaps(known) if draw(st.booleans())))


def everything(storage: MemoryStorage, known: Progress, cover: Ranges | None = None) -> set[str]:
    return {e.path for e in scan(storage, known, lambda _file: True, 1, cover=cover).entries}


@settings(max_examples=60)
@given(part=parts())
def test_scan_finds_what_is_new_in_covered_partitions(
    part: tuple[Progress, list[str], Ranges],
) -> None:
    known, paths, cover = part
    storage = MemoryStorage()
    storage.objects = dict.fromkeys(paths, (b"", 0.0))

    def is_covered(path: str) -> bool:
        partition = split(path, known.depth or 0)[0]
        tracked = known.partitions.get(partition)
        return covers(cover, partition, None if tracked is None else tracked.before)

    found = everything(storage, known)
    assert everything(storage, known, cover) == set(filter(is_covered, found))
    assert everything(storage, known, Ranges(gaps(known))) <= found


@settings(max_examples=60)
@given(part=parts())
def test_scan_starts_move_in_covered_partitions_only(
    part: tuple[Progress, list[str], Ranges],
) -> None:
    known, _, cover = part
    whole = expire_grace(known, ScanTimes(500.0, 501.0), 10.0, nothing_waits)
    after = expire_grace(known, ScanTimes(500.0, 501.0, cover=cover), 10.0, nothing_waits)
    for partition, before in known.partitions.items():
        covered = covers(cover, partition, before.before)
        expected = whole.partitions[partition] if covered else before
        assert after.partitions[partition] == expected


@settings(max_examples=60)
@given(part=parts(), path=PATHS)
def test_parts_of_ranges_are_what_both_hold(
    part: tuple[Progress, list[str], Ranges], path: str
) -> None:
    known, _, cover = part
    assert cover.within(gaps(known)) == cover.ranges
    assert Ranges(()).within(gaps(known)) == ()
    key = order_key(path)
    held = [
        gap
        for gap in cover.ranges
        if order_key(gap.after) < key and (gap.until is None or key < order_key(gap.until))
    ]
    assert cover.has_file(order_key(path)) == bool(held)


def test_open_end_is_a_part_of_the_newest_partition() -> None:
    known = passed(Progress(depth=1), ["date=2024-01-01/1", "date=2024-01-02/1"])
    hot = choose_ranges(gaps(known), [("date=2024-01-02", "1")])
    assert hot.ranges == (Range("date=2024-01-02/1", None),)
    assert covers(hot, "date=2024-01-02", "1")
    assert covers(hot, "date=2024-01-03", None)
    assert not covers(hot, "date=2024-01-01", "1")
    # Files at the root lie in every range.
    assert not covers(hot, "", None)
