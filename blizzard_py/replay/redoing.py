"""``blizzard redo --quarantined``: the source files of refused outputs are ingested again.

Which files these are the journal says: all that were ingested in a batch of which a committer has
refused an output. Of some of them rows lie in other outputs, which are in the table; so they go
the way of ``--replace`` (`blizzard_py.replay.replacing`), and what is there of them goes in the
commit that brings all. Where rows do not name their file, all files of these batches come along.

The steps, and what a death after each means:

1. what cannot be redone exactly is refused, and nothing was written;
2. the committer gives the refused outputs up, in the table's log: whatever happens to their
   files and to the table, they are never committed. Before that step none is taken, since a
   group waits until each output whose rows it replaces is there or given up; after it the next
   run begins again, and giving up what is given up changes nothing. What it refuses while it
   does so is given up, too, and what it refuses only later by the next run;
3. the files are taken, ingested and published as one that replaces, with all that is said there
   of deaths, of two at once and of the daemon beside. From the batch's commit on the refused
   outputs count no more (`blizzard_py.replay.refused`), so nothing is redone twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from blizzard_core.errors import BlizzardError
from blizzard_core.storage.protocol import Entry, order_key
from blizzard_py.replay.choosing import FILES_AT_MOST
from blizzard_py.replay.refused import RefusedOutput, refused_outputs, replaced_outputs
from blizzard_py.replay.replacing import Replacement, Replacing
from blizzard_py.replay.taken import Taken
from blizzard_py.sources.earlier_batches import earlier_of
from blizzard_py.sources.files.earlier import EarlierBatches
from blizzard_py.sources.parts import Parts
from blizzard_py.sources.story import way_out

# Has the committer of the table give up outputs, by their ids. Raises `BlizzardError`.
GiveUp = Callable[[Sequence[str]], None]

# How many files a refusal names.
_EXAMPLES = 5


class RedoRefused(BlizzardError):
    """The rows cannot be redone exactly; nothing was changed. The message has a remedy."""


@dataclass(frozen=True, slots=True)
class Redone:
    """The refused outputs of one source, and the outcomes of their files."""

    source: str
    outputs: tuple[RefusedOutput, ...]
    replacement: Replacement


@dataclass(frozen=True, slots=True)
class Redoing:
    """Redoes what was refused of one source; ``replacing`` is of the same ``live`` parts."""

    live: Parts
    replacing: Replacing
    give_up: GiveUp

    def preview(self) -> Redone | None:
        """Return what `run` would do; None if nothing is there to do. Writes nothing.

        Raises `RedoRefused`, `ReplaceRefused`, `StateError`, `StorageError`.
        """
        outputs = refused_outputs(self.live)
        if not outputs:
            return None
        wanted = self._wanted(outputs)
        return Redone(self.live.name, tuple(outputs), self.replacing.preview(wanted))

    def run(self) -> Redone | None:
        """Redo it, and finish what an earlier run left; None if there was nothing to do.

        Raises `FencedError` if another replay takes over, and as `preview`; after all but a
        refusal run it again.
        """
        # Refused only after the batch that replaces it was committed, whose group waits for it.
        late = replaced_outputs(self.live)
        if late:
            self.give_up([output.output_id for output in late])
        told = self.preview()
        if told is None:
            left = Taken(self.replacing.files).peek()
            if not (left.replacing or any(batch.group for batch in left.in_flight)):
                return None  # what is there may be a replay's that runs
            return Redone(self.live.name, (), self.replacing.run({}))
        told = self._given_up(told)
        done = self.replacing.run(self._wanted(told.outputs))
        return Redone(self.live.name, told.outputs, done)

    def _given_up(self, told: Redone) -> Redone:
        """All that is refused is given up, also what the committer refuses while it does that."""
        given: set[str] = set()
        while True:
            fresh = [o.output_id for o in told.outputs if o.output_id not in given]
            if not fresh:
                return told
            self.give_up(fresh)
            given.update(fresh)
            told = self.preview() or told

    def _wanted(self, outputs: Sequence[RefusedOutput]) -> dict[str, Entry]:
        """The files to ingest again, as they are now. Raises `RedoRefused`."""
        if not self.live.has_files or self.live.event_time is not None:
            raise RedoRefused(f"{self.live.name}: {outputs[0].path}: {way_out(self.live)}")
        paths = self._company({path for output in outputs for path in output.files})
        there = {path: self.live.stores.source.stat(path) for path in paths}
        gone = [path for path, entry in there.items() if entry is None]
        if gone:
            more = f" and {len(gone) - _EXAMPLES:,} more" if len(gone) > _EXAMPLES else ""
            raise RedoRefused(
                f"{self.live.name}: {len(gone):,} of the files whose rows were refused, or lie in"
                f" the same outputs, are gone from {self.live.stores.source.uri}:"
                f" {', '.join(gone[:_EXAMPLES])}{more}. Bring them back under these names; or mend"
                " the table, and replace the Parquet file by one that fits"
            )
        return {path: entry for path, entry in there.items() if entry is not None}

    def _company(self, paths: set[str]) -> list[str]:
        """The paths with those that have to come along, in order."""
        while len(paths) <= FILES_AT_MOST:
            found = EarlierBatches(self.live, paths).look()
            _, lacking = earlier_of(sorted(paths), found)
            if not lacking.files:
                break
            paths = paths.union(lacking.files)
        return sorted(paths, key=order_key)
