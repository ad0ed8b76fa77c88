"""No output id is committed twice, however long ago the first time was."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from blizzard_core.checkpoint.digests import TAIL, read_segment, segments_in
from blizzard_core.errors import StateError, Unavailable
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import ListingPage, Storage
from penguin_py.delta.output_ids import FOLDER, IDS_KEPT, VERSIONS_KEPT, OutputIds
from tests.support.table_harness import TableHarness, parquet


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path), {})


def segments(storage: Storage) -> list[str]:
    return [entry.path for entry in segments_in(storage, FOLDER)]


def test_output_ids_find_every_folded_id_after_a_reload(storage: Storage) -> None:
    ids = OutputIds(storage)
    assert ids.folded == -1
    assert "p/0" not in ids
    for version in range(64):
        ids.fold([f"p/{version}/{index}" for index in range(50)], version)
    for found in (ids, OutputIds(storage)):
        assert found.folded == 63
        assert all(f"p/{v}/{index}" in found for v in range(64) for index in range(50))
        assert not any(f"q/{v}/{index}" in found for v in range(64) for index in range(50))
        assert None not in found
        assert "p/new" in found.with_recent(["p/new"])
        assert "p/3/3" in found.with_recent(["p/new"])
    # Few objects, however many folds there were, and every id in one of them only.
    assert len(segments(storage)) < 8
    sizes = [len(read_segment(storage, path, "")) for path in segments(storage)]
    assert sum(sizes) == 64 * 50 < TAIL


def test_two_instances_that_fold_leave_nothing_out(storage: Storage) -> None:
    one, two = OutputIds(storage), OutputIds(storage)
    one.fold(["a"], 1)
    assert "a" in two
    two.fold(["b"], 2)  # merges what `one` has, and deletes it
    one.fold(["c"], 3)
    found = OutputIds(storage)
    assert [name in found for name in "abc"] == [True, True, True]
    assert found.folded == 3


class Stale:
    """A storage whose next listings name an object that somebody has merged away."""

    def __init__(self, inner: Storage, times: int) -> None:
        self._inner = inner
        self.times = times

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:
        for page in self._inner.list_range(after, until):
            self.times -= 1
            if self.times >= 0:
                gone = tuple(
                    type(entry)(entry.path[:-40] + "0" * 32 + ".digests", 1, 1.0)
                    for entry in page.entries
                )
                yield ListingPage(gone, page.requests, page.keys)
            else:
                yield page


def test_a_segment_merged_during_the_read_is_read_again(storage: Storage) -> None:
    OutputIds(storage).fold(["a"], 1)
    assert "a" in OutputIds(Stale(storage, 3))  # type: ignore[arg-type]  # a proxy
    with pytest.raises(Unavailable, match="changes faster"):
        assert "a" in OutputIds(Stale(storage, 1000))  # type: ignore[arg-type]  # a proxy


def test_a_damaged_segment_stops_the_table_by_name(storage: Storage) -> None:
    OutputIds(storage).fold(["a", "b", "c"], 7)
    (path,) = segments(storage)
    storage.put_atomic(path, storage.read(path)[:64])
    with pytest.raises(StateError, match=r"output_ids/0+7-.*is damaged.*restore it"):
        assert "a" in OutputIds(storage)


def test_a_segment_of_the_earlier_form_is_refused_by_name(storage: Storage) -> None:
    """Digests and a checksum behind them: taken for another form, it would hold no id."""
    content = bytes(range(64))
    checksum = hashlib.blake2b(content, digest_size=16, person=b"output ids").digest()
    storage.put_atomic(f"{FOLDER}/{7:020d}-{'0' * 32}.digests", content + checksum)
    with pytest.raises(StateError, match=r"output_ids/0+7-.*is not a segment of digests in the"):
        assert "a" in OutputIds(storage)


def lose_everything_else(world: TableHarness) -> None:
    """The mirror is deleted, and every commit but the last is cleaned up."""
    world.storage.delete("_penguin/events_checkpoint.json")
    delta = world.delta()
    delta.create_checkpoint()
    for version in range(delta.version()):
        world.storage.delete(f"_delta_log/{version:020d}.json")


def test_an_old_id_is_refused_without_mirror_and_log(world: TableHarness) -> None:
    world.now = time.time()  # what a rebuilt memory finds has to be young
    world.put("a.parquet", {"id": [1]}, output_id="one")
    penguin = world.penguin()
    world.run(penguin)
    for number in range(VERSIONS_KEPT):
        world.delta().alter.set_table_description(str(number))
    world.run(penguin)
    assert segments(world.storage)
    lose_everything_else(world)
    world.put("b.parquet", {"id": [1]}, output_id="one")
    world.put("c.parquet", {"id": [2]}, output_id="two")
    world.run()
    assert world.paths() == {"a.parquet", "c.parquet"}
    assert set(world.quarantined()) == {"b.parquet"}


def test_the_mirror_stays_small_however_many_ids_there_were(world: TableHarness) -> None:
    root = Path(world.uri)
    root.mkdir()
    penguin = world.penguin(max_files_per_commit=IDS_KEPT)
    for number in range(IDS_KEPT + 1):
        # Without the fsyncs of a store that keeps its promises.
        data = parquet({"id": [number]}, output_id=f"p/s/{number}")
        (root / f"{number:05d}.parquet").write_bytes(data)
    world.run(penguin)
    world.put("x.parquet", {"id": [-1]}, output_id="p/s/0")
    world.put("y.parquet", {"id": [-2]}, output_id="p/s/new")
    world.run(penguin)
    mirror = world.mirror()
    assert mirror["output_ids"] == ["p/s/new"]
    assert set(world.quarantined()) == {"x.parquet"}
    world.put("z.parquet", {"id": [-3]}, output_id="p/s/4095")
    world.run()  # a new process
    assert set(world.quarantined()) == {"x.parquet", "z.parquet"}
