"""Markers of complete partitions: written when their rows are in the table, not before."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from blizzard_core.errors import CommitError, NotFound, Unavailable
from blizzard_core.handover.complete import (
    Completion,
    Completions,
    add_digest,
    completions_path,
    confirmed_path,
    marker_path,
    revoked_path,
    to_json,
)
from blizzard_core.storage.protocol import listed
from penguin_py.delta.table import DeltaLog
from penguin_py.pipeline import TablePipeline
from tests.support.table_harness import TableHarness

DAY = "date=2024-01-28"
SOURCE = "events_main"


@dataclass
class Blizzard:
    """Outputs, journal and completions, as Blizzard leaves them for Penguin."""

    world: TableHarness
    completions: Completions = field(default_factory=lambda: Completions(1, "1"))
    batches: int = 0

    def publish(self, *files: str, lost: bool = False, data: bytes | None = None) -> str:
        """Publish an output of a batch of these files, and count it; return its id."""
        self.batches += 1
        batch = f"018d0000-0000-7000-8000-{self.batches:012d}"
        output = f"events/main/{batch}/1/0"
        path = f"{batch}.parquet"
        record = {
            "batch": batch,
            "files": [{"path": each, "outcome": "ingested"} for each in files],
            "outputs": [{"final": path, "rows": 1, "output_id": output}],
        }
        journal = f"_blizzard/journal/{SOURCE}/{batch}.json"
        if not lost:
            self.world.storage.put_atomic(journal, json.dumps(record).encode())
        if data is None:
            self.world.put(path, {"id": [self.batches]}, output_id=output)
        else:
            self.world.put(path, data)
        for partition in {each.rpartition("/")[0] for each in files}:
            self._count(partition, batch, output)
        return path

    def _count(self, partition: str, batch: str, output: str) -> None:
        known = self.completions.partitions.get(partition, Completion())
        digest = add_digest(known.contents.outputs_digest, output)
        contents = replace(
            known.contents, outputs=known.contents.outputs + 1, outputs_digest=digest, files=1
        )
        self._set(partition, first=known.first or batch, last=batch, contents=contents)

    def _set(self, partition: str, **changes: Any) -> None:
        completion = replace(self.completions.partitions.get(partition, Completion()), **changes)
        partitions = {**self.completions.partitions, partition: completion}
        self.completions = replace(self.completions, partitions=partitions)

    def complete(self, partition: str = DAY, **changes: Any) -> None:
        seq = self.completions.partitions[partition].seq + 1
        self._set(partition, **{"complete_ts": 9.0, "scan_ts": 8.0, "seq": seq, **changes})
        self.mirror()

    def revoke(self, file: str = f"{DAY}/late") -> None:
        self._set(DAY, complete_ts=0.0, revoked_by=file, revoked_ts=10.0)
        self.mirror()

    def mirror(self) -> None:
        document = json.dumps(to_json(self.completions)).encode()
        self.world.storage.put_atomic(completions_path(SOURCE), document)


@pytest.fixture
def blizzard(world: TableHarness) -> Blizzard:
    found = Blizzard(world)
    found.mirror()
    return found


def penguin(world: TableHarness) -> TablePipeline:
    table = replace(world.table(), certified=(SOURCE,))
    return world.penguin_on(table, world.storage, DeltaLog(table, world.storage, world.pool))


def run(world: TableHarness, worker: TablePipeline | None = None) -> None:
    world.run(penguin(world) if worker is None else worker)


def marker(world: TableHarness, partition: str = DAY) -> dict[str, Any] | None:
    return read(world, marker_path(SOURCE, partition))


def read(world: TableHarness, path: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(world.storage.read(path))
    except NotFound:
        return None
    return found


def markers_at_commits(world: TableHarness, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Note the marker of the day at each commit from now on."""
    seen: list[Any] = []
    real = DeltaLog.commit

    def commit(self: Any, *arguments: Any) -> None:
        seen.append(marker(world))
        real(self, *arguments)

    monkeypatch.setattr(DeltaLog, "commit", commit)
    return seen


def waiting(world: TableHarness) -> Any:
    found = read(world, confirmed_path(SOURCE))
    return found["waiting"]


class TestConfirm:
    def test_completion_gets_a_marker_when_its_rows_are_in(
        self, world: TableHarness, blizzard: Blizzard
    ) -> None:
        blizzard.publish(f"{DAY}/a")
        worker = penguin(world)
        run(world, worker)
        assert marker(world) is None
        blizzard.complete()
        run(world, worker)
        found = marker(world)
        assert (found["version"], found["seq"], found["contents"]["outputs"]) == (0, 1, 1)
        assert waiting(world) == {}

    @pytest.mark.promise("G-225")
    def test_completion_waits_for_an_output(self, world: TableHarness, blizzard: Blizzard) -> None:
        path = blizzard.publish(f"{DAY}/a")
        data = world.storage.read(path)
        world.storage.delete(path)
        blizzard.publish(f"{DAY}/b")
        blizzard.complete()
        worker = penguin(world)
        run(world, worker)
        assert marker(world) is None
        assert waiting(world) == {DAY: {"outputs": 1, "refused": 0, "unnamed": 0}}
        world.put("z.parquet", data)
        run(world, worker)
        assert (marker(world) or {})["version"] == 1
        assert waiting(world) == {}

    def test_refused_output_is_counted(self, world: TableHarness, blizzard: Blizzard) -> None:
        blizzard.publish(f"{DAY}/a")
        blizzard.publish(f"{DAY}/b", data=b"no Parquet")
        blizzard.complete()
        run(world)
        assert marker(world) is None
        assert waiting(world) == {DAY: {"outputs": 1, "refused": 1, "unnamed": 0}}

    def test_lost_journal_object_blocks(self, world: TableHarness, blizzard: Blizzard) -> None:
        blizzard.publish(f"{DAY}/a")
        blizzard.publish(f"{DAY}/b", lost=True)
        blizzard.complete()
        run(world)
        assert len(world.rows()) == 2
        assert marker(world) is None

    def test_rows_that_a_restore_removed_block(
        self, world: TableHarness, blizzard: Blizzard
    ) -> None:
        blizzard.publish("date=2024-01-27/a")
        run(world)
        blizzard.publish(f"{DAY}/a")
        worker = penguin(world)
        run(world, worker)
        world.delta().restore(0)
        blizzard.complete()
        run(world, worker)
        assert marker(world) is None
        assert waiting(world)[DAY]["outputs"] == 1

    def test_completions_of_one_source_share_a_pass(
        self, world: TableHarness, blizzard: Blizzard
    ) -> None:
        blizzard.publish(f"{DAY}/a", "date=2024-01-29/a")
        blizzard.publish("date=2024-01-29/b")
        blizzard.complete()
        blizzard.complete("date=2024-01-29")
        run(world)
        assert marker(world) is not None
        assert (marker(world, "date=2024-01-29") or {})["contents"]["outputs"] == 2

    def test_marker_survives_a_start(self, world: TableHarness, blizzard: Blizzard) -> None:
        blizzard.publish(f"{DAY}/a")
        blizzard.complete()
        run(world)
        before = marker(world)
        world.now += 60
        run(world)
        assert marker(world) == before

    def test_start_writes_what_a_death_left_out(
        self, world: TableHarness, blizzard: Blizzard
    ) -> None:
        blizzard.publish(f"{DAY}/a")
        blizzard.complete()
        dying = penguin(world)
        dying.cycle(threading.Event())  # the commit, and then its marker
        world.storage.delete(marker_path(SOURCE, DAY))
        run(world)
        assert (marker(world) or {})["version"] == 0


class TestRevoke:
    @pytest.mark.promise("G-225")
    def test_marker_is_gone_before_late_rows_are_in(
        self, world: TableHarness, blizzard: Blizzard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        blizzard.publish(f"{DAY}/a")
        blizzard.complete()
        worker = penguin(world)
        run(world, worker)
        seen: list[Any] = []
        seen = markers_at_commits(world, monkeypatch)
        blizzard.revoke()
        blizzard.publish(f"{DAY}/late")
        run(world, worker)
        assert seen == [None]
        note = read(world, revoked_path(SOURCE, DAY))
        assert note == {"revoked_ts": 10.0, "file": f"{DAY}/late", "seq": 1}
        blizzard.complete()
        run(world, worker)
        assert (marker(world) or {})["seq"] == 2
        assert read(world, revoked_path(SOURCE, DAY)) is None

    def test_marker_of_an_earlier_completion_is_removed(
        self, world: TableHarness, blizzard: Blizzard
    ) -> None:
        blizzard.publish(f"{DAY}/a")
        blizzard.complete()
        run(world)
        blizzard.publish(f"{DAY}/late", lost=True)
        blizzard.complete()  # revoked and complete again while nobody looked
        run(world)
        assert marker(world) is None

    def test_marker_of_a_checkpoint_that_was_replaced_is_removed(
        self, world: TableHarness, blizzard: Blizzard
    ) -> None:
        blizzard.publish(f"{DAY}/a")
        before = blizzard.completions
        blizzard.complete()
        run(world)
        assert marker(world) is not None
        # An older checkpoint is back, whose next completion has the same number.
        blizzard.completions = before
        blizzard.publish(f"{DAY}/late", lost=True)
        blizzard.complete(complete_ts=19.0)
        run(world)
        assert marker(world) is None

    def test_marker_of_an_open_partition_is_removed(
        self, world: TableHarness, blizzard: Blizzard
    ) -> None:
        blizzard.publish(f"{DAY}/a")
        blizzard.complete()
        run(world)
        blizzard.completions = replace(blizzard.completions, partitions={DAY: Completion()})
        blizzard.mirror()
        run(world)
        assert marker(world) is None

    def test_refused_commit_leaves_no_marker(
        self, world: TableHarness, blizzard: Blizzard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        blizzard.publish(f"{DAY}/a")
        blizzard.complete()
        run(world)
        blizzard.revoke()
        blizzard.publish(f"{DAY}/late")
        with monkeypatch.context() as broken:
            broken.setattr(DeltaLog, "commit", _conflicts)
            with pytest.raises(CommitError):
                run(world)
        assert marker(world) is None
        run(world)
        assert len(world.rows()) == 2
        assert marker(world) is None

    def test_unreadable_store_stops_the_commit(
        self, world: TableHarness, blizzard: Blizzard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        blizzard.publish(f"{DAY}/a")
        worker = penguin(world)
        real = type(world.storage).read

        def fail(self: Any, path: str) -> bytes:
            if path == completions_path(SOURCE):
                raise Unavailable("no answer")
            return real(self, path)

        with monkeypatch.context() as broken:
            broken.setattr(type(world.storage), "read", fail)
            with pytest.raises(Unavailable):
                run(world, worker)
        assert not world.storage.stat("_delta_log/00000000000000000000.json")

    @pytest.mark.parametrize("case", ["era", "epoch", "damaged", "removed"])
    def test_completions_that_do_not_count_have_no_markers(
        self, world: TableHarness, blizzard: Blizzard, case: str
    ) -> None:
        blizzard.completions = replace(blizzard.completions, epoch=5)
        blizzard.publish(f"{DAY}/a")
        blizzard.complete()
        worker = penguin(world)
        run(world, worker)
        stalled = world.storage.read(marker_path(SOURCE, DAY))
        match case:
            case "era":
                blizzard.completions = Completions(6, "6")
                blizzard.mirror()
            case "epoch":
                blizzard.completions = replace(blizzard.completions, epoch=4)
                blizzard.mirror()
            case "damaged":
                world.storage.put_atomic(completions_path(SOURCE), b"{")
            case _:
                world.storage.delete(completions_path(SOURCE))
        run(world, worker)
        run(world, worker)
        run(world)
        assert marker(world) is None
        if case != "era":  # in another era it stands until a file of its partition comes
            world.storage.put_atomic(marker_path(SOURCE, DAY), stalled)
            run(world, worker)
            assert marker(world) is None

    def test_list_that_comes_back_has_its_markers_again(
        self, world: TableHarness, blizzard: Blizzard
    ) -> None:
        blizzard.publish(f"{DAY}/a")
        blizzard.complete()
        worker = penguin(world)
        run(world, worker)
        world.storage.put_atomic(completions_path(SOURCE), b"{")
        run(world, worker)
        blizzard.completions = replace(blizzard.completions, epoch=2)
        blizzard.mirror()
        run(world, worker)
        assert marker(world) is not None

    @pytest.mark.parametrize("name", ["date=\udcff", f"date={'x' * 250}", "..", "a//b"])
    def test_name_of_no_marker_does_not_stop_commits(
        self, world: TableHarness, blizzard: Blizzard, name: str
    ) -> None:
        blizzard.publish(f"{name}/a")
        blizzard.complete(name)
        worker = penguin(world)
        run(world, worker)
        blizzard.publish(f"{DAY}/a")
        blizzard.complete()
        run(world, worker)
        assert len(world.rows()) == 2
        assert marker(world) is not None

    @pytest.mark.promise("G-225")
    def test_marker_of_another_committer_is_removed(
        self, world: TableHarness, blizzard: Blizzard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        blizzard.publish(f"{DAY}/a")
        one, other = penguin(world), penguin(world)
        run(world, one)
        monkeypatch.setattr(one._certificates, "_write", lambda *_: None)  # noqa: SLF001  # is slow
        blizzard.complete()
        run(world, one)
        run(world, other)
        assert marker(world) is not None
        blizzard.revoke()
        blizzard.publish(f"{DAY}/late")
        run(world, one)
        assert len(world.rows()) == 2
        assert marker(world) is None

    @pytest.mark.promise("G-225")
    @pytest.mark.parametrize("is_late_there", [True, False])
    def test_marker_of_a_stalled_committer_is_removed(
        self,
        world: TableHarness,
        blizzard: Blizzard,
        monkeypatch: pytest.MonkeyPatch,
        *,
        is_late_there: bool,
    ) -> None:
        blizzard.publish(f"{DAY}/a")
        blizzard.complete()
        run(world)
        stalled = world.storage.read(marker_path(SOURCE, DAY))
        blizzard.revoke()
        worker = penguin(world)
        run(world, worker)
        assert marker(world) is None
        world.storage.put_atomic(marker_path(SOURCE, DAY), stalled)
        seen = markers_at_commits(world, monkeypatch)
        if is_late_there:
            blizzard.publish(f"{DAY}/late")
        run(world, worker)
        assert seen == [None] * is_late_there
        assert marker(world) is None

    @pytest.mark.promise("G-225")
    def test_stalled_marker_goes_before_rows_that_are_waited_for(
        self, world: TableHarness, blizzard: Blizzard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        blizzard.publish(f"{DAY}/a")
        blizzard.complete()
        run(world)
        stalled = world.storage.read(marker_path(SOURCE, DAY))
        blizzard.revoke()
        path = blizzard.publish(f"{DAY}/late")
        rows = world.storage.read(path)
        world.storage.delete(path)
        blizzard.complete()
        worker = penguin(world)
        run(world, worker)
        assert marker(world) is None
        world.storage.put_atomic(marker_path(SOURCE, DAY), stalled)
        seen = markers_at_commits(world, monkeypatch)
        world.put("z.parquet", rows)
        run(world, worker)
        assert seen == [None]
        assert (marker(world) or {})["seq"] == 2

    @pytest.mark.promise("G-225")
    def test_late_file_during_the_write_removes_the_marker(
        self, world: TableHarness, blizzard: Blizzard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        blizzard.publish(f"{DAY}/a")
        blizzard.complete()
        worker = penguin(world)
        write = worker._certificates._write  # noqa: SLF001  # between a look and the write

        def late(*arguments: Any) -> None:
            blizzard.revoke()
            write(*arguments)

        monkeypatch.setattr(worker._certificates, "_write", late)  # noqa: SLF001  # see above
        run(world, worker)
        assert marker(world) is None
        assert read(world, revoked_path(SOURCE, DAY)) is not None

    def test_state_names_the_log_before_a_marker_is_written(
        self, world: TableHarness, blizzard: Blizzard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        blizzard.publish(f"{DAY}/a")
        blizzard.complete()
        worker = penguin(world)
        seen: list[Any] = []

        def dies(*_arguments: Any) -> None:
            seen.append(read(world, confirmed_path(SOURCE)))
            raise Unavailable("it dies here")

        monkeypatch.setattr(worker._certificates, "_write", dies)  # noqa: SLF001  # a death
        with pytest.raises(Unavailable):
            run(world, worker)
        assert seen[0]["version"] == 0

    def test_markers_of_another_log_are_removed(
        self, world: TableHarness, blizzard: Blizzard
    ) -> None:
        path = blizzard.publish(f"{DAY}/a")
        blizzard.complete()
        run(world)
        world.storage.delete_tree("_delta_log")
        world.storage.delete(path)
        for entry in list(listed(world.storage, "_penguin/", "_penguin0")):
            if not entry.path.startswith("_penguin/complete"):
                world.storage.delete(entry.path)
        world.put("z.parquet", {"id": [9]})
        run(world)
        assert len(world.rows()) == 1
        assert marker(world) is None
        assert waiting(world)[DAY]["outputs"] == 1


def _conflicts(*_arguments: Any) -> None:
    raise CommitError("another commit came first")
