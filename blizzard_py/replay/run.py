"""Running a replay: letters are taken in groups, drained and put away."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TypeAlias

from blizzard_core.errors import NotFound
from blizzard_core.log import get_logger
from blizzard_core.watermark.progress import Gap
from blizzard_py.dead_letters.counting import lines_of
from blizzard_py.dead_letters.reader import DeadLetterObject, UnreadableDeadLetter
from blizzard_py.dead_letters.reasons import reason_of
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.replay.files import Chosen, DeadLetterFiles, ReplayRefused
from blizzard_py.replay.ownership import BatchInFlight, Claims, check_live
from blizzard_py.replay.taken import Taken
from blizzard_py.sources.files.discovery import Scope
from blizzard_py.sources.files.replacements import ReplacingFiles
from blizzard_py.sources.parts import Parts
from blizzard_py.state.journal import Ingested

# What a replay is to do stands in its queue.
_NOWHERE = Scope(Gap("", ""), lambda _path: False)
# So many objects, or files of them, are taken before the files are ingested together: the
# checkpoint lists them until then. A larger object is taken in parts.
LETTERS_AT_ONCE = 100
FILES_AT_ONCE = 2000

Drain: TypeAlias = Callable[[SourcePipeline], int]

# What the operator has to look at.
_UNMENDED = frozenset({"refused", "taken"})
_REFUSALS = (ReplayRefused, UnreadableDeadLetter, BatchInFlight, NotFound)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one letter object in a replay.

    ``state`` is ``replayed``, ``taken`` (work is left: run it again), ``left`` (another run has
    still to do a file of it, and nobody knows what becomes of that: it stays open), ``would
    replay`` or ``would leave``, or ``refused``, and then ``error`` has the reason. Of its
    ``letters`` so many are ``letters_left`` to others.
    """

    id: str
    kind: str
    state: str
    files: int = 0
    records: int = 0
    left_to_others: tuple[tuple[str, str], ...] = ()
    error: str = ""
    letters: int = 0
    letters_left: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """A whole replay: each object's outcome, and how many files and rows came of it.

    ``failed_again`` counts whole files and single records that came to nothing, ``bad_rows`` lines
    of files that are in without them. Each of both has a new letter.
    """

    outcomes: tuple[Outcome, ...]
    ingested: int
    failed_again: int
    bad_rows: int
    rows: int
    exit_code: int


@dataclass
class Replay:
    """The replays of one source, made of its parts and of `file_parts` and `record_parts`.

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
        self._letter_files = DeadLetterFiles(live, self.files, self.records, self.from_source)
        self._journals = [
            Ingested(live.stores.sink, parts.id, live.concurrency)
            for parts in (self.files, self.records)
        ]

    def preview(self, chosen: Iterable[DeadLetterObject]) -> Iterator[Outcome]:
        """Return what `run` would do with each object. Writes nothing."""
        self._totals()  # raises where a checkpoint is lost, as for `run`
        claims = Claims(self.live, self._journals)
        for found in chosen:
            try:
                claims.check_batch(found)
                closed = self._closed(found)
                if closed is not None:
                    yield closed
                    continue
                parts = self._letter_files.parts_for(found)
                files = [
                    self._letter_files.chosen(each, parts, claims, write=False)
                    for each in self._letter_files.of(found)
                ]
            except _REFUSALS as error:
                yield self._whole(found, "refused", str(error))
            else:
                left = any(file.waits for file in files)
                yield _told(found, files, "would leave" if left else "would replay")

    def run(self, chosen: Iterable[DeadLetterObject]) -> Report:
        """Replay the objects in their order, and finish what an earlier run left.

        Raises `FencedError` if another replay of the source takes over, `StorageError`;
        then run it again.
        """
        check_live(self.live)
        before = self._totals()
        outcomes: dict[str, Outcome] = {}
        begun = self._letters_left()
        code = self._drain_all()
        begun -= self._letters_left()
        taken = self._taken(chosen, begun)
        while not code and (group := list(_together(taken))):
            code = self._drain_all()
            left = self._letters_left()
            for told in group:
                waits = told.state == "replayed" and told.id in left
                outcomes[told.id] = _added(
                    outcomes.get(told.id), replace(told, state="taken") if waits else told
                )
        ingested, failed, bad, rows = (
            now - then for now, then in zip(self._totals(), before, strict=True)
        )
        found = tuple(outcomes.values())
        unmended = failed > 0 or any(each.state in _UNMENDED for each in found)
        return Report(found, ingested, failed, bad, rows, code or int(unmended))

    def _taken(
        self, chosen: Iterable[DeadLetterObject], begun: Collection[str]
    ) -> Iterator[Outcome]:
        """Steps 1 and 2 for each object, or a part of one."""
        for found in chosen:
            if found.id in begun:
                # An earlier run took it and died; it is put away now.
                yield self._whole(found, "replayed")
                continue
            try:
                yield from self._parts_of(found)
            except _REFUSALS as error:
                yield self._whole(found, "refused", str(error))

    def _parts_of(self, found: DeadLetterObject) -> Iterator[Outcome]:
        """Steps 1 and 2, for so many files of an object at a time; the last part takes the letter.

        Between two parts the files of the first are ingested. Who dies there begins again with
        the object, and leaves out what is in; what failed again is tried again.
        """
        parts = self._letter_files.parts_for(found)
        candidates = self._letter_files.of(found)
        whole = waits = False
        while not whole:
            ledger = Taken(parts)
            # Ours first: what another replay took until now is seen below.
            state = ledger.open()
            claims = Claims(self.live, self._journals, ledger.now())
            claims.check_batch(found)
            closed = self._closed(found)
            if closed is not None:
                ledger.add(state, [], letters_taken=[found.id])
                yield closed
                return
            if found.id in state.letters:
                yield self._whole(found, "replayed")
                return
            files = [
                self._letter_files.chosen(each, parts, claims, write=True)
                for each in islice(candidates, FILES_AT_ONCE)
            ]
            whole = len(files) < FILES_AT_ONCE
            entries = [file.entry for file in files if file.entry is not None]
            waits = waits or any(file.waits for file in files)
            ledger.add(state, entries, letters_taken=[found.id] if whole and not waits else [])
            self._log.info("letters_taken", letter=found.id, files=len(files))
            ended = "left" if waits else "replayed"
            yield _told(found, files, ended if whole else "taken")

    def _closed(self, found: DeadLetterObject) -> Outcome | None:
        """An object that was closed, and that its writer has brought back when it woke up."""
        why = reason_of(self.live.stores.dlq, self.live.letters_id, found.id)
        if why is None:
            return None
        told = self._whole(found, "replayed")
        by = f"closed by {why.by} at {why.at[:19]}: {why.why}"
        return replace(told, left_to_others=((found.path, by),), letters_left=told.letters)

    def _whole(self, found: DeadLetterObject, state: str, error: str = "") -> Outcome:
        """An object of which no file is looked at."""
        letters = lines_of(self.live.stores.dlq, found)
        return Outcome(found.id, found.kind, state, error=error, letters=letters)

    def _drain_all(self) -> int:
        codes = (drain_taken(parts, self.drain) for parts in (self.files, self.records))
        return next((code for code in codes if code), 0)

    def _letters_left(self) -> set[str]:
        return {
            letter for parts in (self.files, self.records) for letter in Taken(parts).peek().letters
        }

    def _totals(self) -> tuple[int, int, int, int]:
        """So many files are in, and letters failed, and lines of files did, and rows are in."""
        files, records = (Taken(parts).peek().totals for parts in (self.files, self.records))
        return (
            files.files + records.files,
            files.quarantined + records.quarantined + records.bad_rows,
            files.bad_rows,
            files.rows + records.rows,
        )


def drain_taken(parts: Parts, drain: Drain) -> int:
    """Steps 3 and 4 for all that a replay has taken; the exit code."""
    if not Taken(parts).has_work():
        return 0
    code = drain(SourcePipeline(parts, partial(ReplacingFiles, scope=_NOWHERE)))
    if not code:
        Taken(parts).settle()
    return code


def _together(taken: Iterator[Outcome]) -> Iterator[Outcome]:
    """As many as are ingested together."""
    files = 0
    for told in islice(taken, LETTERS_AT_ONCE):
        yield told
        files += told.files
        if files >= FILES_AT_ONCE:
            return


def _added(earlier: Outcome | None, told: Outcome) -> Outcome:
    """An object's outcome with that of one more part of it."""
    if earlier is None:
        return told
    return replace(
        told,
        files=earlier.files + told.files,
        records=earlier.records + told.records,
        left_to_others=earlier.left_to_others + told.left_to_others,
        letters=earlier.letters + told.letters,
        letters_left=earlier.letters_left + told.letters_left,
    )


def _told(found: DeadLetterObject, files: Sequence[Chosen], state: str) -> Outcome:
    return Outcome(
        found.id,
        found.kind,
        state,
        files=sum(file.entry is not None for file in files),
        records=sum(file.records for file in files),
        left_to_others=tuple((file.path, file.reason) for file in files if file.reason),
        letters=sum(file.letters for file in files),
        letters_left=sum(file.letters for file in files if file.reason),
    )
