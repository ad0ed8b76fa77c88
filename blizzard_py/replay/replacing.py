"""``--replace``: files that were ingested before come again, and take the place of what they had.

They go through the replay of whole files (`blizzard_py.replay`), so what holds there holds
here: one save takes them, killed at any moment the same command goes on, and the live daemon
may run beside it. Each batch is one Delta commit: its new rows come and the earlier rows of
just its files go (`blizzard_py.sources.files.replacing_files`).

Whatever cannot be replaced exactly is refused before anything is read or written; see
`blizzard_py.planning.replacing` for how rows of before are found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from blizzard_core.delta_json import removed
from blizzard_core.errors import BlizzardError
from blizzard_core.groups import SOURCE_FILE_COLUMN
from blizzard_core.log import get_logger
from blizzard_core.storage.protocol import Entry, is_hidden, order_key
from blizzard_py.dead_letters import reader
from blizzard_py.dead_letters.reader import DeadLetterObject
from blizzard_py.planning.ranges import Range
from blizzard_py.planning.replacing import Earlier, EarlierBatch, Lacking, earlier_of
from blizzard_py.replay.ownership import Claims, check_live
from blizzard_py.replay.run import Drain, drain_taken
from blizzard_py.replay.taken import Taken
from blizzard_py.sources.files.discovery import accepts
from blizzard_py.sources.files.earlier import EarlierBatches
from blizzard_py.sources.parts import Parts
from blizzard_py.state.journal import BatchDocument, Ingested, Journal
from blizzard_py.state.siblings import RECORDS_SUFFIX
from blizzard_py.state.source_state import ToReplace, under_way

# So many files one command takes: the checkpoint of the replay lists them until they are done.
FILES_AT_MOST = 10_000
# So many files may have rows in the same outputs: they are one batch and one commit.
TOGETHER_AT_MOST = 2000
# How many files a refusal names.
_EXAMPLES = 5

State = Literal[
    "would replace", "would ingest", "replaced", "ingested", "kept", "quarantined", "taken", "left"
]
_FAILED = frozenset({"kept", "quarantined", "taken"})


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
    """What becomes of one file: ``rows`` it had before, in ``batches``.

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
class Replacement:
    """What became of all files: ``rows`` that came and were ``replaced``, in ``groups`` commits.

    Of a preview ``groups`` is None and ``outputs`` counts those that go as a whole.
    """

    files: tuple[ReplacedFile, ...]
    rows: int = 0
    replaced: int = 0
    outputs: int = 0
    groups: int | None = None
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class _Chosen:
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
class Replacing:
    """Replaces files of one source: ``live`` are its parts, ``files`` those of its replay.

    ``remedy`` is how more files can be chosen.
    """

    live: Parts
    files: Parts
    drain: Drain
    remedy: str
    insist: bool = False

    def preview(self, wanted: Mapping[str, Entry], letters: Letters = NO_LETTERS) -> Replacement:
        """What `run` would do. Writes nothing.

        Raises `ReplaceRefused`, `StateError`, `StorageError`.
        """
        begun = set(under_way(Taken(self.files).peek())).intersection(wanted)
        fresh = {path: entry for path, entry in wanted.items() if path not in begun}
        chosen = self._chosen(fresh, letters, None)
        told = [ReplacedFile(path, "taken", "run the same again") for path in sorted(begun)]
        told += self._left(chosen)
        for path in chosen.entries:
            new = not chosen.told(path, "left").by
            told.append(chosen.told(path, "would ingest" if new else "would replace"))
        outputs = {
            output
            for each in chosen.earlier.values()
            if each.together
            for batch in each.batches
            for output in batch.outputs
        }
        rows = sum(each.rows for each in chosen.earlier.values())
        return Replacement(tuple(_sorted(told)), 0, rows, len(outputs))

    def run(self, wanted: Mapping[str, Entry], letters: Letters = NO_LETTERS) -> Replacement:
        """Replace the files, and finish what an earlier run left.

        Raises `FencedError` if another replay of the source takes over, `ReplaceRefused`,
        `StateError`, `StorageError`; after all but a refusal run it again.
        """
        check_live(self.live)
        ledger = Taken(self.files)
        before = ledger.peek()
        begun = set(under_way(before)).intersection(wanted)
        fresh = {path: entry for path, entry in wanted.items() if path not in begun}
        self._chosen(fresh, letters, None)  # refused before anything is written
        journal = Journal(self.live.stores.sink, self.files.id, self.live.concurrency)
        # What is being published may be told of already.
        known = set(journal.batches()) - {batch.batch for batch in before.in_flight}
        code = drain_taken(self.files, self.drain)
        if code:
            taken = (ReplacedFile(path, "taken", "run the same again") for path in sorted(begun))
            return Replacement(tuple(taken), exit_code=code)
        chosen = self._taken(ledger, fresh, letters)
        code = drain_taken(self.files, self.drain)
        after = ledger.peek()
        done = list(journal.documents(sorted(set(journal.batches()) - known)))
        told = (*self._left(chosen), *self._ended(chosen, begun, done, set(under_way(after))))
        return _report(told, done, after.totals.rows - before.totals.rows, code)

    def _taken(self, ledger: Taken, fresh: Mapping[str, Entry], letters: Letters) -> _Chosen:
        """The files are claimed by one save, whatever has happened since they were looked at."""
        state = ledger.open()
        chosen = self._chosen(fresh, letters, ledger.now())
        if not chosen.entries and not letters.objects:
            return chosen
        replacing = {
            path: ToReplace(
                tuple(batch.batch for batch in each.batches), each.together, self.insist
            )
            for path, each in chosen.earlier.items()
        }
        done = [name for name, paths in letters.objects.items() if paths.isdisjoint(chosen.left)]
        ledger.add(state, list(chosen.entries.values()), letters_taken=done, replacing=replacing)
        log = get_logger(pipeline=self.live.pipeline, source=self.live.source_name)
        log.info("files_taken", files=len(chosen.entries), replacing=True)
        return chosen

    def _chosen(self, wanted: Mapping[str, Entry], letters: Letters, now: float | None) -> _Chosen:
        """What is to be done with each file. Raises `ReplaceRefused`."""
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
        return _Chosen(entries, earlier, left, self.insist)

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

    def _left(self, chosen: _Chosen) -> Iterator[ReplacedFile]:
        return (ReplacedFile(path, "left", why) for path, why in chosen.left.items())

    def _ended(
        self,
        chosen: _Chosen,
        begun: set[str],
        done: Sequence[BatchDocument],
        left: set[str],
    ) -> Iterator[ReplacedFile]:
        outcomes = {file.path: file for document in done for file in document.files}
        for path in (*chosen.entries, *sorted(begun)):
            found = outcomes.get(path)
            had = chosen.told(path, "kept")
            if path in left or found is None:
                yield replace(had, state="taken", reason="not done yet; run the same again")
            elif found.outcome == "ingested":
                yield replace(had, state="replaced" if had.by or path in begun else "ingested")
            elif had.by or path in begun:
                yield replace(had, reason=found.error)
            else:
                yield replace(had, state="quarantined", reason=found.error)


def files_in(parts: Parts, chosen: Range) -> dict[str, Entry]:
    """The files of the source in a range, whose ends may be files. Raises `StorageError`."""
    source = parts.stores.source
    accept = accepts(parts.files.compression)
    first = source.stat(chosen.first) if accept(chosen.first) else None
    pages = source.list_range(chosen.gap.after, chosen.gap.until)
    listed = (entry for page in pages for entry in page.entries)
    there = ([] if first is None else [first]) + list(listed)
    return {e.path: e for e in there if accept(e.path) and not is_hidden(e.path)}


def _report(
    told: Sequence[ReplacedFile], done: Sequence[BatchDocument], rows: int, code: int
) -> Replacement:
    replaced = sum(file.rows for file in told if file.state == "replaced")
    groups = sum(
        bool(each.group and (each.outputs or each.group.replaced.batches)) for each in done
    )
    failed = any(file.state in _FAILED for file in told)
    files = tuple(_sorted(told))
    return Replacement(files, rows, replaced, 0, groups, code or int(failed))


def _sorted(told: Sequence[ReplacedFile]) -> list[ReplacedFile]:
    return sorted(told, key=lambda file: order_key(file.path))


def _named(paths: Sequence[str]) -> str:
    more = len(paths) - _EXAMPLES
    return ", ".join(paths[:_EXAMPLES]) + (f" and {more:,} more" if more > 0 else "")


def files_of_letters(
    live: Parts, found: Iterable[DeadLetterObject]
) -> tuple[dict[str, Entry], Letters]:
    """The files that dead letters tell of, also by single records of them, as they are now.

    One that is gone is among them: it ends with a letter that says so. Raises `ReplaceRefused`,
    `UnreadableDeadLetter`, `StorageError`.
    """
    source = live.stores.source
    roots = (f"{live.stores.dlq.uri}/{live.id}{RECORDS_SUFFIX}/", f"{source.uri}/")
    objects: dict[str, frozenset[str]] = {}
    failed: set[str] = set()
    for each in found:
        paths = set()
        for letter in reader.read(live.stores.dlq, each):
            root = next((root for root in roots if letter.uri.startswith(root)), None)
            if root is None:
                raise ReplaceRefused(
                    f"{letter.uri} is not below {source.uri}; if the source's files were moved from"
                    " there, run `blizzard rename` with --moved-from again, which rewrites letters"
                )
            path = letter.uri.removeprefix(root)
            paths.add(reader.original_of(path) if root == roots[0] else path)
            if each.kind != "records" and root != roots[0] and not letter.kept:
                failed.add(path)
        objects[each.id] = frozenset(paths)
    wanted = sorted({path for paths in objects.values() for path in paths}, key=order_key)
    there = ((path, source.stat(path)) for path in wanted)
    entries = {path: entry or Entry(path, 0, live.clock()) for path, entry in there}
    return entries, Letters(objects, frozenset(failed))
