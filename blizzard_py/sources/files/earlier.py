"""Batches that have ingested given files, in whichever run of their source. Writes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from blizzard_core.storage.protocol import listed
from blizzard_py.dead_letters.reader import original_of, stem_of
from blizzard_py.job import FinishedFile
from blizzard_py.kernels.write.metadata import source_file_text
from blizzard_py.sources.earlier_batches import EarlierBatch
from blizzard_py.sources.parts import Parts
from blizzard_py.state.checkpoint_file import read_ledger, read_state
from blizzard_py.state.journal import BatchDocument, Journal
from blizzard_py.state.siblings import RECORDS_SUFFIX, backfills_of, replays_of


class EarlierBatches:
    """The journals of all runs of a source, as far as they tell of the files of ``paths``.

    What was read once is not read again, so one is made for the files of a whole command. All
    raise `StateError`, `StorageError`.
    """

    def __init__(self, parts: Parts, paths: Collection[str]) -> None:
        self._parts = parts
        self._sink = parts.stores.sink
        self._live_id = parts.letters_id
        self._stems = {stem_of(path) for path in paths}
        self._read: set[str] = set()
        self._found: dict[str, EarlierBatch] = {}

    def covers(self, paths: Iterable[str]) -> bool:
        """Return whether it was made for these, too."""
        return self._stems.issuperset(map(stem_of, paths))

    def look(self) -> list[EarlierBatch]:
        """The batches that ingested one of the files, as of now, each with all of its files.

        What came before an operator had the source start over counts no more.
        """
        live = read_state(self._sink, self._live_id)
        anew = 0.0 if live is None else live.anew_ts
        for source_id in self._runs():
            journal = Journal(self._sink, source_id, self._parts.concurrency)
            fresh = [batch for batch in journal.batches() if batch not in self._read]
            for document in journal.documents(fresh):
                self._read.add(document.batch)
                found = self._earlier(source_id, document)
                if document.finished_ts > anew and not self._stems.isdisjoint(found.files):
                    self._found[document.batch] = found
        return list(self._found.values())

    def cut(self, paths: Sequence[str], found: Collection[EarlierBatch]) -> list[str]:
        """Return the paths of which a run brought rows in a batch that no journal holds any more.

        Not those that were replaced in one that does: that dealt with all before it.
        """
        live = read_state(self._sink, self._live_id)
        anew = 0.0 if live is None else live.anew_ts
        replaced = {stem for batch in found if batch.replaces is not None for stem in batch.files}
        lost: set[str] = set()
        for source_id in self._runs():
            if source_id.endswith(RECORDS_SUFFIX):
                continue  # its files have other names
            ledger = read_ledger(self._sink, source_id, anew if "~" in source_id else 0.0)
            known = {stem for batch in found if batch.run == source_id for stem in batch.files}
            came = ledger.ingested_since(paths)
            lost |= {path for path in came if stem_of(path) not in known | replaced}
        return [path for path in paths if path in lost]

    def vouched(self, paths: Collection[str]) -> dict[str, tuple[str, ...]]:
        """The names that rows of these have in any case, if all rows name the file they are of.

        Also those of single records that a replay has ingested, whose files it leaves.
        """
        live = read_state(self._sink, self._live_id) if paths else None
        # A root that it never had names no row.
        former = () if live is None else live.former
        roots = (self._parts.stores.source.uri, *former)
        found = {path: [source_file_text(root, path) for root in roots] for path in paths}
        stems = {stem_of(path): path for path in paths}
        folder = f"{self._live_id}{RECORDS_SUFFIX}"
        dlq = self._parts.stores.dlq
        for entry in listed(dlq, f"{folder}/", f"{folder}0") if paths else ():
            path = stems.get(original_of(below := entry.path.removeprefix(f"{folder}/")))
            if path is not None:
                homes = (f"{dlq.uri}/{folder}", *former)
                found[path] += [source_file_text(home, below) for home in homes]
        return {path: tuple(names) for path, names in found.items()}

    def untold(self, paths: Iterable[str]) -> set[str]:
        """Return the paths of which no run says that it was done with them without a row."""
        ledgers = [
            read_ledger(self._sink, source_id)
            for source_id in self._runs()
            if not source_id.endswith(RECORDS_SUFFIX)
        ]
        return {
            path for path in paths if all(ledger.settled_as(path) != "none" for ledger in ledgers)
        }

    def _runs(self) -> tuple[str, ...]:
        backfills = backfills_of(self._sink, self._live_id)
        return (self._live_id, *backfills, *replays_of(self._live_id))

    def _earlier(self, source_id: str, document: BatchDocument) -> EarlierBatch:
        files = [file for file in document.files if file.outcome == "ingested"]
        of_records = source_id.endswith(RECORDS_SUFFIX)
        root = document.names_root
        names: dict[str, list[str]] = {}
        rows: dict[str, int] = {}
        for file in files:
            stem = original_of(file.path) if of_records else stem_of(file.path)
            names.setdefault(stem, []).extend(self._names(file, root, of_records=of_records))
            rows[stem] = rows.get(stem, 0) + file.rows
        return EarlierBatch(
            source_id,
            document.batch,
            {stem: tuple(found) for stem, found in names.items()},
            rows,
            bool(root),
            tuple(output.output_id for output in document.outputs),
            tuple((output.final, *output.earlier) for output in document.outputs),
            document.started_ts,
            None if document.group is None else frozenset(document.group.replaced.batches),
        )

    def _names(self, file: FinishedFile, root: str, *, of_records: bool) -> Iterator[str]:
        """As it was written, and as it would be where somebody vouches for it."""
        stores = self._parts.stores
        records = f"{stores.dlq.uri}/{self._live_id}{RECORDS_SUFFIX}"
        for each in sorted(
            {root.removesuffix("/"), records if of_records else stores.source.uri} - {""}
        ):
            yield source_file_text(each, file.path)
