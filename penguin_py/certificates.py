"""Certificates of complete partitions: markers for completions whose rows are in the table.

See `blizzard_core.handover.complete`. Two rules make a marker true:

* **Completions after the table.** They are read after the version that they are confirmed for. A
  late output in that version was published after its partition was revoked, so its completion is
  gone. And a marker is written only if that version has every output of the partition. The journal
  names them; number and sum of their ids prove that none of its objects is lost.
* **Revocations before the commit.** Before each commit completions are read again, and markers of
  revoked ones are removed. Whatever the commit brings was found before that.

A death between two steps leaves a marker out, and the next poll writes it. A consumer reads the
table at the marker's version; with two committers a marker may be removed one poll late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

from blizzard_core.checkpoint import document as checkpoint
from blizzard_core.errors import StateError
from blizzard_core.handover.complete import (
    MARKERS_FOLDER,
    NO_DIGEST,
    Completion,
    Completions,
    Confirmed,
    Marker,
    Missing,
    add_digest,
    completions_from_json,
    completions_path,
    confirmed_from_json,
    confirmed_path,
    marker_from_json,
    marker_path,
    partitions_of,
    revoked_path,
    stands,
    to_json,
    why_unmarkable,
)
from blizzard_core.handover.published import (
    JOURNAL_FOLDER,
    PublishedBatch,
    PublishedOutput,
    latest_objects,
    published_batch,
)
from blizzard_core.handover.quarantine import spelled
from blizzard_core.log import get_logger
from blizzard_core.storage.protocol import Storage
from penguin_py.activity import TableActivity
from penguin_py.delta.output_ids import replaced_mark
from penguin_py.intake.quarantine import Quarantine
from penguin_py.planning.memory import Snapshot
from penguin_py.settings import Table
from penguin_py.table.view import TableView

# Journal objects that are read and held at the same time.
AT_ONCE = 256


@dataclass(slots=True)
class _Source:
    """A source's certificates, as far as this process knows them.

    ``markers`` has the marker of each partition that was looked at. ``outputs`` are those of
    completions that wait, by partition, era and number. ``is_cleared`` means that all markers were
    removed, since no list of completions counts.
    """

    confirmed: Confirmed | None
    markers: dict[str, Marker | None] = field(default_factory=dict)
    outputs: dict[tuple[str, str, int], tuple[PublishedOutput, ...]] = field(default_factory=dict)
    is_cleared: bool = False


class Certificates:
    """The markers of one table. Not thread-safe. Costs nothing without certified sources."""

    def __init__(
        self,
        table: Table,
        storage: Storage,
        view: TableView,
        quarantine: Quarantine,
        pool: Executor,
        clock: Callable[[], float],
        activity: TableActivity,
    ) -> None:
        self._names = table.certified
        self._storage = storage
        self._view = view
        self._quarantine = quarantine
        self._pool = pool
        self._clock = clock
        self._activity = activity
        self._sources: dict[str, _Source] = {}
        self._news: dict[str, dict[str, dict[str, int]]] = {}
        self._log = get_logger(table=table.name)

    def forget(self) -> None:
        """Read everything again, as after an error."""
        self._sources.clear()

    @property
    def news(self) -> Mapping[str, Any]:
        """The markers written and removed since the last commit, for commitInfo."""
        return self._news

    def committed(self) -> None:
        """Record that a commit has the news."""
        self._news = {}

    def revoke(self) -> None:
        """Remove the markers whose completions do not hold. Call it before each commit.

        Raises `StorageError`: then nothing may be committed.
        """
        for name in self._names:
            self._revoked(name, self._completions(name))

    def confirm(self) -> None:
        """Write markers for completions whose outputs are in the table. Raises `StorageError`."""
        waiting = 0
        for name in self._names:
            completions = self._revoked(name, self._completions(name))
            if completions is None:
                continue
            due = self._due(name, completions)
            if due:
                # The table first, then its completions: see above.
                snapshot = self._view.current()
                completions = self._revoked(name, self._completions(name))
                due = () if completions is None else self._due(name, completions)
            missing = (
                self._confirmed(name, completions, due, snapshot) if completions and due else {}
            )
            if completions is not None:
                self._save(name, Confirmed(completions.era, completions.epoch, missing))
            waiting += len(missing)
        if self._names:
            self._activity.completions_wait(waiting)

    def _completions(self, name: str) -> Completions | None:
        """Return the completions of a source; None if there are none that can be trusted."""
        known = self._known(name).confirmed
        try:
            found = checkpoint.load(self._storage, completions_path(name), completions_from_json)
        except StateError as error:
            self._log.warning("completions_ignored", source=name, error=str(error))
            return None
        if found is None:
            return None
        if known is not None and found.epoch < known.epoch:
            why = (
                f"is of epoch {found.epoch}, and epoch {known.epoch} was there before; if the"
                f" source's state was deleted meanwhile, delete {confirmed_path(name)}"
            )
            self._log.warning(
                "completions_ignored", source=name, error=f"{completions_path(name)}: {why}"
            )
            return None
        # Damaged names, or ones that an older Blizzard let through, must not stop commits.
        fit = {p: c for p, c in found.partitions.items() if why_unmarkable(p) is None}
        return replace(found, partitions=fit)

    def _known(self, name: str) -> _Source:
        if name not in self._sources:
            try:
                found = checkpoint.load(self._storage, confirmed_path(name), confirmed_from_json)
            except StateError:
                found = None  # markers of an unknown era are removed
            self._sources[name] = _Source(found)
        return self._sources[name]

    def _revoked(self, name: str, completions: Completions | None) -> Completions | None:
        """Remove the markers that are of no completion; return the completions."""
        known = self._known(name)
        if completions is None:
            if not known.is_cleared:
                self._remove_all(name)
                known.is_cleared = True
            return None
        known.is_cleared = False
        if known.confirmed is None or known.confirmed.era != completions.era:
            self._remove_all(name)
            self._save(name, Confirmed(completions.era, completions.epoch))
        unknown = [each for each in completions.partitions if each not in known.markers]
        found = self._pool.map(lambda partition: self._marker(name, partition), unknown)
        known.markers.update(zip(unknown, found, strict=True))
        for partition, completion in completions.partitions.items():
            marker = known.markers[partition]
            if marker is not None and not stands(marker, completions, partition):
                self._remove(name, partition, completion, marker)
        return completions

    def _marker(self, name: str, partition: str) -> Marker | None:
        path = marker_path(name, partition)
        try:
            return checkpoint.load(self._storage, path, marker_from_json)
        except StateError:
            self._storage.delete(path)
            return None

    def _remove_all(self, name: str) -> None:
        self._storage.delete_tree(f"{MARKERS_FOLDER}/{name}")
        known = self._known(name)
        known.markers.clear()
        known.outputs.clear()

    def _remove(self, name: str, partition: str, completion: Completion, marker: Marker) -> None:
        note = {
            "revoked_ts": completion.revoked_ts,
            "file": completion.revoked_by,
            "seq": marker.seq,
        }
        checkpoint.save(self._storage, revoked_path(name, partition), note)
        self._storage.delete(marker_path(name, partition))
        self._known(name).markers[partition] = None
        self._news.setdefault("revoked", {}).setdefault(name, {})[partition] = marker.seq
        self._log.warning(
            "partition_revoked", source=name, partition=partition, file=completion.revoked_by
        )

    def _due(self, name: str, completions: Completions) -> tuple[str, ...]:
        """Return the complete partitions without a marker."""
        markers = self._known(name).markers
        return tuple(
            partition
            for partition, completion in completions.partitions.items()
            if completion.complete_ts and not stands(markers.get(partition), completions, partition)
        )

    def _confirmed(
        self, name: str, completions: Completions, due: Sequence[str], snapshot: Snapshot
    ) -> dict[str, Missing]:
        """Write the markers of these partitions; return what others of them wait for."""
        known = self._known(name)
        keys = {partition: _key(partition, completions) for partition in due}
        known.outputs = {k: v for k, v in known.outputs.items() if k in keys.values()}
        unread = {p: completions.partitions[p] for p in due if keys[p] not in known.outputs}
        for partition, outputs in self._outputs(name, unread).items():
            known.outputs[keys[partition]] = outputs
        waiting: dict[str, Missing] = {}
        for partition in due:
            missing = self._missing(
                known.outputs[keys[partition]], completions.partitions[partition], snapshot
            )
            if missing is not None:
                waiting[partition] = missing
            elif snapshot.state is not None:
                self._write(name, partition, completions, snapshot.state.version)
        return waiting

    def _outputs(
        self, name: str, completions: Mapping[str, Completion]
    ) -> dict[str, tuple[PublishedOutput, ...]]:
        """Return the outputs of each completion that the journal names, in one pass."""
        found: dict[str, list[PublishedOutput]] = {partition: [] for partition in completions}
        if not completions:
            return {}
        first = min(completion.first for completion in completions.values())
        last = max(completion.last for completion in completions.values())
        folder = f"{JOURNAL_FOLDER}/{name}"
        # "\x7f" follows "~".
        paths = [
            entry.path
            for entry in latest_objects(self._storage, f"{folder}/{first}", f"{folder}/{last}\x7f")
        ]
        depth = next(iter(completions)).count("/") + 1
        for start in range(0, len(paths), AT_ONCE):
            some = paths[start : start + AT_ONCE]
            for batch in self._pool.map(lambda path: published_batch(self._storage, path), some):
                for partition in _touched(batch, depth).intersection(completions):
                    completion = completions[partition]
                    if batch is not None and completion.first <= batch.batch <= completion.last:
                        found[partition] += batch.outputs
        return {partition: tuple(outputs) for partition, outputs in found.items()}

    def _missing(
        self, outputs: Sequence[PublishedOutput], completion: Completion, snapshot: Snapshot
    ) -> Missing | None:
        """Return what a version of the table lacks of a completion; None if it has everything."""
        if not has_all_outputs(outputs, completion):
            return Missing(max(1, completion.contents.outputs - len(outputs)))
        if snapshot.state is None:
            return Missing(len(outputs)) if outputs else None
        ids = self._view.output_ids(snapshot.memory)
        absent = [each for each in outputs if not _is_in(each.output_id, ids)]
        if not absent:
            # Asked last: it reads the commits since the first of the outputs.
            barred = self._view.barred_ids(snapshot)
            absent = [each for each in outputs if not _is_in(each.output_id, barred, ids)]
            return Missing(len(absent)) if absent else None
        records = self._quarantine.records()
        refused = sum(any(spelled(p) in records for p in each.places) for each in absent)
        return Missing(len(absent), refused)

    def _write(self, name: str, partition: str, completions: Completions, version: int) -> None:
        completion = completions.partitions[partition]
        marker = Marker(
            name,
            partition,
            version,
            completions.era,
            completion.seq,
            self._clock(),
            completion.complete_ts,
            completion.scan_ts,
            completion.contents,
        )
        checkpoint.save(self._storage, marker_path(name, partition), to_json(marker))
        self._storage.delete(revoked_path(name, partition))
        known = self._known(name)
        known.markers[partition] = marker
        del known.outputs[_key(partition, completions)]
        self._news.setdefault("complete", {}).setdefault(name, {})[partition] = completion.seq
        self._log.info(
            "partition_complete",
            source=name,
            partition=partition,
            version=version,
            files=completion.contents.files,
            rows=completion.contents.rows,
        )

    def _save(self, name: str, confirmed: Confirmed) -> None:
        known = self._known(name)
        if known.confirmed != confirmed:
            checkpoint.save(self._storage, confirmed_path(name), to_json(confirmed))
            known.confirmed = confirmed


def has_all_outputs(outputs: Iterable[PublishedOutput], completion: Completion) -> bool:
    """Return whether the journal has named every output of a completion, and nothing else."""
    ids = [output.output_id for output in outputs]
    counts = completion.contents
    return (len(ids), add_digest(NO_DIGEST, *ids)) == (counts.outputs, counts.outputs_digest)


def _key(partition: str, completions: Completions) -> tuple[str, str, int]:
    return partition, completions.era, completions.partitions[partition].seq


def _touched(batch: PublishedBatch | None, depth: int) -> set[str]:
    return set() if batch is None else partitions_of((file.path for file in batch.files), depth)


def _is_in(output_id: str, ids: Any, marks: Any = None) -> bool:
    """Return whether an output is in the table, or its rows came with a replacement."""
    return output_id in ids or replaced_mark(output_id) in (ids if marks is None else marks)
