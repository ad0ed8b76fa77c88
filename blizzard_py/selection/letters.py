"""Files of dead letters: the failed files, or their records as new files.

A letter of whole files names them. Single records become files of these records below
``{dlq}/{source id}~records/``, in the folders of their source files, so that rows go to the same
partition of the table. Their names follow from the letter: written again they are the same.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from blizzard_core.errors import BlizzardError, NotFound
from blizzard_core.limits import LINE_BYTES
from blizzard_core.settings.formats import LetterOptions
from blizzard_core.storage.protocol import Entry
from blizzard_py.dead_letters import reader
from blizzard_py.dead_letters.reader import DeadLetter, DeadLetterObject, UnreadableDeadLetter
from blizzard_py.formats.letters.header import FROM_SOURCE, unread_column
from blizzard_py.formats.letters.refused import refusal, refused_content
from blizzard_py.formats.names import format_of
from blizzard_py.job import ROWS_UNKNOWN, JobFile, RowSchema
from blizzard_py.lines.failure import FileFailed
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.lines import FoundRecord, read_records
from blizzard_py.sources.records import RecordFiles
from blizzard_py.state.record_names import (
    is_of_records,
    is_short,
    record_file,
    stem_of,
    stem_prefix,
)

if TYPE_CHECKING:  # it brings Arrow along
    from blizzard_py.formats.protocol import Format

# How much of records may wait in memory for being written, and how large their files get.
RECORD_FILE_BYTES = 64 << 20
# What a letter has beside its record and header.
_LETTER_BYTES = 1 << 10
_FILE_ITSELF = "with --replace, which takes their whole file"


class LetterRefused(BlizzardError):
    """A letter cannot be replayed as it is; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that a request names; ``entry`` is None of one that is not there.

    For a file of a dead ``letter``: it has ``failed`` without a row, or the table
    ``has_earlier_rows`` of it. Neither holds for a file whose rows may be in the table. With a
    ``problem`` nothing of the dead letter can be replayed, and ``path`` is the letter's own.
    """

    path: str
    entry: Entry | None
    letter: str = ""
    failed: bool = False
    has_earlier_rows: bool = False
    problem: str = ""


def original(parts: SourceContext, letter: DeadLetter) -> DeadLetter:
    """Return the letter with its source file, also where its record was written anew.

    The line in the source file is then unknown.
    """
    name = RecordFiles(parts).path_of(letter.uri)
    if name is None:
        return letter
    stem = stem_prefix(stem_of(name))
    return replace(letter, uri=f"{parts.stores.source.uri}/{stem}", line=0)


@dataclass(frozen=True, slots=True)
class LetterFiles:
    """Files of one source's dead letters.

    ``closed`` letters have no files. With ``from_source`` every record is read from its file
    again; without it, only a record that its letter had no room for. With ``whole_files`` a record
    stands for its whole file.
    """

    parts: SourceContext
    closed: Container[str] = ()
    from_source: bool = False
    whole_files: bool = False

    def files_of(self, letter_id: str) -> list[Candidate]:
        """Return the files of an object, each once; none of one that was closed or is gone.

        Writes the files of its records. Raises `StorageError`, `StateError`.
        """
        if letter_id in self.closed:
            return []  # its writer has brought it back when it woke up
        try:
            return list(self._found(reader.object_of(self.parts.letters_id, letter_id)))
        except NotFound:
            return []
        except (LetterRefused, UnreadableDeadLetter) as error:
            return [Candidate(letter_id, None, letter_id, problem=str(error))]

    def _found(self, found: DeadLetterObject) -> Iterator[Candidate]:
        if found.kind == "records" and not self.whole_files:
            yield from self._record_files(found)
            return
        seen = set()
        for letter in reader.read(self.parts.stores.dlq, found):
            path = self._path_of(letter)
            if self.whole_files and is_of_records(path):
                path = stem_of(path)
                if is_short(path):
                    raise LetterRefused(
                        f"{letter.uri} has records of a file of which its name has only a digest;"
                        " give the file itself to `blizzard backfill --replace`"
                    )
            if path not in seen:
                seen.add(path)
                failed = found.kind == "files" and not letter.kept and letter.stage != ROWS_UNKNOWN
                yield Candidate(
                    path, self._stat(path), found.id, failed=failed, has_earlier_rows=letter.kept
                )

    @property
    def _records(self) -> RecordFiles:
        return RecordFiles(self.parts)

    def _stat(self, path: str) -> Entry | None:
        if is_of_records(path):
            return self._records.stat(path)
        return self.parts.stores.source.stat(path)  # None for a query, whose store has no files

    def _path_of(self, letter: DeadLetter) -> str:
        """Return the name of a letter's file. Raises `LetterRefused`."""
        path = self._records.path_of(letter.uri)
        source = f"{self.parts.stores.source.uri}/"
        if path is None and letter.uri.startswith(source):
            path = letter.uri.removeprefix(source)
        if path is None:
            raise LetterRefused(
                f"{letter.uri} is not below {source}; if the source's files were moved from there,"
                " run `blizzard rename` with --moved-from again, which rewrites letters; else bring"
                " the file to the source under a new name and move the letter away"
            )
        if not {".", ".."}.isdisjoint(path.split("/")):
            raise LetterRefused(
                f"{letter.uri} leads elsewhere by its dots, so no daemon of ours wrote this letter;"
                " look who did, and remove it"
            )
        return path

    def _record_files(self, found: DeadLetterObject) -> Iterator[Candidate]:
        """Yield the records of an object as files, one per source file, in pieces."""
        waiting: dict[str, list[DeadLetter]] = {}
        held = count = piece = 0
        most = self.parts.ingest.tolerance.limits.letters
        for letter in reader.read(self.parts.stores.dlq, found):
            size = self._bytes_of(letter)
            if count >= most or (count and held + size > RECORD_FILE_BYTES):
                piece += yield from self._pieces(found, piece, waiting)
                waiting, held, count = {}, 0, 0
            waiting.setdefault(stem_of(self._path_of(letter)), []).append(letter)
            held, count = held + size, count + 1
        yield from self._pieces(found, piece, waiting)

    def _bytes_of(self, letter: DeadLetter) -> int:
        """Return what a letter takes while it waits, and about what it takes if it comes again.

        All letters of a file must have room then.
        """
        is_read_again = letter.truncated or self.from_source
        length = min(letter.length, LINE_BYTES) if is_read_again else 0
        return max(length, _LETTER_BYTES + 2 * (len(letter.raw) + len(letter.header)))

    def _pieces(
        self, found: DeadLetterObject, piece: int, waiting: Mapping[str, Sequence[DeadLetter]]
    ) -> Generator[Candidate, None, int]:
        """Write the files, and return by how much their numbers go on from ``piece``."""
        used = 0
        for stem, held in sorted(waiting.items()):
            contents = self._contents(self._complete(held))
            used = max(used, len(contents))
            for number, data in enumerate(contents, piece):
                path = self._records.name(record_file(stem, found.batch, number))
                yield Candidate(path, self._records.put(path, data, self.parts.clock()), found.id)
        return used

    def _contents(self, letters: Sequence[DeadLetter]) -> list[bytes]:
        """Return the contents of a file's letters: one or more for each header.

        All that no replay can read are together, so that they cost only themselves.
        """
        form = self._format.replay_settings()
        refused: list[tuple[DeadLetter, str]] = []
        groups: dict[bytes, list[DeadLetter]] = {}
        for letter in letters:
            why = ""
            if isinstance(form, LetterOptions):
                why = refusal(letter, of_table=form.of_table)
            if why:
                refused.append((letter, why))
            else:
                groups.setdefault(letter.header, []).append(letter)
        for group in groups.values():
            self._check_columns(group[0])
        contents = [
            content for group in groups.values() for content in self._format.replay_contents(group)
        ]
        return [*contents, refused_content(refused)] if refused else contents

    @property
    def _format(self) -> Format:
        return format_of(self.parts.ingest.format)

    def _complete(self, held: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Return letters with their whole records, from their file if they are cut."""
        if self.from_source:
            self._check_source(held[0])
        if not self.parts.has_files:
            return list(held)  # a row is not found again; one that is cut is refused alone
        cut: dict[str, list[DeadLetter]] = {}
        for letter in held:
            if letter.truncated or self.from_source or (self._needs_header and not letter.header):
                cut.setdefault(letter.uri, []).append(letter)
        again = {uri: self._from_file(uri, found) for uri, found in cut.items()}
        whole = []
        for letter in held:
            record = again.get(letter.uri, {}).get(letter.line)
            if record is None:
                whole.append(letter)
            else:
                raw, header = record.raw, record.header
                whole.append(replace(letter, raw=raw, header=header, truncated=False))
        return whole

    def _check_source(self, letter: DeadLetter) -> None:
        """Raise `LetterRefused` for a letter whose record cannot be found in its source."""
        if not self.parts.has_files:
            raise LetterRefused(
                f"{letter.uri}: rows of a table or an API cannot be found again; replay them"
                " without --from-source"
            )
        if is_of_records(self._path_of(letter)):
            raise LetterRefused(
                f"{letter.uri}: its records failed in a replay before, so their lines in the source"
                f" file are unknown; replay them without --from-source, or {_FILE_ITSELF}"
            )

    @property
    def _needs_header(self) -> bool:
        form = self._format.replay_settings()
        return isinstance(form, LetterOptions) and not form.of_table

    def _check_columns(self, letter: DeadLetter) -> None:
        """Raise `LetterRefused` if letters like this one lack a column that their file has."""
        schema = self.parts.ingest.schema.as_read
        if self._needs_header and (lacking := unread_column(letter.header, schema)):
            is_again = is_of_records(self._path_of(letter))
            then = f"replay them {_FILE_ITSELF}" if is_again else FROM_SOURCE
            raise LetterRefused(f"{letter.uri}: {lacking}; {then}")

    def _from_file(self, uri: str, cut: Sequence[DeadLetter]) -> dict[int, FoundRecord]:
        path = self._path_of(cut[0])
        entry = self._stat(path)
        if entry is None:
            raise LetterRefused(
                f"{uri} is gone and {len(cut)} of its lines have to be read from it; bring the"
                " file back under this name"
            )
        store, place, form = self.parts.stores.source, path, self.parts.ingest.format
        if is_of_records(path):
            store, place = self.parts.stores.dlq, self._records.place(path)
            form = self._format.replay_settings()
        numbers = [each.line for each in cut]
        most = self.parts.ingest.tolerance.limits.expansion
        schema = RowSchema(()) if self.from_source else self.parts.ingest.schema
        try:
            lines = read_records(store, JobFile(place, entry.size), numbers, most, form, schema)
        except FileFailed as error:
            raise LetterRefused(f"{uri} cannot be read again: {error.reason}") from error
        except NotFound as error:
            raise LetterRefused(f"{uri} is missing; restore it under this name") from error
        except ValueError as error:
            raise LetterRefused(f"{uri}: {error}") from error
        for letter in cut:
            line = lines.get(letter.line)
            if line is None:
                raise LetterRefused(f"{uri} has no line {letter.line} any more; restore it")
            # What was cut as text may end in the middle of a character.
            if not self.from_source and not line.raw.startswith(letter.raw[:-4]):
                raise LetterRefused(
                    f"line {letter.line} of {uri} has changed since its letter was written;"
                    " give --from-source to take what is there now"
                )
        return lines
