"""Writing of log entries: the files, and the marks of our own commits.

This module does not check whether an entry landed; `penguin_py.delta.table` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction

from blizzard_core.handover.outputs import newest_by_app
from penguin_py.delta import entry
from penguin_py.delta import log as deltalog
from penguin_py.delta.entry import RETRIES
from penguin_py.model import CommitPlan
from penguin_py.settings import Table

# The version of the ``txn`` that all Penguins share. It never rises and has no meaning.
COMMON_VERSION = 0


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of our commits: the txn version, id and the document for commitInfo."""

    txn_version: int
    commit_id: str
    document: Mapping[str, Any]


class LogWriter:
    """Writes one table's entries through delta-rs; ``options`` are delta-rs's for the store."""

    def __init__(self, table: Table, options: Mapping[str, str]) -> None:
        self._table = table
        self._options = options

    def write(self, handle: DeltaTable | None, plan: CommitPlan, marks: Marks, now: float) -> None:
        """Append to the table of ``handle``, or make it where there is none.

        Raises whatever delta-rs and the store do; the entry may have landed all the same.
        """
        properties = CommitProperties(
            app_transactions=self.transactions(handle, marks, now),
            custom_metadata={deltalog.OUR_KEY: dict(marks.document)},
            # A creation that another one came before would be tried again as version 1,
            # without a look at what version 0 has.
            max_commit_retries=RETRIES if handle is None or plan.replaces else None,
        )
        own_checkpoints = self._table.advanced.delta_checkpoint_interval is not None
        hooks = PostCommitHookProperties(
            not own_checkpoints, self._table.advanced.delta_log_cleanup
        )
        if handle is None:
            entry.create(self._table, self._options, plan, properties, hooks)
        else:
            entry.write(handle, plan, properties, now, hooks)

    def transactions(
        self, handle: DeltaTable | None, marks: Marks, now: float
    ) -> list[Transaction]:
        """Return our ``txn`` and others that make a concurrent Penguin's commit a conflict.

        delta-rs rebases commits of different applications over each other. Two Penguins with the
        same file must conflict, whatever their names: so all share one more ``txn``. The ``txn`` of
        sources and groups tell Blizzard its progress in the table, also after log clean-up.
        """
        found = [
            Transaction(self._table.app_id, marks.txn_version, int(now * 1000)),
            Transaction(deltalog.COMMON_APP_ID, COMMON_VERSION, int(now * 1000)),
        ]
        found += (
            Transaction(app, version, int(now * 1000))
            for app, version in newest_by_app(marks.document["output_ids"]).items()
            if handle is None or version > (handle.transaction_version(app) or -1)
        )
        return found


def remove(handle: DeltaTable, plan: CommitPlan, app_id: str, txn: int, now: float) -> None:
    """Write the plan's removes and the ``txn`` on top of the handle's version, or nothing."""
    marks = [Transaction(app_id, txn, int(now * 1000))]
    entry.write(
        handle, plan, CommitProperties(app_transactions=marks, max_commit_retries=RETRIES), now
    )
