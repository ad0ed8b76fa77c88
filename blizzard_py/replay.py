"""Replay: dead letters are ingested after all, exactly once, beside the live daemon.

A source has two replays, each a source of its own with its own checkpoint:

* ``{pipeline}_{source}~replay`` reads whole files again, where they lie;
* ``{pipeline}_{source}~records`` reads single records, which are first written as
  NDJSON below ``{dlq}/{pipeline}_{source}~records/``, in the folders of the file
  they are from, so that rows go to the same partition of the table.

The live watermarks are never written. The steps, and what a death after each means:

1. record files are written under names that follow from the letters; again on
   the next run, the same;
2. **the checkpoint is saved with the files in its queue and the letters' names**:
   from here on the letters are taken, and the next run only finishes them;
3. the batch protocol of `blizzard_py.pipeline` drains the queue. A file or record
   that fails again has a new letter before it leaves the queue;
4. the letters are moved to ``replayed/``, and the checkpoint forgets their names.

A file that is another's to ingest is left to it: one that the live daemon has
still to do or will find late, and one that was ingested since its letter. Two
replays at once fence each other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias

from blizzard_py import letters
from blizzard_py.batch import RECORDS_SUFFIX, REPLAY_SUFFIX, Parts
from blizzard_py.claims import BatchInFlight, Claims
from blizzard_py.core import checkpoint
from blizzard_py.core.config import OnBadRecord
from blizzard_py.core.errors import BlizzardError, NotFound
from blizzard_py.core.fence import FencedFile
from blizzard_py.core.log import get_logger
from blizzard_py.core.model import Entry
from blizzard_py.core.storage import Storage
from blizzard_py.core.watermark import Gap
from blizzard_py.discovery import Scope
from blizzard_py.journal import Ingested
from blizzard_py.kernels.failure import FileFailed
from blizzard_py.letters import DeadLetter, LetterObject
from blizzard_py.pipeline import SourcePipeline
from blizzard_py.rereading import read_lines
from blizzard_py.settings import Engine, Place
from blizzard_py.state import STATE_FOLDER, SourceState, state_from_json, state_to_json

# How much of records may wait in memory for being written, and how large their files get.
RECORD_FILE_BYTES = 64 << 20

_NOTHING = Gap("", "")
# So many objects are taken before their files are ingested together.
LETTERS_AT_ONCE = 100


class ReplayRefused(BlizzardError):
    """A letter cannot be replayed as it is; the message names the remedy."""


Drain: TypeAlias = Callable[[SourcePipeline], int]

_REFUSALS = (ReplayRefused, letters.UnreadableLetter, BatchInFlight, NotFound)


def records_uri(live: Parts) -> str:
    """Where the records of a source are written to be read again."""
    return f"{live.stores.dlq.uri}/{live.id}{RECORDS_SUFFIX}"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A file of a letter object and what a replay does with it.

    ``reason`` is empty for one that is ingested, else it says whose it is.
    ``records`` counts the records in a file that the replay writes.
    """

    path: str
    reason: str = ""
    records: int = 0
    entry: Entry | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a replay did with one letter object, or would do.

    ``state`` is ``replayed``, ``taken`` (work is left: run it again), ``would
    replay``, or ``refused``, and then ``error`` has the reason.
    """

    id: str
    kind: str
    state: str
    files: int = 0
    records: int = 0
    left_to_others: tuple[tuple[str, str], ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """A whole replay: each object's outcome, and how many files and rows came of it."""

    outcomes: tuple[Outcome, ...]
    ingested: int
    failed_again: int
    rows: int
    exit_code: int


def file_parts(live: Parts, engine: Engine) -> Parts:
    """The source that reads whole files again."""
    # A replay is not stopped by what fails again: it has its letter, and others wait.
    on_bad: OnBadRecord = (
        "quarantine_file" if live.errors.on_bad_record == "fail" else live.errors.on_bad_record
    )
    return replace(
        live,
        suffix=REPLAY_SUFFIX,
        engine=engine,
        ingest=replace(live.ingest, on_bad_record=on_bad),
        # The letters are the only bound, and every one is to get its answer.
        source=live.source.model_copy(
            update={
                "use_watermark": True,
                "partition_filter": live.source.partition_filter
                and live.source.partition_filter.model_copy(update={"lookback": None}),
                "late_sweep_interval_secs": 0,
                "order_guard": "off",
            }
        ),
        errors=live.errors.model_copy(update={"max_failures": 0, "on_bad_record": on_bad}),
    )


def record_parts(live: Parts, engine: Engine, storage: Storage) -> Parts:
    """The source that reads the records below `records_uri`, which ``storage`` is."""
    files = file_parts(live, engine)
    return replace(
        files,
        suffix=RECORDS_SUFFIX,
        source=files.source.model_copy(update={"compression": "none"}),
        ingest=replace(
            live.ingest,
            source=Place(storage.uri, live.ingest.sink.options),
            compression="none",
            # Those that are good now are not to wait for those that are not.
            on_bad_record="quarantine_record",
            max_bad_fraction=1.0,
        ),
        errors=files.errors.model_copy(update={"on_bad_record": "quarantine_record"}),
        stores=replace(live.stores, source=storage),
    )


@dataclass
class Replay:
    """The replays of one source; ``files`` and ``records`` as made by the functions above.

    ``drain`` cycles a worker until it has nothing left to do, and returns its exit code.
    """

    live: Parts
    files: Parts
    records: Parts
    drain: Drain
    from_source: bool = False

    def __post_init__(self) -> None:
        live = self.live
        self._log = get_logger(pipeline=live.pipeline, source=live.source_name)
        self._journals = [
            Ingested(live.stores.sink, parts.id, live.concurrency)
            for parts in (self.files, self.records)
        ]

    def preview(self, chosen: Iterable[LetterObject]) -> Iterator[Outcome]:
        """What `run` would do with each object. Writes nothing."""
        claims = Claims(self.live, self._replayed())
        for found in chosen:
            try:
                claims.check_batch(found)
                files = list(self._choose(found, claims, write=False))
            except _REFUSALS as error:
                yield Outcome(found.id, found.kind, "refused", error=str(error))
            else:
                yield _told(found, files, "would replay")

    def run(self, chosen: Iterable[LetterObject]) -> Report:
        """Replay the objects in their order, and finish what an earlier run left.

        Raises `FencedError` if another replay of the source takes over, `StorageError`;
        then run it again.
        """
        before = self._totals()
        outcomes: list[Outcome] = []
        begun = self._letters_left()
        code = self._drain_all()
        begun -= self._letters_left()
        waiting = iter(chosen)
        while not code and (group := list(islice(waiting, LETTERS_AT_ONCE))):
            taken = [
                # An earlier run took it and died; it is put away now.
                Outcome(found.id, found.kind, "replayed")
                if found.id in begun
                else self._take(found)
                for found in group
            ]
            code = self._drain_all()
            left = self._letters_left()
            outcomes += [
                replace(told, state="taken")
                if told.state == "replayed" and told.id in left
                else told
                for told in taken
            ]
        ingested, failed, rows = (
            now - then for now, then in zip(self._totals(), before, strict=True)
        )
        refused = any(told.state == "refused" for told in outcomes)
        return Report(tuple(outcomes), ingested, failed, rows, code or int(refused))

    def _take(self, found: LetterObject) -> Outcome:
        """Steps 1 and 2."""
        claims = Claims(self.live, self._replayed())
        try:
            claims.check_batch(found)
            parts = self._parts_for(found)
            ledger = Ledger(parts)
            state = ledger.open()
            if found.id in state.letters:
                return Outcome(found.id, found.kind, "replayed")
            files = list(self._choose(found, claims, write=True))
        except _REFUSALS as error:
            return Outcome(found.id, found.kind, "refused", error=str(error))
        ledger.add(state, found.id, [file.entry for file in files if file.entry is not None])
        self._log.info("letters_taken", letter=found.id, files=len(files))
        return _told(found, files, "replayed")

    def _drain_all(self) -> int:
        """Steps 3 and 4 for all that is taken; the exit code."""
        for parts in (self.files, self.records):
            if not Ledger(parts).has_work():
                continue
            code = self.drain(SourcePipeline(parts, Scope(_NOTHING, lambda _entry: False)))
            if code:
                return code
            Ledger(parts).settle()
        return 0

    def _letters_left(self) -> set[str]:
        return {
            letter
            for parts in (self.files, self.records)
            for letter in Ledger(parts).peek().letters
        }

    def _parts_for(self, found: LetterObject) -> Parts:
        """Which replay an object belongs to: all of its letters are of one source folder."""
        if found.kind == "records":
            return self.records
        first = next(letters.read(self.live.stores.dlq, found), None)
        root = f"{self.records.stores.source.uri}/"
        return self.records if first is not None and first.uri.startswith(root) else self.files

    def _totals(self) -> tuple[int, int, int]:
        found = [Ledger(parts).peek().totals for parts in (self.files, self.records)]
        return (
            sum(totals.files for totals in found),
            sum(totals.quarantined for totals in found),
            sum(totals.rows for totals in found),
        )

    def _replayed(self) -> dict[str, str]:
        """Paths that replays have ingested, with the batch."""
        files, records = (journal.batches() for journal in self._journals)
        return {**files, **records}

    def _choose(self, found: LetterObject, claims: Claims, *, write: bool) -> Iterator[Chosen]:
        if found.kind == "records":
            yield from self._record_files(found, write=write)
            return
        parts = self._parts_for(found)
        seen = set()
        for letter in letters.read(self.live.stores.dlq, found):
            path = self._path_below(parts, letter)
            if path in seen:
                continue
            seen.add(path)
            entry = parts.stores.source.stat(path)
            reason = claims.whose(path, entry, letter, live=parts is self.files)
            if reason:
                yield Chosen(path, reason)
            else:
                # A file that is gone is queued all the same: it ends with a letter that says so.
                yield Chosen(path, entry=entry or Entry(path, 0, self.live.clock()))

    def _path_below(self, parts: Parts, letter: DeadLetter) -> str:
        root = f"{parts.stores.source.uri}/"
        if not letter.uri.startswith(root):
            raise ReplayRefused(
                f"{letter.uri} is not below {root}; put source_uri back for the replay, or bring"
                " the file to the source under a new name and move the letter away"
            )
        return letter.uri.removeprefix(root)

    def _record_files(self, found: LetterObject, *, write: bool) -> Iterator[Chosen]:
        """The records of an object as files, one per source file, in bounded pieces."""
        waiting: dict[str, list[DeadLetter]] = {}
        held = piece = 0
        for letter in letters.read(self.live.stores.dlq, found):
            path = self._path_below(self._home_of(letter), letter)
            waiting.setdefault(letters.original_of(path), []).append(letter)
            held += max(letter.length, len(letter.raw))
            if held > RECORD_FILE_BYTES:
                yield from self._written(found, piece, waiting, write=write)
                waiting, held, piece = {}, 0, piece + 1
        yield from self._written(found, piece, waiting, write=write)

    def _home_of(self, letter: DeadLetter) -> Parts:
        """Where a letter's file lies: at the source, or among the records of a replay."""
        ours = letter.uri.startswith(f"{self.records.stores.source.uri}/")
        return self.records if ours else self.files

    def _written(
        self,
        found: LetterObject,
        piece: int,
        waiting: Mapping[str, Sequence[DeadLetter]],
        *,
        write: bool,
    ) -> Iterator[Chosen]:
        for original, held in sorted(waiting.items()):
            target = f"{original}.{found.batch}.{piece}.ndjson"
            data = b"".join(line + b"\n" for line in self._raw_lines(held))
            if write:
                self.records.stores.source.put_atomic(target, data)
            entry = Entry(target, len(data), self.live.clock())
            yield Chosen(target, records=len(held), entry=entry)

    def _raw_lines(self, held: Sequence[DeadLetter]) -> list[bytes]:
        """The records' lines: from the letters or, where those are cut, from their file."""
        cut: dict[str, list[DeadLetter]] = {}
        for letter in held:
            if letter.truncated or self.from_source:
                cut.setdefault(letter.uri, []).append(letter)
        again = {uri: self._from_file(uri, found) for uri, found in cut.items()}
        return [again.get(letter.uri, {}).get(letter.line, letter.raw) for letter in held]

    def _from_file(self, uri: str, cut: Sequence[DeadLetter]) -> dict[int, bytes]:
        parts = self._home_of(cut[0])
        path = self._path_below(parts, cut[0])
        source = parts.stores.source
        entry = source.stat(path)
        if entry is None:
            raise ReplayRefused(
                f"{uri} is gone and {len(cut)} of its lines have to be read from it; bring the"
                " file back under this name"
            )
        try:
            lines = read_lines(
                source, path, entry.size, parts.source.compression, [c.line for c in cut]
            )
        except FileFailed as error:
            raise ReplayRefused(f"{uri} cannot be read again: {error.reason}") from error
        except ValueError as error:
            raise ReplayRefused(f"{uri}: {error}") from error
        for letter in cut:
            line = lines.get(letter.line)
            if line is None:
                raise ReplayRefused(f"{uri} has no line {letter.line} any more; bring it back")
            # What was cut as text may end in the middle of a character.
            if not self.from_source and not line.startswith(letter.raw[:-4]):
                raise ReplayRefused(
                    f"line {letter.line} of {uri} is another one than when its letter was written;"
                    " give --from-source to take what is there now"
                )
        return lines


def _told(found: LetterObject, files: Sequence[Chosen], state: str) -> Outcome:
    return Outcome(
        found.id,
        found.kind,
        state,
        files=sum(file.entry is not None for file in files),
        records=sum(file.records for file in files),
        left_to_others=tuple((file.path, file.reason) for file in files if file.reason),
    )


class Ledger:
    """The checkpoint of a replay, as the list of letters it has taken."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._sink = parts.stores.sink
        self._path = f"{STATE_FOLDER}/{parts.id}_checkpoint.json"
        self._file = FencedFile(self._sink, self._path)

    def peek(self) -> SourceState:
        """The state in storage. Writes nothing."""
        return checkpoint.load(self._sink, self._path, state_from_json) or SourceState()

    def has_work(self) -> bool:
        """Whether an earlier run left anything to finish."""
        state = self.peek()
        return bool(state.letters or state.in_flight or state.passed.queue)

    def open(self) -> SourceState:
        """Take the checkpoint over: another replay of this source stops at its next save."""
        fresh = state_to_json(SourceState(), self._parts.clock())
        return self._file.take(state_from_json, fresh) or SourceState()

    def add(self, state: SourceState, letter_id: str, files: Sequence[Entry]) -> None:
        """Step 2: the letters are taken, and their files are in the queue, each once."""
        known = {entry.path for entry in state.passed.queue}
        known.update(entry.path for batch in state.in_flight for entry in batch.files)
        queue = (*state.passed.queue, *(entry for entry in files if entry.path not in known))
        self._save(
            replace(
                state,
                passed=replace(state.passed, queue=queue),
                letters=(*state.letters, letter_id),
            )
        )

    def settle(self) -> None:
        """Step 4, unless something is left to do: then the next run takes it up."""
        state = self.open()
        if state.in_flight or state.passed.queue:
            return
        dlq = self._parts.stores.dlq
        for letter_id in state.letters:
            here, there = letters.put_away(self._parts.letters_id, letter_id)
            with contextlib.suppress(NotFound):  # moved before a crash
                dlq.rename(here, there)
        self._save(replace(state, letters=()))

    def _save(self, state: SourceState) -> None:
        self._file.save(state_to_json(state, self._parts.clock()))
