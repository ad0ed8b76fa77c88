"""Batches that have ingested given files of a source. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from blizzard_core.errors import Cancelled
from blizzard_core.storage.protocol import listed
from blizzard_core.text import source_file_text
from blizzard_py.job import FinishedFile
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.earlier_batches import EarlierBatch
from blizzard_py.sources.records import RecordFiles
from blizzard_py.state.checkpoint_file import read_ledger, read_state
from blizzard_py.state.journal import BatchDocument, Journal
from blizzard_py.state.record_names import RECORDS, is_of_records, is_short, stem_of


def _always() -> bool:
    return True


class EarlierBatches:
    """The journal of a source, as far as it tells of the files of ``paths``.

    What was read once is not read again, so one is made for the files of a whole request. All
    raise `StateError`, `StorageError`.
    """

    def __init__(self, parts: SourceContext, paths: Collection[str]) -> None:
        self._parts = parts
        self._sink = parts.stores.sink
        self._records = RecordFiles(parts)
        self._stems = {stem_of(path) for path in paths}
        self._read: set[str] = set()
        self._found: dict[str, EarlierBatch] = {}

    def covers(self, paths: Iterable[str]) -> bool:
        """Return whether it was made for these, too."""
        return self._stems.issuperset(map(stem_of, paths))

    def look(self, is_wanted: Callable[[], bool] = _always) -> list[EarlierBatch]:
        """Return the batches that ingested one of the files so far, each with all of its files.

        Batches from before a reset by an operator do not count. Raises `Cancelled` when
        ``is_wanted`` returns False.
        """
        live = read_state(self._sink, self._parts.letters_id)
        reset_ts = 0.0 if live is None else live.position.reset_ts
        journal = Journal(self._sink, self._parts.letters_id, self._parts.concurrency)
        fresh = [batch for batch in journal.batches() if batch not in self._read]
        for document in journal.documents(fresh):
            if not is_wanted():
                raise Cancelled(f"{self._parts.name}: nobody waits for its earlier batches")
            self._read.add(document.batch)
            found = self._earlier(document)
            if document.finished_ts > reset_ts and not self._stems.isdisjoint(found.files):
                self._found[document.batch] = found
        return list(self._found.values())

    def cut(self, paths: Sequence[str], found: Collection[EarlierBatch]) -> list[str]:
        """Return the paths whose rows came in a batch that the journal no longer holds.

        Not those that were replaced in one that it does: that dealt with all before it. A batch
        that was lost or given up is in no journal, nor is one that brought records of the file.
        """
        ledger = read_ledger(self._sink, self._parts.letters_id)
        known = {stem for batch in found for stem in batch.files.keys() - batch.of_records}
        lost = set(map(stem_of, ledger.doubtful([*paths, *self._record_names()])))
        return [
            path
            for path in paths
            if (stem := stem_of(path)) in lost
            or (ledger.outcome_of(path) == "rows" and stem not in known)
        ]

    def _record_names(self) -> Iterator[str]:
        """Yield the state's names of all files of single records."""
        folder = self._records.folder
        for entry in listed(self._parts.stores.dlq, f"{folder}/", f"{folder}0"):
            yield self._records.name(entry.path.removeprefix(f"{folder}/"))

    def names_of_rows(self, paths: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Return the names that rows of these files carry, if every row names its source file.

        This includes names of single records that a replay ingested; their files stay.
        """
        live = read_state(self._sink, self._parts.letters_id) if paths else None
        # A root that it never had names no row.
        former = () if live is None else live.former
        roots = (self._parts.stores.source.uri, *former)
        found = {path: [source_file_text(root, path) for root in roots] for path in paths}
        stems = {stem_of(path): path for path in paths}
        for name in self._record_names() if paths else ():
            path, below = stems.get(stem_of(name)), name.removeprefix(RECORDS)
            if path is not None:
                homes = (self._records.uri, *former)
                found[path] += [source_file_text(home, below) for home in homes]
        return {path: tuple(names) for path, names in found.items()}

    def untold(self, paths: Iterable[str]) -> set[str]:
        """Return the paths of which nothing says that they were done without a row."""
        ledger = read_ledger(self._sink, self._parts.letters_id)
        return {path for path in paths if ledger.outcome_of(path) != "none"}

    def _earlier(self, document: BatchDocument) -> EarlierBatch:
        files = [file for file in document.files if file.outcome == "ingested"]
        root = document.names_root
        names: dict[str, list[str]] = {}
        rows: dict[str, int] = {}
        for file in files:
            stem = stem_of(file.path)
            names.setdefault(stem, []).extend(self._names(file, root))
            rows[stem] = rows.get(stem, 0) + file.rows
        whole = {stem_of(f.path): f.path for f in files if not is_of_records(f.path)}
        return EarlierBatch(
            document.batch,
            {stem: tuple(found) for stem, found in names.items()},
            rows,
            bool(root),
            tuple(output.output_id for output in document.outputs),
            tuple((output.final, *output.earlier) for output in document.outputs),
            document.started_ts,
            None if document.group is None else frozenset(document.group.replaced.batches),
            frozenset(names).difference(whole),
            {stem: path for stem, path in whole.items() if is_short(stem)},
        )

    def _names(self, file: FinishedFile, root: str) -> Iterator[str]:
        """As it was written, and as it would be where somebody vouches for it."""
        of_records = is_of_records(file.path)
        home = self._records.uri if of_records else self._parts.stores.source.uri
        for each in sorted({root.removesuffix("/"), home} - {""}):
            yield source_file_text(each, file.path.removeprefix(RECORDS))
