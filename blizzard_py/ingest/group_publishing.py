"""The manifest of a batch that replaces: written once its outputs are in place.

It is written only if there is none. A present one of the same batch, from a process that died or
was replaced, is used as it is: everything that it names was in place before it was written.

**The store assigns each number.** A reset knows no number, and another source may have published
under the same id before. So each write first reads the manifests at its number and above. Applied
manifests are removed in time, but never the last one: a free number below another one was used, and
no committer would read it again. Under another name a source begins at the first number again.
"""

from __future__ import annotations

from blizzard_core.errors import Conflict
from blizzard_core.handover.groups import Group, GroupFile, encode_group, group_path
from blizzard_core.storage.protocol import Storage
from blizzard_py.state.batch import Batch, PlannedOutput
from blizzard_py.state.committers import manifest, numbers_from


class GroupManifests:
    """The manifests of one source."""

    def __init__(self, sink: Storage, source_id: str) -> None:
        self._sink = sink
        self._source_id = source_id

    def put(self, batch: Batch, epoch: int) -> int | None:
        """Make the batch's group known; None if it is, else the number to ask for next.

        Raises `StateError` for a manifest at its number that is not understood.
        """
        assert batch.results.group is not None  # noqa: S101  # the caller has looked
        seq = batch.results.group.seq
        used = numbers_from(self._sink, self._source_id, seq)
        if seq in used and self._is_same_batch(batch, seq):
            return None
        if used:
            return max(used) + 1
        path = group_path(self._source_id, seq)
        try:
            self._sink.put_if(path, encode_group(self._group(batch, epoch)), None)
        except Conflict:
            # Another's, or our own whose answer was lost.
            return None if self._is_same_batch(batch, seq) else seq + 1
        return None

    def has(self, batch: Batch) -> bool:
        """Return whether the batch's group was made known, under whichever number.

        Raises `StateError` for a manifest that is not understood.
        """
        assert batch.results.group is not None  # noqa: S101  # the caller has looked
        return any(
            self._is_same_batch(batch, seq)
            for seq in numbers_from(self._sink, self._source_id, batch.results.group.seq)
        )

    def newest(self) -> int:
        """Return the highest number in use, 0 without any."""
        return max(numbers_from(self._sink, self._source_id, 1), default=0)

    def _is_same_batch(self, batch: Batch, seq: int) -> bool:
        return manifest(self._sink, self._source_id, seq).batch == batch.batch

    def _group(self, batch: Batch, epoch: int) -> Group:
        assert batch.results.group is not None  # noqa: S101  # the caller has looked
        replaced = batch.results.group.replaced
        files = tuple(
            GroupFile(self._place(output), output.size, output.rows, output.output_id)
            for output in batch.results.outputs
        )
        return Group(
            self._source_id,
            batch.results.group.seq,
            epoch,
            batch.batch,
            files,
            replaced.ranges,
            replaced.source_files,
            replaced.outputs,
        )

    def _place(self, output: PlannedOutput) -> str:
        """Return where an output lies that two may have published, each under a name of its own."""
        if not output.earlier:
            return output.final
        there = (path for path in output.finals if self._sink.stat(path) is not None)
        return next(there, output.final)
