"""A replacing log entry: files leave and join in one commit, or not at all.

It lands on the planned version or not at all. Otherwise delta-rs would rebase it over a
compaction, which it considers harmless. It would then remove inactive paths and add their rows
again.

This module does not check whether the entry landed; `penguin_py.delta.table` does.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.transaction import RemoveAction

from blizzard_core.table.schema_fit import SchemaMismatch
from penguin_py.delta.entry import action_of
from penguin_py.model import CommitPlan, Remove

# What takes files with odd paths out of a table.
REWRITE_ALL = (
    "; run OPTIMIZE … ZORDER BY with a column, which rewrites all files (a plain OPTIMIZE skips"
    " single and large ones)"
)
# No other version than the next.
RETRIES = 0
# Characters that delta-rs leaves in a path; it percent-encodes all others.
_PLAIN = "/!$&'()+,-.:;=@_~"
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/|/")


def is_removable(spelled: str) -> bool:
    """Return whether a path of the log would be spelled the same in a ``remove`` of ours.

    delta-rs encodes paths in its own way, and readers go by the spelling: a ``remove`` of
    another one would remove nothing.
    """
    return _ABSOLUTE.match(spelled) is None and quote(unquote(spelled), safe=_PLAIN) == spelled


def removal_path(spelled: str) -> str:
    """Return a logged path as a ``remove`` takes it. Raises `SchemaMismatch` if none can."""
    if not is_removable(spelled):
        raise SchemaMismatch(
            f"{spelled} is a path in the log that Penguin cannot write into a remove{REWRITE_ALL}"
        )
    return unquote(spelled)


def replace(
    handle: DeltaTable,
    plan: CommitPlan,
    properties: CommitProperties,
    hooks: PostCommitHookProperties,
    now: float,
) -> None:
    """Write the plan's removes and adds on top of the handle's version."""
    handle.create_write_transaction(
        [*(_removal(remove, now) for remove in plan.removes), *map(action_of, plan.adds)],
        mode="append",
        schema=handle.schema(),
        partition_by=list(plan.partition_columns),
        commit_properties=properties,
        post_commithook_properties=hooks,
    )


def remove(handle: DeltaTable, plan: CommitPlan, app_id: str, txn: int, now: float) -> None:
    """Write the plan's removes, and a ``txn``, on top of the handle's version."""
    marks = [Transaction(app_id, txn, int(now * 1000))]
    handle.create_write_transaction(
        [_removal(each, now) for each in plan.removes],
        mode="append",
        schema=handle.schema(),
        partition_by=list(plan.partition_columns),
        commit_properties=CommitProperties(app_transactions=marks, max_commit_retries=RETRIES),
    )


def _removal(remove: Remove, now: float) -> RemoveAction:
    return RemoveAction(
        remove.path, True, int(now * 1000), remove.size, dict(remove.partition_values)
    )
