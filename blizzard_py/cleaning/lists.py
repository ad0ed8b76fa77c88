"""Lists of the files that are cleaned together, in the table's state folder.

``_blizzard/cleaning/{source id}/{uuidv7}.json`` is written before any of its files is touched, and
only if there is none. ``….done.json`` has the outcomes. A list without them was cut off: it is
worked off again by the next owner. Together they are the memory of cleaned names: such a name is
not gone for the ledger, and `explain` says when it was cleaned.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.checkpoint.document import parsed
from blizzard_core.errors import Conflict, StateError
from blizzard_core.storage.protocol import Storage, listed
from blizzard_py.cleaning.eligible import Candidate
from blizzard_py.state.state_paths import STATE_FOLDER

Outcome = Literal["cleaned", "gone", "changed", "archive_differs", "left"]

_DONE = ".done.json"
_REMEDY = "restore it as it was written: it says which source files were cleaned"


@dataclass(frozen=True, slots=True)
class CleaningList:
    """Files to clean. ``archive`` is where they are copied to first; empty: nowhere."""

    id: str
    at: float
    archive: str
    through: str
    files: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class _Done:
    outcomes: dict[str, Outcome]


class CleaningLists:
    """The lists of one source."""

    def __init__(self, sink: Storage, source_id: str) -> None:
        self._sink = sink
        self._folder = f"{STATE_FOLDER}/cleaning/{source_id}"

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
        self._sink.put_atomic(f"{self._folder}/{made.id}{_DONE}", document)

    def unfinished(self) -> Sequence[CleaningList]:
        """Return the lists that a death has cut off, in order. Raises `StateError`."""
        names = self._names()
        ended = {name.removesuffix(_DONE) for name in names if name.endswith(_DONE)}
        begun = [name.removesuffix(".json") for name in names if not name.endswith(_DONE)]
        return [self._read(name) for name in begun if name not in ended]

    def outcomes(self) -> Iterator[tuple[CleaningList, Mapping[str, Outcome]]]:
        """Yield each list that has ended, with its outcomes. Raises `StateError`."""
        for name in self._names():
            if name.endswith(_DONE):
                stem = name.removesuffix(_DONE)
                where = f"{self._sink.uri}/{self._folder}/{name}"
                document = parsed(self._sink.read(f"{self._folder}/{name}"), where)
                yield self._read(stem), decode_document(_Done, document, where, _REMEDY).outcomes

    def _names(self) -> list[str]:
        found = listed(self._sink, f"{self._folder}/", f"{self._folder}0")  # "0" follows "/"
        return [entry.path.rpartition("/")[2] for entry in found if entry.path.endswith(".json")]

    def _read(self, name: str) -> CleaningList:
        path = f"{self._folder}/{name}.json"
        where = f"{self._sink.uri}/{path}"
        return decode_document(CleaningList, parsed(self._sink.read(path), where), where, _REMEDY)


def _encoded(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")
