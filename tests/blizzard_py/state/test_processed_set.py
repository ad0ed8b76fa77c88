"""The set of processed names: exact, persisted, refused when damaged, compact."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.errors import StateError
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Storage
from blizzard_py.state import processed_set
from blizzard_py.state.processed_set import (
    FORGET_SECS,
    TAIL,
    ProcessedSet,
    Segment,
    digests_of,
    missing_segments,
    sweep,
)
from tests.support.memory_store import Died, Dying, MemoryStorage

LISTED = tuple[Segment, ...]
FOLDER = "_blizzard/p_s_processed"
NOW = 1_000_000.0


def names(count: int, start: int = 0) -> list[str]:
    return [f"date=2024-01-28/{i}.json" for i in range(start, start + count)]


def loaded(storage: Storage, segments: Iterable[Segment] = (), epoch: int = 0) -> ProcessedSet:
    done = ProcessedSet(storage, FOLDER)
    done.load(segments, epoch)
    return done


def added(done: ProcessedSet, paths: list[str]) -> ProcessedSet:
    """Add names as the pipeline does, without a failure."""
    done.adding(paths)
    done.clean_up()
    return done


def has_all(done: ProcessedSet, paths: list[str]) -> bool:
    return not done.unseen(paths)


def objects(storage: MemoryStorage) -> int:
    return len(storage.objects)


# -- the set --------------------------------------------------------------------


def test_the_empty_set_holds_nothing() -> None:
    done = loaded(MemoryStorage())
    assert len(done) == 0
    assert done.segments == ()
    assert done.unseen(["a"]) == ["a"]
    assert done.unseen([]) == []
    assert done.adding([]) is None


@pytest.mark.parametrize("on_disk", [False, True])
def test_saved_set_loads_with_all_names(tmp_path: Path, on_disk: bool) -> None:
    storage: Storage = open_storage(str(tmp_path), {}) if on_disk else MemoryStorage()
    odd = ["root.json", "d=1/ü %=.json", "d=1/ü %=.json ", "undecodable\udcff.json", "x" * 1000]
    done = loaded(storage)
    for paths in (odd, names(10_000), names(3, start=50_000)):
        added(done, paths)
    again = loaded(storage, done.segments)
    assert again.segments == done.segments
    assert len(again) == len(done) == 10_000 + 3 + len(odd)
    assert has_all(again, [*odd, *names(10_000), *names(3, start=50_000)])
    assert again.unseen(names(1000, start=60_000)) == names(1000, start=60_000)


def test_new_files_keep_their_order() -> None:
    done = added(loaded(MemoryStorage()), names(100))
    paths = list(reversed(names(120)))
    assert done.unseen(paths) == paths[:20]


def test_a_path_counts_once_however_often_it_is_added() -> None:
    done = added(loaded(MemoryStorage()), ["a", "b", "a"])
    added(done, ["b", "c"])
    assert len(done) == 3
    assert done.adding(["a", "b", "c"]) is None


def test_a_set_is_unchanged_if_its_segment_is_not_written() -> None:
    storage = MemoryStorage()
    done = added(loaded(storage), ["a"])
    dying = Dying(storage)
    dying.arm(0)
    with pytest.raises(Died):
        done.adding(["b"])
    assert done.unseen(["a", "b"]) == ["b"]
    assert len(done.segments) == objects(storage) == 1


@given(
    batches=st.lists(st.lists(st.integers(0, 300), max_size=60), max_size=30),
    tail=st.integers(1, 20),
)
@settings(max_examples=200, deadline=None)
def test_it_equals_a_set_and_stays_compact(batches: list[list[int]], tail: int) -> None:
    """The segments, the objects and the rewriting are bounded as the module promises."""
    storage, model, rewritten = MemoryStorage(), set(), 0
    done, additions = loaded(storage), 0
    with mock.patch.object(processed_set, "TAIL", tail):
        for batch in batches:
            before = set(done.segments)
            segments = done.adding(map(str, batch))
            assert (segments is None) == (set(batch) <= model)
            model |= set(batch)
            if segments is None:
                continue
            additions += 1
            rewritten += sum(each.count for each in set(segments) - before)
            done.clean_up()
            sizes = [segment.count for segment in done.segments]
            levels = math.log2(max(len(model) / tail, 1))
            assert len(sizes) <= levels + 2
            assert all(high >= max(2 * low, tail) for high, low in pairwise(sizes))
            growth = math.log(max(len(model) / tail, 1), 1.5)
            assert rewritten <= additions * tail + len(model) * (growth + 2)
    assert len(done) == len(model)
    assert objects(storage) == len(done.segments)
    again = loaded(storage, done.segments)
    assert set(map(str, range(301))).difference(again.unseen([*map(str, range(301))])) == {
        *map(str, model)
    }


# -- crashes --------------------------------------------------------------------


def test_saved_list_loads_after_any_crash_and_sweep_cleans_up() -> None:
    """Write, save, discard; the "checkpoint" is an object of the same store."""
    for at in range(12):
        storage = MemoryStorage()
        done = added(loaded(storage, epoch=1), names(10))
        checkpoint = done.segments
        dying = Dying(storage)
        dying.arm(at)
        try:
            segments = done.adding(names(10, start=100))
            storage.put_atomic("checkpoint", b"")
            checkpoint = segments or ()
            dying.step()
            done.clean_up()
        except Died:
            if "checkpoint" in storage.objects:
                checkpoint = done.segments
        dying.countdown = -1
        again = loaded(storage, checkpoint)
        assert has_all(again, names(10))
        new = names(10, start=100)
        assert again.unseen(new) == ([] if "checkpoint" in storage.objects else new)
        # The next start is in the next epoch.
        sweep(storage, FOLDER, checkpoint, 2)
        storage.objects.pop("checkpoint", None)
        assert objects(storage) == len(checkpoint)
        assert len(loaded(storage, checkpoint)) == len(again)
        assert sweep(storage, FOLDER, checkpoint, 2) == 0


def test_a_sweep_stays_in_its_folder(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path), {})
    done = added(loaded(storage), ["a"])
    others = [f"{FOLDER}_2/x.digests", f"{FOLDER}0/x", "_blizzard/p_s_checkpoint.json", "data.json"]
    for path in others:
        storage.put_atomic(path, b"x")
    storage.put_atomic(f"{FOLDER}/torn.digests.123.tmp", b"x")
    assert sweep(storage, FOLDER, done.segments, 2) == 1
    assert all(storage.stat(path) for path in others)
    assert has_all(loaded(storage, done.segments), ["a"])


def test_a_sweep_of_nothing_removes_nothing(tmp_path: Path) -> None:
    assert sweep(open_storage(str(tmp_path), {}), FOLDER, (), 1) == 0


def test_sweep_keeps_segments_of_its_own_and_later_epochs() -> None:
    """A daemon that was replaced and does not know it takes nothing from its successor."""
    storage = MemoryStorage()
    for epoch in (1, 2, 3):
        loaded(storage, epoch=epoch).adding([f"{epoch}.json"])
    storage.put_atomic(f"{FOLDER}/of-a-release-without-epochs.digests", b"x")
    assert sweep(storage, FOLDER, (), 2) == 2
    assert [path.rpartition("/")[2][:9] for path in sorted(storage.objects)] == [
        "00000002~",
        "00000003~",
    ]


# -- damage ---------------------------------------------------------------------


def flip(at: int) -> Callable[[bytes], bytes]:
    return lambda raw: raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda _: b"", "cut short"),
        (lambda raw: raw[:20], "cut short"),
        (lambda raw: raw[:-1], "cut short"),
        (lambda raw: raw[:-16], "damaged"),
        (lambda raw: raw + b"x" * 16, "damaged"),
        (flip(0), "not a segment"),
        (flip(9), "damaged"),
        (flip(20), "damaged"),
        (flip(100), "damaged"),
        (lambda _: b'{"not": "a segment"}' * 4, "not a segment"),
    ],
)
def test_a_damaged_segment_is_refused_by_name(damage: Callable[[bytes], bytes], told: str) -> None:
    storage = MemoryStorage()
    done = added(loaded(storage), names(10))
    ((path, (raw, at)),) = storage.objects.items()
    storage.objects[path] = (damage(raw), at)
    with pytest.raises(StateError, match=told) as caught:
        loaded(storage, done.segments)
    assert f"{storage.uri}/{path}" in str(caught.value)


@pytest.mark.parametrize("size", [0, 20, 33, 47, 191])
def test_torn_unlisted_segment_is_refused_when_all_are_read(size: int) -> None:
    storage = MemoryStorage()
    added(loaded(storage), names(10))
    ((path, (raw, at)),) = storage.objects.items()
    storage.objects[path] = (raw[:size], at)
    with pytest.raises(StateError, match="cut short"):
        loaded(storage, processed_set.list_segments(storage, FOLDER))


def test_a_missing_segment_is_refused_by_name() -> None:
    with pytest.raises(StateError, match=r"mem://bucket/.*/gone\.digests: .*missing"):
        loaded(MemoryStorage(), [Segment("gone", 3)])


def test_another_count_than_the_checkpoint_says_is_refused() -> None:
    storage = MemoryStorage()
    (segment,) = added(loaded(storage), names(10)).segments
    with pytest.raises(StateError, match="holds 10 names and the checkpoint says 9"):
        loaded(storage, [Segment(segment.segment, 9)])


def test_one_segment_cannot_stand_in_for_another() -> None:
    storage = MemoryStorage()
    (one,) = added(loaded(storage), names(10)).segments
    (two,) = added(loaded(storage), names(10, start=50)).segments
    storage.objects[f"{FOLDER}/{one.segment}.digests"] = storage.objects[
        f"{FOLDER}/{two.segment}.digests"
    ]
    with pytest.raises(StateError, match="damaged"):
        loaded(storage, [one])


# -- forgetting -----------------------------------------------------------------


@pytest.fixture
def full() -> tuple[MemoryStorage, ProcessedSet]:
    storage = MemoryStorage()
    return storage, added(loaded(storage), names(4 * TAIL))


def forgot(
    storage: MemoryStorage, done: ProcessedSet, listed: list[str], now: float
) -> ProcessedSet:
    segments = done.forgetting(digests_of(listed), now)
    if segments is None:
        return done
    done.clean_up()
    assert objects(storage) == len(segments)
    return loaded(storage, segments)


def test_names_are_dropped_when_missing_again_after_a_week(
    full: tuple[MemoryStorage, ProcessedSet],
) -> None:
    storage, done = full
    left = names(TAIL)
    done = forgot(storage, done, left, NOW)
    assert len(done) == 4 * TAIL
    assert has_all(done, names(4 * TAIL)[::100])
    assert done.forgetting(digests_of(left), NOW + FORGET_SECS - 1) is None
    done = forgot(storage, done, left, NOW + FORGET_SECS)
    assert len(done) == TAIL
    assert has_all(done, left)
    assert done.forgetting(digests_of(left), NOW + FORGET_SECS) is None


def test_a_disk_that_was_not_mounted_for_a_day_costs_nothing(
    full: tuple[MemoryStorage, ProcessedSet],
) -> None:
    storage, done = full
    done = forgot(storage, done, [], NOW)
    done = forgot(storage, done, names(4 * TAIL), NOW + 86_400)
    assert len(done.segments) == 1
    # A second outage, much later, starts the clock anew.
    done = forgot(storage, done, [], NOW + 10 * FORGET_SECS)
    assert len(done) == 4 * TAIL
    assert has_all(done, names(1))


def test_names_that_return_stay_in_the_set(full: tuple[MemoryStorage, ProcessedSet]) -> None:
    storage, done = full
    done = forgot(storage, done, names(100), NOW)
    done = forgot(storage, done, names(100, start=TAIL), NOW + FORGET_SECS)
    assert len(done) == 200


def test_if_others_are_missing_now_nothing_is_dropped(
    full: tuple[MemoryStorage, ProcessedSet],
) -> None:
    storage, done = full
    first, second = names(TAIL), names(3 * TAIL, start=TAIL)
    done = forgot(storage, done, first, NOW)
    with mock.patch.object(processed_set, "TAIL", -4 * TAIL):  # still "more than twice as long"
        done = forgot(storage, done, second, NOW + FORGET_SECS)
    assert len(done) == 4 * TAIL
    assert all(s.missing_since is None for s in done.segments)


def test_missing_names_stay_marked_after_additions(
    full: tuple[MemoryStorage, ProcessedSet],
) -> None:
    storage, done = full
    done = forgot(storage, done, ["other.json"], NOW)
    done = loaded(storage, added(done, ["new.json"]).segments)
    assert len(done) == 4 * TAIL + 1
    done = forgot(storage, done, ["other.json"], NOW + FORGET_SECS)
    assert len(done) == 1
    assert has_all(done, ["new.json"])


def test_empty_listing_forgets_no_names(
    full: tuple[MemoryStorage, ProcessedSet],
) -> None:
    _, done = full
    for days in range(0, 30, 7):
        assert done.forgetting(digests_of([]), NOW + days * 86_400) is None


def test_small_set_forgets_no_names() -> None:
    done = added(loaded(MemoryStorage()), names(TAIL))
    assert done.forgetting(digests_of([]), NOW) is None


# -- the checkpoint's list --------------------------------------------------------


@pytest.mark.parametrize(
    "document",
    [
        {},
        ["a"],
        [{"segment": "a"}],
        [{"segment": "a", "count": "3"}],
        [{"segment": "a", "count": 0}],
        [{"segment": "../a", "count": 1}],
        [{"segment": "a", "count": 1, "missing_since": "now"}],
    ],
)
def test_a_list_that_is_not_understood_is_refused(document: object) -> None:
    with pytest.raises(StateError, match=r"^s3://b/checkpoint\.json: .*; restore it"):
        decode_document(LISTED, document, "s3://b/checkpoint.json")


@pytest.mark.parametrize(
    ("there", "gone"),
    [
        ([("a~1", 5000), ("a~2", 100)], []),
        ([("b~3", 5100)], []),
        ([("b~3", 5100), ("b~4", 90)], []),
        ([("a~1", 5000)], ["a~2"]),  # nothing later was made of it
        ([("a~2", 100), ("b~0", 9000)], ["a~1"]),  # nothing later is as long
        ([("a~2", 100), ("b~3", 4000)], ["a~1"]),
        ([("b~3", 5000)], ["a~1", "a~2"]),  # names are missing
        ([], ["a~1", "a~2"]),
    ],
)
def test_a_segment_that_became_part_of_a_later_one_is_not_lost(
    there: list[tuple[str, int]], gone: list[str]
) -> None:
    named = [Segment("a~1", 5000), Segment("a~2", 100)]
    found = missing_segments(named, [Segment(name, count) for name, count in there])
    assert [segment.segment for segment in found] == gone
