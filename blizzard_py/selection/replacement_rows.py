"""Rows of files that a request replaces: their place, and reasons against a replacement.

Reads only. A replacement that would not be exact is refused here, before anything of it is queued;
`blizzard_py.sources.earlier_batches` finds the earlier rows.

A file of single records is not ingested after its whole file was replaced: the file has the
records, or was corrected without them. The journal shows it for the last thirty days, and only for
sources that have replaced something. Of older letters the ledger knows whether the file was ever
replaced, but not when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from blizzard_core.handover.groups import SOURCE_FILE_COLUMN
from blizzard_core.storage.protocol import order_key
from blizzard_core.table.committed import removed
from blizzard_py.ingest.request_acceptance import RequestRefused
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.earlier_batches import Earlier, EarlierBatch, Lacking, earlier_of
from blizzard_py.sources.files.earlier import EarlierBatches
from blizzard_py.state.journal import Journal
from blizzard_py.state.ledger import Ledger
from blizzard_py.state.record_names import letter_batch_of, stem_of
from blizzard_py.state.source_state import SourceState

# So many files may have rows in the same outputs: they are one batch and one commit.
TOGETHER_AT_MOST = 2000
# How many files a refusal names.
_EXAMPLES = 5
_CHOOSE = "choose partitions or files with `blizzard backfill --replace`, --from and --to"


@dataclass(frozen=True, slots=True)
class Replaceable:
    """Decides which earlier rows files replace, for the source of ``parts``.

    ``batches`` have the places of rows. With ``insist`` an operator declares that all rows name
    their file.
    """

    parts: SourceContext
    batches: EarlierBatches
    insist: bool = False

    def earlier(self, paths: Sequence[str], unknown: Sequence[str]) -> dict[str, Earlier]:
        """Return what each file was ingested as. Nobody knows it of those that are ``unknown``.

        Raises `RequestRefused` if any of it cannot be replaced, `StateError`, `StorageError`.
        """
        if self.insist:
            self._check_insisted()
        batches = self.batches
        found = batches.look()
        if not self.insist:
            self._check_known(unknown, batches.cut(paths, found))
        earlier, lacking = earlier_of(paths, found, paths if self.insist else ())
        self._check_named(earlier)
        self._require_complete_outputs(earlier, lacking)
        return earlier

    def _check_insisted(self) -> None:
        ingest = self.parts.ingest
        if SOURCE_FILE_COLUMN not in ingest.added_columns.metadata or ingest.sql.deduplicate_by:
            raise RequestRefused(
                f"{self.parts.name}: --assume-named says that each row names the one file that it"
                f" is of, so {SOURCE_FILE_COLUMN} has to be among sink.metadata_columns, and there"
                " is to be no deduplicate_by"
            )

    def _check_known(self, unknown: Sequence[str], cut: Sequence[str]) -> None:
        """Raise `RequestRefused` for files whose rows of before nobody can tell."""
        for paths, why in (
            (unknown, "were passed before there was a ledger, or their batch was lost"),
            (cut, "were ingested in batches that the journal no longer holds (it keeps 30 days)"),
        ):
            if paths:
                raise RequestRefused(
                    f"{self.parts.name}: {len(paths):,} of the files {why}, so nobody knows where"
                    f" their rows are: {_named(paths)}. If all their rows are in the table and name"
                    f" their file in {SOURCE_FILE_COLUMN} (look there), give --assume-named; else"
                    " delete the rows by hand and ingest the files under new names"
                )

    def _check_named(self, earlier: Mapping[str, Earlier]) -> None:
        """Raise `RequestRefused` where rows named their file and new ones would not.

        The table has the column then, and takes no group that lacks it.
        """
        if SOURCE_FILE_COLUMN in self.parts.ingest.added_columns.metadata:
            return
        named = [path for path, each in earlier.items() if any(b.named for b in each.batches)]
        if named:
            raise RequestRefused(
                f"{self.parts.name}: rows of {len(named):,} of the files name their file, so the"
                f" table has {SOURCE_FILE_COLUMN}, and new rows would lack it: {_named(named)}."
                f" Have {SOURCE_FILE_COLUMN} among sink.metadata_columns again"
            )

    def _require_complete_outputs(self, earlier: Mapping[str, Earlier], lacking: Lacking) -> None:
        """Raise `RequestRefused` where outputs cannot go as a whole."""
        if lacking.files:
            names = sorted(lacking.files, key=order_key)
            gone = [path for path in names[:100] if self.parts.stores.source.stat(path) is None]
            more = f" Missing at the source, so restore them first: {_named(gone)}." * bool(gone)
            raise RequestRefused(
                f"{self.parts.name}: rows of {len(names):,} other files lie in the same outputs as"
                f" those of the chosen ones, and rows do not name their file; these would have to"
                f" come along: {_named(names)} ({lacking.files[names[0]]} was ingested with the"
                f" first).{more} {_CHOOSE} that take them in. With {SOURCE_FILE_COLUMN} among"
                " sink.metadata_columns what is ingested from then on needs no company"
            )
        groups: dict[str, int] = {}
        for each in earlier.values():
            if each.together:
                groups[each.together] = groups.get(each.together, 0) + 1
        largest = max(groups.values(), default=0)
        if largest > TOGETHER_AT_MOST:
            raise RequestRefused(
                f"{self.parts.name}: {largest:,} files have rows in the same outputs, and go in one"
                f" commit or not at all; {TOGETHER_AT_MOST:,} can. Delete their rows by hand and"
                " use `blizzard backfill --again`"
            )
        self._check_there(
            {b.batch: b for each in earlier.values() if each.together for b in each.batches}
        )

    def _check_there(self, batches: Mapping[str, EarlierBatch]) -> None:
        """Raise `RequestRefused` for outputs whose rows are in other files of the table by now."""
        wanted = {path for batch in batches.values() for paths in batch.paths for path in paths}
        if not wanted:
            return
        since = min(batch.started_ts for batch in batches.values())
        gone, whole = removed(self.parts.stores.sink, wanted, since, self.parts.concurrency)
        if gone or not whole:
            what = (
                f"the table let {min(gone)} go (compacted, or rows of it were deleted)"
                if gone
                else "the table's log was cleaned up, so their fate is unknown"
            )
            raise RequestRefused(
                f"{self.parts.name}: rows of the files do not name their file, so their outputs"
                f" would have to go as a whole, but {what}. Delete the rows by hand and use"
                " `blizzard backfill --again`"
            )


def _named(paths: Sequence[str]) -> str:
    more = len(paths) - _EXAMPLES
    return ", ".join(paths[:_EXAMPLES]) + (f" and {more:,} more" if more > 0 else "")


_WHY = "its file was replaced as a whole since"
_UNSURE = (
    "its file was replaced as a whole, perhaps since: the letter is older than the journal. Look"
    " into the table, and give it to `blizzard replay --assume-missing` if the record is not there"
)


def find_unsure(parts: SourceContext, ledger: Ledger, names: Iterable[str]) -> dict[str, str]:
    """Return the files of records that may have been replaced since, with the reason.

    Their letters are older than the journal. Raises `StateError`, `StorageError`.
    """
    batches = {name: batch for name in names if (batch := letter_batch_of(name)) is not None}
    found = [name for name in batches if ledger.was_replaced(name)]
    if not found:
        return {}
    journal = Journal(parts.stores.sink, parts.id, parts.concurrency)
    first = min(journal.batches(), default="~")
    return {name: _UNSURE for name in found if batches[name] < first}


def find_replaced(parts: SourceContext, state: SourceState, names: Iterable[str]) -> dict[str, str]:
    """Return the replaced ones of the files of records, with the reason.

    Batch names of a source increase, so no batch before the letter's own matters. Raises
    `StateError`, `StorageError`.
    """
    batches = {name: batch for name in names if (batch := letter_batch_of(name)) is not None}
    if not (batches and parts.has_files and state.ids.group_seq):
        return {}
    # Stems of files with the batches whose rows, and letters, were replaced; and of those of which
    # an operator said that all rows go the last batch that took them out.
    gone: dict[str, set[str]] = {}
    ever: dict[str, str] = {}
    journal = Journal(parts.stores.sink, parts.id, parts.concurrency)
    for document in journal.documents(journal.batches_from(min(batches.values()))):
        if document.group is None:
            continue
        for file in document.files:
            if file.outcome == "ingested":
                stem = stem_of(file.path)
                gone.setdefault(stem, set()).update(document.group.replaced.batches)
                if document.group.replaced.ever:
                    ever[stem] = max(document.batch, ever.get(stem, ""))
    return {
        name: _WHY
        for name, batch in batches.items()
        if batch in gone.get(stem := stem_of(name), ()) or batch < ever.get(stem, "")
    }
