"""The files that stand for a letter object: those that failed, or its records as new files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from blizzard_core.errors import BlizzardError
from blizzard_core.storage.protocol import Entry
from blizzard_py.dead_letters import reader as letters
from blizzard_py.dead_letters.reader import DeadLetter, DeadLetterObject
from blizzard_py.lines.failure import FileFailed
from blizzard_py.replay.ownership import Claims
from blizzard_py.sources.files.lines import read_lines
from blizzard_py.sources.parts import Parts

# How much of records may wait in memory for being written, and how large their files get.
RECORD_FILE_BYTES = 64 << 20


class ReplayRefused(BlizzardError):
    """A letter cannot be replayed as it is; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that letters stand for: one that failed, or ``data``, a new one of ``records``.

    One that is ``kept`` was to replace rows when it failed. ``letters`` stand for it.
    """

    path: str
    records: int = 0
    data: bytes = field(default=b"", repr=False)
    kept: bool = False
    letters: int = 1


@dataclass(frozen=True, slots=True)
class Chosen:
    """A file of a letter object and what a replay does with it.

    ``reason`` is empty for one that is ingested, else it says whose it is; that run ``waits`` if
    it has still to do it.
    ``records`` counts the records in a file that the replay writes, ``letters`` what stands for it.
    """

    path: str
    reason: str = ""
    records: int = 0
    entry: Entry | None = None
    letters: int = 1
    waits: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetterFiles:
    """Finds the files of letter objects among the parts that `Replay` has.

    With ``from_source`` every record is read from its file again, else only what
    its letter had no room for.
    """

    live: Parts
    files: Parts
    records: Parts
    from_source: bool

    def parts_for(self, found: DeadLetterObject) -> Parts:
        """Return which replay an object belongs to: all of its letters are of one source folder."""
        if found.kind == "records":
            return self.records
        first = next(letters.read(self.live.stores.dlq, found), None)
        root = f"{self.records.stores.source.uri}/"
        return self.records if first is not None and first.uri.startswith(root) else self.files

    def of(self, found: DeadLetterObject) -> Iterator[Candidate]:
        """The files of an object, each once and in the same order whenever it is read.

        Raises `ReplayRefused`, `UnreadableDeadLetter`, `StorageError`.
        """
        if found.kind == "records":
            yield from self._record_files(found)
            return
        parts = self.parts_for(found)
        seen = set()
        for letter in letters.read(self.live.stores.dlq, found):
            path = self._path_below(parts, letter)
            if path not in seen:
                seen.add(path)
                yield Candidate(path, kept=letter.kept)

    def chosen(self, candidate: Candidate, parts: Parts, claims: Claims, *, write: bool) -> Chosen:
        """Return what becomes of a file of `parts_for`; ``write`` writes one of records (step 1).

        Raises `StorageError`.
        """
        path = candidate.path
        source = parts.stores.source
        entry = None if candidate.records else source.stat(path)
        claim = claims.whose(path, live=parts is self.files, kept=candidate.kept)
        if claim.reason:
            return Chosen(path, claim.reason, letters=candidate.letters, waits=claim.open)
        if candidate.records:
            if write:
                source.put_atomic(path, candidate.data)
            entry = Entry(path, len(candidate.data), self.live.clock())
        # A file that is gone is queued all the same: it ends with a letter that says so.
        entry = entry or Entry(path, 0, self.live.clock())
        return Chosen(path, records=candidate.records, entry=entry, letters=candidate.letters)

    def _path_below(self, parts: Parts, letter: DeadLetter) -> str:
        root = f"{parts.stores.source.uri}/"
        if not letter.uri.startswith(root):
            raise ReplayRefused(
                f"{letter.uri} is not below {root}; if the source's files were moved from there,"
                " run `blizzard rename` with --moved-from again, which rewrites letters; else bring"
                " the file to the source under a new name and move the letter away"
            )
        path = letter.uri.removeprefix(root)
        if not {".", ".."}.isdisjoint(path.split("/")):
            raise ReplayRefused(
                f"{letter.uri} leads elsewhere by its dots, so no daemon of ours wrote this letter;"
                " look who did, and remove it"
            )
        return path

    def _record_files(self, found: DeadLetterObject) -> Iterator[Candidate]:
        """The records of an object as files, one per source file, in bounded pieces."""
        waiting: dict[str, list[DeadLetter]] = {}
        held = piece = 0
        for letter in letters.read(self.live.stores.dlq, found):
            path = self._path_below(self._home_of(letter), letter)
            waiting.setdefault(letters.original_of(path), []).append(letter)
            held += max(letter.length, len(letter.raw))
            if held > RECORD_FILE_BYTES:
                yield from self._pieces(found, piece, waiting)
                waiting, held, piece = {}, 0, piece + 1
        yield from self._pieces(found, piece, waiting)

    def _home_of(self, letter: DeadLetter) -> Parts:
        """Return where a letter's file lies: at the source, or among the records of a replay."""
        ours = letter.uri.startswith(f"{self.records.stores.source.uri}/")
        return self.records if ours else self.files

    def _pieces(
        self, found: DeadLetterObject, piece: int, waiting: Mapping[str, Sequence[DeadLetter]]
    ) -> Iterator[Candidate]:
        for original, held in sorted(waiting.items()):
            data = b"".join(line + b"\n" for line in self._raw_lines(held))
            yield Candidate(
                letters.record_file(original, found.batch, piece),
                len(held),
                data,
                letters=len(held),
            )

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
                source,
                path,
                entry.size,
                [c.line for c in cut],
                parts.ingest.bounds.expansion,
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
