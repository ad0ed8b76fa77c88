"""One log entry written by delta-rs: a new table's first, or the next one.

It holds the adds, our ``txn`` action, our commitInfo and, if the schema grows, the new schema.
Readers see all of it or nothing. A new table and its first files are one entry as well, so a
crash leaves no empty table behind.

This module does not check whether the entry landed; `penguin_py.delta.table` does.
"""

from __future__ import annotations

from collections.abc import Mapping

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
from deltalake.transaction import AddAction, create_table_with_add_actions

from penguin_py.model import Add, CommitPlan
from penguin_py.settings import Table


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
        [action_of(add) for add in plan.adds],
        mode="error",
        partition_by=list(plan.partition_columns),
        name=table.name,
        description=plan.description,
        storage_options=dict(options),
        commit_properties=properties,
        post_commithook_properties=hooks,
    )


def append(
    handle: DeltaTable,
    plan: CommitPlan,
    properties: CommitProperties,
    hooks: PostCommitHookProperties,
) -> None:
    """Add the plan's files, and what they change in the schema with them."""
    if plan.changed:
        _admit_types(handle, plan)
    handle.create_write_transaction(
        [action_of(add) for add in plan.adds],
        # Only "overwrite" takes a new schema in the same log entry. It overwrites the files that
        # the filter matches, which are none.
        mode="overwrite" if plan.changed else "append",
        schema=_evolved(handle.schema(), plan) if plan.changed else handle.schema(),
        partition_by=list(plan.partition_columns),
        partition_filters=_nothing(handle) if plan.changed else None,
        commit_properties=properties,
        post_commithook_properties=hooks,
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


def action_of(add: Add) -> AddAction:
    """Return delta-rs's ``add`` action for a file; it percent-encodes the path."""
    return AddAction(
        path=add.entry.path,
        size=add.entry.size,
        partition_values=dict(add.partition_values),
        modification_time=int(add.entry.modified * 1000),
        data_change=True,
        stats=add.stats,
    )
