"""Entries of a Delta log, written through delta-rs: files that join and leave, and new columns.

An entry that removes files lands on the planned version or not at all (`RETRIES`). Otherwise
delta-rs would rebase it over a compaction, which it considers harmless. It would then remove
inactive paths and add their rows again.

This module does not check whether an entry landed; `penguin_py.delta.table` does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    Field,
    PostCommitHookProperties,
    Schema,
    TableFeatures,
)
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from blizzard_core.table.schema_fit import SchemaMismatch
from penguin_py.model import Add, CommitPlan, Remove
from penguin_py.settings import Table

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


def create(
    table: Table,
    options: Mapping[str, str],
    plan: CommitPlan,
    properties: CommitProperties,
    hooks: PostCommitHookProperties,
) -> None:
    """Make the table with the plan's files; ``options`` are delta-rs's for the store."""
    create_table_with_add_actions(
        table.uri,
        Schema.from_arrow(plan.schema),
        [_action_of(add) for add in plan.adds],
        mode="error",
        partition_by=list(plan.partition_columns),
        name=table.name,
        description=plan.description,
        storage_options=dict(options),
        commit_properties=properties,
        post_commithook_properties=hooks,
    )


def write(
    handle: DeltaTable,
    plan: CommitPlan,
    properties: CommitProperties,
    now: float,
    hooks: PostCommitHookProperties | None = None,
) -> None:
    """Write what the plan removes and adds, and what that changes in the schema, in one entry."""
    changes: dict[str, Any] = {"mode": "append"}
    if plan.changed:
        _admit_types(handle, plan)
        # Only "overwrite" takes a new schema in the same log entry. It overwrites the files that
        # the filter matches, which are none.
        changes = {"mode": "overwrite", "partition_filters": _nothing(handle)}
    schema = handle.schema()
    handle.create_write_transaction(
        [*(_removal_of(each, now) for each in plan.removes), *map(_action_of, plan.adds)],
        schema=_evolved(schema, plan) if plan.changed else schema,
        partition_by=list(plan.partition_columns),
        commit_properties=properties,
        post_commithook_properties=hooks,
        **changes,
    )


def _evolved(before: Schema, plan: CommitPlan) -> Schema:
    """Return the table's schema with the plan's changes; other columns keep their metadata."""
    old = {field.name: field for field in before.fields}
    changed = Schema.from_arrow(pa.schema([plan.schema.field(name) for name in plan.changed]))
    new = {field.name: field for field in changed.fields}
    fields: list[Field] = [new.get(name) or old[name] for name in plan.schema.names]
    return Schema(fields)


def _nothing(handle: DeltaTable) -> list[tuple[str, str, list[str]]]:
    """Return a filter that is false for every file, whatever its values and statistics.

    On a column that is not nested, the only kind that delta-rs takes; the plan has
    seen to it that there is one.
    """
    flat = (field.name for field in handle.schema().fields if isinstance(field.type, PrimitiveType))
    return [(next(flat), "in", [])]


def _admit_types(handle: DeltaTable, plan: CommitPlan) -> None:
    """Raise the protocol if a new column needs it, and only then.

    This is an entry of its own, and one that no reader sees a difference by.
    """
    features = handle.protocol().reader_features or []
    if "timestampNtz" not in features and any(
        _has_plain_timestamp(plan.schema.field(name).type) for name in plan.changed
    ):
        handle.alter.add_feature(
            TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True
        )


def _has_plain_timestamp(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    if pa.types.is_nested(kind):
        return any(_has_plain_timestamp(kind.field(i).type) for i in range(kind.num_fields))
    return False


def _action_of(add: Add) -> AddAction:
    """Return delta-rs's ``add`` action for a file; it percent-encodes the path."""
    return AddAction(
        path=add.entry.path,
        size=add.entry.size,
        partition_values=dict(add.partition_values),
        modification_time=int(add.entry.modified * 1000),
        data_change=True,
        stats=add.stats,
    )


def _removal_of(remove: Remove, now: float) -> RemoveAction:
    return RemoveAction(
        remove.path, True, int(now * 1000), remove.size, dict(remove.partition_values)
    )


def removal_path(spelled: str) -> str:
    """Return a logged path as a ``remove`` takes it. Raises `SchemaMismatch` if none can.

    delta-rs encodes paths in its own way, and readers go by the spelling: a ``remove`` of another
    one would remove nothing.
    """
    if _ABSOLUTE.match(spelled) or quote(unquote(spelled), safe=_PLAIN) != spelled:
        raise SchemaMismatch(
            f"{spelled} is a path in the log that Penguin cannot write into a remove{REWRITE_ALL}"
        )
    return unquote(spelled)
