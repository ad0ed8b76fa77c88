"""Certificates of complete partitions: markers for completions whose rows are in the table.

See `blizzard_core.handover.complete`. Two rules make a marker true:

* **Completions after the table.** They are read after the version that they are confirmed for. A
  late output in that version was published after its partition was revoked, so its completion is
  gone. And a marker is written only if that version has every output of the partition. The journal
  names them; number and sum of their ids prove that none of its objects is lost.
* **Revocations before the commit.** Before each commit completions are read again, and markers of
  revoked ones are removed. Whatever the commit brings was found before that.

A death between two steps leaves a marker out, and the next poll writes it. A consumer reads the
table at the marker's version.

Another committer may stall before it writes a marker, and no condition of a store spans two
objects. So such a marker may come behind our look. It has the ``seq`` of a revoked completion, so
no reader of the completions believes it. Each look reads the markers of revoked partitions again
and removes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    completions_path,
    confirmed_path,
    holds,
    marker_path,
    parser,
    partitions_of,
    revoked_path,
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
from penguin_py.delta.output_ids import replaced_mark
from penguin_py.intake.quarantine import Quarantine
from penguin_py.model import TableState
from penguin_py.planning.memory import Snapshot
from penguin_py.table.part import TableContext, TablePart
from penguin_py.table.view import TableView

# Journal objects that are read and held at the same time.
AT_ONCE = 256

_completions, _marker, _confirmed = parser(Completions), parser(Marker), parser(Confirmed)


@dataclass(slots=True)
class _Source:
    """A source's certificates, as far as this process knows them.

    ``markers`` has the marker of each listed partition, with the completion that it was looked up
    for: another committer may have written one since. ``outputs`` are those
    of completions that wait. ``log`` is the log that the markers are of, "" before it is checked.
    """

    confirmed: Confirmed | None
    log: str = ""
    markers: dict[str, tuple[Completion, Marker | None]] = field(default_factory=dict)
    outputs: dict[Completion, tuple[PublishedOutput, ...]] = field(default_factory=dict)


class Certificates(TablePart):
    """The markers of one table. Not thread-safe. Costs nothing without certified sources."""

    def __init__(self, context: TableContext, view: TableView, quarantine: Quarantine) -> None:
        super().__init__(context)
        self._names = self._table.certified
        self._view = view
        self._quarantine = quarantine
        self._sources: dict[str, _Source] = {}

    def forget(self) -> None:
        """Read everything again, as after an error."""
        self._sources.clear()

    def revoke(self) -> None:
        """Remove the markers whose completions do not hold. Call it before each commit.

        Raises `StorageError`: then nothing may be committed.
        """
        for name in self._names:
            self._due(name)

    def confirm(self) -> None:
        """Write markers for completions whose outputs are in the table. Raises `StorageError`."""
        waiting = sum(len(self._confirm(name)) for name in self._names)
        if self._names:
            self._activity.completions_wait(waiting)

    def _confirm(self, name: str) -> dict[str, Missing]:
        """Write the markers of a source that can be written; return what the others wait for."""
        completions, due = self._due(name)
        waiting: dict[str, Missing] = {}
        if due:
            # The table first, then its completions: see above.
            snapshot = self._view.current()
            completions, due = self._due(name)
        if completions is None:
            return {}
        found = self._known(name).confirmed
        at = (-1, "") if found is None else (found.version, found.anchor)
        if due:
            waiting = self._missing_of(name, due, snapshot)
        complete = due.keys() - waiting
        state = snapshot.state if complete else None
        if state is not None:
            at = state.version, state.anchor
        # Before the markers: after a death in between a start still knows which log they are of.
        self._save(name, Confirmed(completions.era, completions.epoch, waiting, *at))
        if state is not None:
            for partition in sorted(complete):
                self._write(name, partition, completions, state)
            self._due(name)  # what was revoked meanwhile: see above
        return waiting

    def _due(self, name: str) -> tuple[Completions | None, dict[str, Completion]]:
        """Remove the markers that do not hold; return the completions, and those without a marker.

        The completions are None if there are none that can be trusted.
        """
        known = self._known(name)
        completions = self._completions(name, known.confirmed)
        if completions is None:
            # At each look: another committer may have stalled before it wrote a marker.
            self._remove_all(name, known)
            return None, {}
        if not self._are_of(known, completions):
            known = self._load(name)  # another committer may have seen to it
        if not self._are_of(known, completions):
            self._remove_all(name, known)
            self._save(name, Confirmed(completions.era, completions.epoch))
        known.log = self._view.log_id
        listed = completions.partitions
        news = [p for p, c in listed.items() if _may_be_new(c, known.markers.get(p))]
        found = self._pool.map(lambda partition: self._marker(name, partition), news)
        looked = {p: (listed[p], marker) for p, marker in zip(news, found, strict=True)}
        known.markers = {p: looked.get(p) or known.markers[p] for p in listed}
        due: dict[str, Completion] = {}
        for partition, (completion, marker) in known.markers.items():
            stands = marker is not None and holds(marker, completions)
            if marker is not None and not stands:
                self._remove(name, partition, completion, marker)
                known.markers[partition] = completion, None
            if completion.complete_ts and not stands:
                due[partition] = completion
        return completions, due

    def _are_of(self, known: _Source, completions: Completions) -> bool:
        """Return whether markers are of the era of the completions, and of the table's log."""
        found = known.confirmed
        if found is None or found.era != completions.era:
            return False
        is_checked = known.log == self._view.log_id or found.version < 0
        return is_checked or self._view.has_commit(found.version, found.anchor)

    def _completions(self, name: str, known: Confirmed | None) -> Completions | None:
        """Return the completions of a source; None if there are none that can be trusted."""
        path = completions_path(name)
        try:
            found = checkpoint.load(self._storage, path, _completions)
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
            self._log.warning("completions_ignored", source=name, error=f"{path}: {why}")
            return None
        # Damaged names must not stop commits.
        fit = {p: c for p, c in found.partitions.items() if why_unmarkable(p) is None}
        return replace(found, partitions=fit)

    def _known(self, name: str) -> _Source:
        return self._sources[name] if name in self._sources else self._load(name)

    def _load(self, name: str) -> _Source:
        try:
            found = checkpoint.load(self._storage, confirmed_path(name), _confirmed)
        except StateError:
            found = None  # markers of an unknown era are removed
        self._sources[name] = _Source(found)
        return self._sources[name]

    def _marker(self, name: str, partition: str) -> Marker | None:
        path = marker_path(name, partition)
        try:
            return checkpoint.load(self._storage, path, _marker)
        except StateError:
            self._storage.delete(path)
            return None

    def _remove_all(self, name: str, known: _Source) -> None:
        self._storage.delete_tree(f"{MARKERS_FOLDER}/{name}")
        known.markers.clear()
        known.outputs.clear()

    def _remove(self, name: str, partition: str, completion: Completion, marker: Marker) -> None:
        file = completion.revoked_by
        note = {"revoked_ts": completion.revoked_ts, "file": file, "seq": marker.seq}
        checkpoint.save(self._storage, revoked_path(name, partition), note)
        self._storage.delete(marker_path(name, partition))
        self._log.warning("partition_revoked", source=name, partition=partition, file=file)

    def _missing_of(
        self, name: str, due: Mapping[str, Completion], snapshot: Snapshot
    ) -> dict[str, Missing]:
        """Return what a version of the table lacks of due partitions; nothing of complete ones."""
        known = self._known(name).outputs
        outputs = self._outputs(name, {p: c for p, c in due.items() if c not in known})
        known.update((due[partition], found) for partition, found in outputs.items())
        missing = {p: self._missing(known[c], c, snapshot) for p, c in due.items()}
        waiting = {p: each for p, each in missing.items() if each is not None}
        self._known(name).outputs = {due[p]: known[due[p]] for p in waiting}
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
            unnamed = max(1, completion.contents.outputs - len(outputs))
            return Missing(unnamed, unnamed=unnamed)
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

    def _write(
        self, name: str, partition: str, completions: Completions, state: TableState
    ) -> None:
        completion = completions.partitions[partition]
        marker = Marker(
            name,
            partition,
            state.version,
            completions.era,
            completion.seq,
            self._clock(),
            completion.complete_ts,
            completion.scan_ts,
            completion.contents,
            state.anchor,
        )
        checkpoint.save(self._storage, marker_path(name, partition), to_json(marker))
        self._storage.delete(revoked_path(name, partition))
        self._known(name).markers[partition] = completion, marker
        self._log.info(
            "partition_complete",
            source=name,
            partition=partition,
            version=state.version,
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


def _may_be_new(completion: Completion, read: tuple[Completion, Marker | None] | None) -> bool:
    """Return whether a partition may have a marker that was written since markers were ``read``.

    Another committer that stalled may write one of an earlier completion at any time, and only the
    marker of the present one stands in its place.
    """
    if read is None or read[0] != completion:
        return True
    return bool(completion.seq) and read[1] is None


def _touched(batch: PublishedBatch | None, depth: int) -> set[str]:
    return set() if batch is None else partitions_of((file.path for file in batch.files), depth)


def _is_in(output_id: str, ids: Any, marks: Any = None) -> bool:
    """Return whether an output is in the table, or its rows came with a replacement."""
    return output_id in ids or replaced_mark(output_id) in (ids if marks is None else marks)
