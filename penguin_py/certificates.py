"""Certificates of complete partitions: markers for Blizzard's claims whose rows are in the table.

See `blizzard_core.handover.complete`. Two rules make a marker true:

* **Claims after the table.** The claims are read after the version that they are confirmed for. A
  late output in that version was published after its partition was revoked, so the claim is gone.
  And a marker is written only if that version has every output of the claim. The journal names
  them; number and sum of their ids prove that none of its objects is lost.
* **Revocations before the commit.** Before each commit the claims are read again, and markers of
  revoked ones are removed. Whatever the commit brings was found before that.

A death between two steps leaves a marker out, and the next poll writes it. A consumer reads the
table at the marker's version; two committers at once may remove a marker one poll late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from blizzard_core.checkpoint import document as checkpoint
from blizzard_core.errors import StateError
from blizzard_core.handover.complete import (
    MARKERS_FOLDER,
    NO_DIGEST,
    Claim,
    Claims,
    Confirmed,
    Marker,
    Missing,
    add_digest,
    claims_from_json,
    claims_path,
    confirmed_from_json,
    confirmed_path,
    marker_from_json,
    marker_path,
    partitions_of,
    revoked_path,
    stands,
    to_json,
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
from penguin_py.table_view import TableView

# Journal objects that are read and held at the same time.
AT_ONCE = 256


@dataclass(slots=True)
class _Source:
    """What this process knows of a source's certificates.

    ``markers`` has the marker of each partition that was looked at, ``outputs`` those of claims
    that wait, by partition, era and number.
    """

    confirmed: Confirmed | None
    markers: dict[str, Marker | None] = field(default_factory=dict)
    outputs: dict[tuple[str, str, int], tuple[PublishedOutput, ...]] = field(default_factory=dict)


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
        """Remove the markers whose claims do not hold. Call it before each commit.

        Raises `StorageError`: then nothing may be committed.
        """
        for name in self._names:
            self._revoked(name, self._claims(name))

    def confirm(self) -> None:
        """Write markers for claims whose outputs are in the table. Raises `StorageError`."""
        waiting = 0
        for name in self._names:
            claims = self._revoked(name, self._claims(name))
            if claims is None:
                continue
            due = self._due(name, claims)
            if due:
                # The table first, then its claims: see above.
                snapshot = self._view.current()
                claims = self._revoked(name, self._claims(name))
                due = () if claims is None else self._due(name, claims)
            missing = self._confirmed(name, claims, due, snapshot) if claims and due else {}
            if claims is not None:
                self._save(name, Confirmed(claims.era, claims.epoch, missing))
            waiting += len(missing)
        if self._names:
            self._activity.claims_wait(waiting)

    def _claims(self, name: str) -> Claims | None:
        """Return the claims of a source; None if there are none that can be trusted."""
        known = self._known(name).confirmed
        try:
            claims = checkpoint.load(self._storage, claims_path(name), claims_from_json)
        except StateError as error:
            self._log.warning("claims_ignored", source=name, error=str(error))
            return None
        if claims is not None and known is not None and claims.epoch < known.epoch:
            why = f"is of epoch {claims.epoch}, and epoch {known.epoch} was there before"
            self._log.warning("claims_ignored", source=name, error=f"{claims_path(name)}: {why}")
            return None
        return claims

    def _known(self, name: str) -> _Source:
        if name not in self._sources:
            try:
                found = checkpoint.load(self._storage, confirmed_path(name), confirmed_from_json)
            except StateError:
                found = None  # markers of an unknown era are removed
            self._sources[name] = _Source(found)
        return self._sources[name]

    def _revoked(self, name: str, claims: Claims | None) -> Claims | None:
        """Remove the markers of a source that its claims do not support; return the claims."""
        known = self._known(name)
        if claims is None:
            if known.confirmed != _NONE:
                self._remove_all(name)
                known.confirmed = _NONE
            return None
        if known.confirmed is None or known.confirmed.era != claims.era:
            self._remove_all(name)
            self._save(name, Confirmed(claims.era, claims.epoch))
        unknown = [each for each in claims.partitions if each not in known.markers]
        found = self._pool.map(lambda partition: self._marker(name, partition), unknown)
        known.markers.update(zip(unknown, found, strict=True))
        for partition, claim in claims.partitions.items():
            marker = known.markers[partition]
            if marker is not None and not stands(marker, claims, partition):
                self._remove(name, partition, claim, marker)
        return claims

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

    def _remove(self, name: str, partition: str, claim: Claim, marker: Marker) -> None:
        note = {"revoked_ts": claim.revoked_ts, "file": claim.revoked_by, "seq": marker.seq}
        checkpoint.save(self._storage, revoked_path(name, partition), note)
        self._storage.delete(marker_path(name, partition))
        self._known(name).markers[partition] = None
        self._news.setdefault("revoked", {}).setdefault(name, {})[partition] = marker.seq
        self._log.warning(
            "partition_revoked", source=name, partition=partition, file=claim.revoked_by
        )

    def _due(self, name: str, claims: Claims) -> tuple[str, ...]:
        """Return the claimed partitions without a marker."""
        markers = self._known(name).markers
        return tuple(
            partition
            for partition, claim in claims.partitions.items()
            if claim.claimed_ts and not stands(markers.get(partition), claims, partition)
        )

    def _confirmed(
        self, name: str, claims: Claims, due: Sequence[str], snapshot: Snapshot
    ) -> dict[str, Missing]:
        """Write the markers of these partitions; return what others of them wait for."""
        known = self._known(name)
        keys = {partition: _key(partition, claims) for partition in due}
        known.outputs = {k: v for k, v in known.outputs.items() if k in keys.values()}
        unread = {p: claims.partitions[p] for p in due if keys[p] not in known.outputs}
        for partition, outputs in self._outputs(name, unread).items():
            known.outputs[keys[partition]] = outputs
        waiting: dict[str, Missing] = {}
        for partition in due:
            missing = self._missing(
                known.outputs[keys[partition]], claims.partitions[partition], snapshot
            )
            if missing is not None:
                waiting[partition] = missing
            elif snapshot.state is not None:
                self._write(name, partition, claims, snapshot.state.version)
        return waiting

    def _outputs(
        self, name: str, claims: Mapping[str, Claim]
    ) -> dict[str, tuple[PublishedOutput, ...]]:
        """Return the outputs of each claim that the journal names, in one pass."""
        found: dict[str, list[PublishedOutput]] = {partition: [] for partition in claims}
        if not claims:
            return {}
        first = min(claim.first for claim in claims.values())
        last = max(claim.last for claim in claims.values())
        folder = f"{JOURNAL_FOLDER}/{name}"
        # "\x7f" follows "~".
        paths = [
            entry.path
            for entry in latest_objects(self._storage, f"{folder}/{first}", f"{folder}/{last}\x7f")
        ]
        depth = next(iter(claims)).count("/") + 1
        for start in range(0, len(paths), AT_ONCE):
            some = paths[start : start + AT_ONCE]
            for batch in self._pool.map(lambda path: published_batch(self._storage, path), some):
                for partition in _touched(batch, depth).intersection(claims):
                    claim = claims[partition]
                    if batch is not None and claim.first <= batch.batch <= claim.last:
                        found[partition] += batch.outputs
        return {partition: tuple(outputs) for partition, outputs in found.items()}

    def _missing(
        self, outputs: Sequence[PublishedOutput], claim: Claim, snapshot: Snapshot
    ) -> Missing | None:
        """Return what a claim waits for in a version of the table; None if it has everything."""
        if not is_whole(outputs, claim):
            return Missing(max(1, claim.contents.outputs - len(outputs)))
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

    def _write(self, name: str, partition: str, claims: Claims, version: int) -> None:
        claim = claims.partitions[partition]
        marker = Marker(
            name,
            partition,
            version,
            claims.era,
            claim.seq,
            self._clock(),
            claim.claimed_ts,
            claim.scan_ts,
            claim.contents,
        )
        checkpoint.save(self._storage, marker_path(name, partition), to_json(marker))
        self._storage.delete(revoked_path(name, partition))
        known = self._known(name)
        known.markers[partition] = marker
        del known.outputs[_key(partition, claims)]
        self._news.setdefault("complete", {}).setdefault(name, {})[partition] = claim.seq
        self._log.info(
            "partition_complete",
            source=name,
            partition=partition,
            version=version,
            files=claim.contents.files,
            rows=claim.contents.rows,
        )

    def _save(self, name: str, confirmed: Confirmed) -> None:
        known = self._known(name)
        if known.confirmed != confirmed:
            checkpoint.save(self._storage, confirmed_path(name), to_json(confirmed))
            known.confirmed = confirmed


# Known to have no marker: nothing has to be removed.
_NONE = Confirmed("", -1)


def is_whole(outputs: Iterable[PublishedOutput], claim: Claim) -> bool:
    """Return whether the journal has named every output of a claim, and nothing else."""
    ids = [output.output_id for output in outputs]
    counts = claim.contents
    return (len(ids), add_digest(NO_DIGEST, *ids)) == (counts.outputs, counts.outputs_digest)


def _key(partition: str, claims: Claims) -> tuple[str, str, int]:
    return partition, claims.era, claims.partitions[partition].seq


def _touched(batch: PublishedBatch | None, depth: int) -> set[str]:
    return set() if batch is None else partitions_of((file.path for file in batch.files), depth)


def _is_in(output_id: str, ids: Any, marks: Any = None) -> bool:
    """Return whether an output is in the table, or its rows came with a replacement."""
    return output_id in ids or replaced_mark(output_id) in (ids if marks is None else marks)
