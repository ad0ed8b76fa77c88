"""Files of single records whose whole file was replaced after their letter was written.

They are not ingested then: the file has the records, or was corrected without them. The journal
shows it for the last thirty days, and only for sources that have replaced something. Of older
letters the ledger knows whether the file was ever replaced, but not when.
"""

from __future__ import annotations

from collections.abc import Iterable

from blizzard_py.sources.context import SourceContext
from blizzard_py.state.journal import Journal
from blizzard_py.state.ledger import Ledger
from blizzard_py.state.record_names import letter_batch_of, stem_of
from blizzard_py.state.source_state import SourceState

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
