"""Files that ``--replace`` takes, with what they had, and those that it refuses. Reads only.

Whatever cannot be replaced exactly is refused here, before anything of it is read or written; see
`blizzard_py.sources.earlier_batches` for how rows of before are found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from blizzard_core.errors import BlizzardError
from blizzard_core.handover.groups import SOURCE_FILE_COLUMN
from blizzard_core.storage.protocol import Entry, order_key
from blizzard_core.table.committed import removed
from blizzard_py.replay.ownership import Claims
from blizzard_py.sources.earlier_batches import Earlier, EarlierBatch, Lacking, earlier_of
from blizzard_py.sources.files.earlier import EarlierBatches
from blizzard_py.sources.parts import Parts
from blizzard_py.state.journal import Ingested

# So many files one command takes: the checkpoint of the replay lists them until they are done.
FILES_AT_MOST = 10_000
# So many files may have rows in the same outputs: they are one batch and one commit.
TOGETHER_AT_MOST = 2000
# How many files a refusal names.
_EXAMPLES = 5

State = Literal[
    "would replace", "would ingest", "replaced", "ingested", "kept", "quarantined", "taken", "left"
]


class ReplaceRefused(BlizzardError):
    """Rows of the files cannot be replaced exactly; nothing was read. The message has a remedy."""


@dataclass(frozen=True, slots=True)
class Letters:
    """Dead-letter objects with the files that they tell of, and those of which no rows came."""

    objects: Mapping[str, frozenset[str]] = field(default_factory=dict)
    failed: frozenset[str] = frozenset()


NO_LETTERS = Letters()


@dataclass(frozen=True, slots=True)
class ReplacedFile:
    """The outcome of one file: ``rows`` it had before, in ``batches``.

    ``by`` says how these rows are found: ``_source_file``, or ``outputs`` as a whole; it is
    empty where there are none. ``kept`` means that it failed and its rows are as they were.
    """

    path: str
    state: State
    reason: str = ""
    rows: int = 0
    by: Literal["", "_source_file", "outputs"] = ""
    batches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chosen:
    """The files to take, with what they had, and what is told of the others."""

    entries: dict[str, Entry] = field(default_factory=dict)
    earlier: dict[str, Earlier] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    insist: bool = False

    def told(self, path: str, state: State, reason: str = "") -> ReplacedFile:
        earlier = self.earlier.get(path, Earlier())
        batches = tuple(batch.batch for batch in earlier.batches)
        by: Literal["", "_source_file", "outputs"] = ""
        if batches or self.insist:
            by = "outputs" if earlier.together else "_source_file"
        return ReplacedFile(path, state, reason, earlier.rows, by, batches)


@dataclass(frozen=True, slots=True)
class Choosing:
    """Chooses files of one source: ``live`` are its parts, ``files`` those of its replay.

    ``remedy`` is how more files can be chosen.
    """

    live: Parts
    files: Parts
    remedy: str
    insist: bool = False

    def chosen(self, wanted: Mapping[str, Entry], letters: Letters, now: float | None) -> Chosen:
        """Return what is to be done with each file, ``now`` that they are claimed, if they are.

        Raises `ReplaceRefused`, `StateError`, `StorageError`.
        """
        if self.insist:
            self._check_insisted()
        if len(wanted) > FILES_AT_MOST:
            raise ReplaceRefused(
                f"{self.live.name}: {len(wanted):,} files are chosen, and one command takes"
                f" {FILES_AT_MOST:,} at most; {self.remedy} that have fewer"
            )
        replays = [Ingested(self.live.stores.sink, self.files.id, self.live.concurrency)]
        claims = Claims(self.live, replays, now)
        left: dict[str, str] = {}
        unknown: list[str] = []
        entries: dict[str, Entry] = {}
        for path, entry in wanted.items():
            claim = claims.claim(path)
            if claim.standing == "waits":
                left[path] = claim.reason
            elif claim.standing == "free" and not (path in letters.failed or claims.failed(path)):
                left[path] = "it was never ingested; `blizzard ingest` or `backfill` takes it"
            else:
                # The letter of a whole file says that no rows came of it, unless it was kept.
                if claim.standing == "unknown" and path not in letters.failed:
                    unknown.append(path)
                entries[path] = entry
        batches = EarlierBatches(self.files, entries)
        found = batches.look()
        paths = list(entries)
        if not self.insist:
            self._check_known(unknown, batches.cut(paths, found))
        earlier, lacking = earlier_of(paths, found, paths if self.insist else ())
        self._check_named(earlier)
        self._check_whole(earlier, lacking)
        return Chosen(entries, earlier, left, self.insist)

    def _check_insisted(self) -> None:
        ingest = self.live.ingest
        if SOURCE_FILE_COLUMN not in ingest.metadata_columns or ingest.deduplicate_by:
            raise ReplaceRefused(
                f"{self.live.name}: --insist says that each row names the one file that it is of,"
                f" so {SOURCE_FILE_COLUMN} has to be among sink.metadata_columns, and there is to"
                " be no deduplicate_by"
            )

    def _check_known(self, unknown: Sequence[str], cut: Sequence[str]) -> None:
        """Raise `ReplaceRefused` for files whose rows of before nobody can tell."""
        for paths, why in (
            (unknown, "were passed over before there was a ledger"),
            (cut, "were ingested in batches that the journal no longer holds (it keeps 30 days)"),
        ):
            if paths:
                raise ReplaceRefused(
                    f"{self.live.name}: {len(paths):,} of the files {why}, so nobody knows where"
                    f" their rows are: {_named(paths)}. If all their rows are in the table and name"
                    f" their file in {SOURCE_FILE_COLUMN} (look there), give --insist; else delete"
                    " the rows by hand and ingest the files under new names"
                )

    def _check_named(self, earlier: Mapping[str, Earlier]) -> None:
        """Raise `ReplaceRefused` where rows named their file and new ones would not.

        The table has the column then, and takes no group that lacks it.
        """
        if SOURCE_FILE_COLUMN in self.live.ingest.metadata_columns:
            return
        named = [path for path, each in earlier.items() if any(b.named for b in each.batches)]
        if named:
            raise ReplaceRefused(
                f"{self.live.name}: rows of {len(named):,} of the files name their file, so the"
                f" table has {SOURCE_FILE_COLUMN}, and new rows would lack it: {_named(named)}."
                f" Have {SOURCE_FILE_COLUMN} among sink.metadata_columns again"
            )

    def _check_whole(self, earlier: Mapping[str, Earlier], lacking: Lacking) -> None:
        """Raise `ReplaceRefused` where outputs cannot go as a whole."""
        if lacking.files:
            names = sorted(lacking.files, key=order_key)
            gone = [path for path in names[:100] if self.live.stores.source.stat(path) is None]
            more = f" Gone from the source, so bring them back first: {_named(gone)}." * bool(gone)
            raise ReplaceRefused(
                f"{self.live.name}: rows of {len(names):,} other files lie in the same outputs as"
                f" those of the chosen ones, and rows do not name their file; these would have to"
                f" come along: {_named(names)} ({lacking.files[names[0]]} was ingested with the"
                f" first).{more} {self.remedy} that take them in. With {SOURCE_FILE_COLUMN} among"
                " sink.metadata_columns what is ingested from then on needs no company"
            )
        groups: dict[str, int] = {}
        for each in earlier.values():
            if each.together:
                groups[each.together] = groups.get(each.together, 0) + 1
        largest = max(groups.values(), default=0)
        if largest > TOGETHER_AT_MOST:
            raise ReplaceRefused(
                f"{self.live.name}: {largest:,} files have rows in the same outputs, and go in one"
                f" commit or not at all; {TOGETHER_AT_MOST:,} can. Delete their rows by hand and"
                " use `blizzard backfill --replay`"
            )
        self._check_there(
            {b.batch: b for each in earlier.values() if each.together for b in each.batches}
        )

    def _check_there(self, batches: Mapping[str, EarlierBatch]) -> None:
        """Raise `ReplaceRefused` for outputs whose rows are in other files of the table by now."""
        wanted = {path for batch in batches.values() for paths in batch.paths for path in paths}
        if not wanted:
            return
        since = min(batch.started_ts for batch in batches.values())
        gone, whole = removed(self.live.stores.sink, wanted, since, self.live.concurrency)
        if gone or not whole:
            what = (
                f"the table let {min(gone)} go (compacted, or rows of it were deleted)"
                if gone
                else "the table's log was cleaned up and does not tell what became of them"
            )
            raise ReplaceRefused(
                f"{self.live.name}: rows of the files do not name their file, so their outputs"
                f" would have to go as a whole, but {what}. Delete the rows by hand and use"
                " `blizzard backfill --replay`"
            )


def _named(paths: Sequence[str]) -> str:
    more = len(paths) - _EXAMPLES
    return ", ".join(paths[:_EXAMPLES]) + (f" and {more:,} more" if more > 0 else "")
