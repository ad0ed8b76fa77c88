"""Lists of the files that are cleaned together, in the table's state folder.

``_blizzard/cleaning/{source id}/{uuidv7}.json`` is written before any of its files is touched, and
only if there is none. ``{uuidv7}.{files}.done.json`` has the outcomes. A list without them was cut
off: it is worked off again by the next owner. Together they are the memory of cleaned names: such a
name is not gone for the ledger, and `explain` says when it was cleaned.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.checkpoint.document import parsed
from blizzard_core.errors import Conflict, StateError
from blizzard_core.handover.published import first_name
from blizzard_core.storage.protocol import Storage, listed, read_each
from blizzard_py.cleaning.eligible import CleanableFile
from blizzard_py.state.state_paths import StatePaths

Outcome = Literal["cleaned", "gone", "changed", "archive_differs", "left"]
CLEANING_OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

# So long the name of a cleaned file is remembered: it is neither new nor late if it comes again.
REMEMBERED_SECS = 365 * 86_400.0

_DONE = ".done.json"
_REMEDY = "restore it as it was written: it says which source files were cleaned"


@dataclass(frozen=True, slots=True)
class CleaningList:
    """Files to clean. ``archive`` is where they are copied to first; empty: nowhere.

    With a ``tag`` they get it, and stay.
    """

    id: str
    at: float
    archive: str
    through: str
    files: tuple[CleanableFile, ...]
    tag: str = ""


@dataclass(frozen=True, slots=True)
class _Done:
    outcomes: dict[str, Outcome]


class CleaningLists:
    """The lists of one source."""

    def __init__(self, sink: Storage, source_id: str) -> None:
        self._sink = sink
        self._folder = StatePaths(source_id).cleaning

    def begin(self, made: CleaningList) -> None:
        """Write a list. A repeated call finds it there. Raises `StateError` if it is another."""
        path = f"{self._folder}/{made.id}.json"
        data = _encoded(asdict(made))
        try:
            self._sink.put_if(path, data, None)
        except Conflict as error:
            if self._sink.read(path) != data:
                raise StateError(f"{self._sink.uri}/{path}: is another list; {_REMEDY}") from error

    def end(self, made: CleaningList, outcomes: Mapping[str, Outcome]) -> None:
        """Write the outcomes of a list."""
        document = _encoded({"outcomes": dict(outcomes)})
        self._sink.put_atomic(f"{self._folder}/{made.id}.{len(outcomes)}{_DONE}", document)

    def unfinished(self) -> Sequence[CleaningList]:
        """Return the lists that a death has cut off, in order. Raises `StateError`."""
        names = self._names()
        ended = {_id_of(name) for name in names if name.endswith(_DONE)}
        begun = [name.removesuffix(".json") for name in names if not name.endswith(_DONE)]
        return [self._read(name) for name in begun if name not in ended]

    def outcomes(self) -> Iterator[tuple[CleaningList, Mapping[str, Outcome]]]:
        """Yield each list with its outcomes. Raises `StateError`.

        One that a death has cut off may wait for long, as long as the source is bare. What became
        of its files is unknown, so each counts as gone.
        """
        for list_id, ended in sorted(self._ended_as().items()):
            yield self._read(list_id), self._outcomes_in(list_id, ended)

    def find(self, path: str) -> tuple[CleaningList, Outcome] | None:
        """Return the last list with a file, and its outcome. Raises `StateError`.

        A file that was cleaned by a list is gone for the next one, if a death came between the two.
        """
        found: tuple[CleaningList, Outcome] | None = None
        for list_id, ended in sorted(self._ended_as().items(), reverse=True):
            outcome = self._outcomes_in(list_id, ended).get(path)
            if outcome == "cleaned" or (outcome is not None and found is None):
                found = self._read(list_id), outcome
            if outcome not in {None, "gone"}:
                break
        return found

    def count(self, since: float) -> int:
        """Return how many names the lists of this moment or later have. Costs the LIST."""
        return sum(int(name.split(".")[1]) for name in self._since(since) if name.endswith(_DONE))

    def names(self, since: float, concurrency: int) -> Iterator[list[str]]:
        """Yield the names in the lists of this moment or later. Raises `StateError`.

        Those of a list that a death has cut off may be gone as well.
        """
        paths = [
            f"{self._folder}/{name}" for name in self._since(since) if not name.endswith(_DONE)
        ]
        for where, raw in read_each(self._sink, paths, concurrency):
            found = decode_document(CleaningList, parsed(raw, where), where, _REMEDY)
            yield [file.path for file in found.files]

    def _since(self, since: float) -> list[str]:
        first = first_name(since)
        return [name for name in self._names() if name >= first]

    def _ended_as(self) -> Mapping[str, str | None]:
        """Return the ids of all lists, each with the name of its outcomes if it has ended."""
        found: dict[str, str | None] = {}
        for name in self._names():
            if name.endswith(_DONE):
                found[_id_of(name)] = name
            else:
                found.setdefault(_id_of(name), None)
        return found

    def _outcomes_in(self, list_id: str, ended: str | None) -> Mapping[str, Outcome]:
        if ended is not None:
            return self._outcomes_of(ended)
        return {file.path: "gone" for file in self._read(list_id).files}

    def _outcomes_of(self, name: str) -> Mapping[str, Outcome]:
        where = f"{self._sink.uri}/{self._folder}/{name}"
        document = parsed(self._sink.read(f"{self._folder}/{name}"), where)
        return decode_document(_Done, document, where, _REMEDY).outcomes

    def _names(self) -> list[str]:
        found = listed(self._sink, f"{self._folder}/", f"{self._folder}0")  # "0" follows "/"
        return [entry.path.rpartition("/")[2] for entry in found if entry.path.endswith(".json")]

    def _read(self, name: str) -> CleaningList:
        path = f"{self._folder}/{name}.json"
        where = f"{self._sink.uri}/{path}"
        return decode_document(CleaningList, parsed(self._sink.read(path), where), where, _REMEDY)


def _id_of(name: str) -> str:
    return name.partition(".")[0]


def _encoded(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")
