"""The contract of Delta tables that Penguin commits to, by their log's declarations. Pure.

Promise: a table that passes accepts our commits, and they break none of its rules. An unknown or
unsuitable protocol version, feature, property or column is rejected by name, with a remedy;
nothing unknown counts as harmless. The check runs whenever the table's metadata may have changed,
before anything is planned.

A rule over the values of rows (a constraint, a generated column) is rejected, since rows are never
read here. A feature that merely *allows* something is accepted while nothing uses it.

Features: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#table-features
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

READER_VERSIONS = (1, 2, 3)
# 6 brings identity columns, which delta-rs does not write.
WRITER_VERSIONS = (1, 2, 3, 4, 5, 7)


@dataclass(frozen=True, slots=True)
class Feature:
    """A table feature: whether Penguin ``takes`` tables with it, and under which condition.

    ``why`` is the reason. ``remedy`` removes a rejected feature from a table.
    """

    takes: bool
    why: str
    remedy: str = ""


_NEEDS_NEW = "Spark cannot drop it: use another table"


def _drop(name: str) -> str:
    """Return the remedy for a writer feature: Delta drops it at once."""
    return f"run ALTER TABLE … DROP FEATURE {name}"


def _truncate(name: str) -> str:
    """Return the remedy for a feature that old versions need to be read.

    Without TRUNCATE HISTORY Delta keeps these, and adds ``checkpointProtection`` for it.
    """
    return (
        f"run ALTER TABLE … DROP FEATURE {name} TRUNCATE HISTORY; if it asks you to wait, run it"
        " again after 24 hours"
    )


_UNSUPPORTED = "delta-rs does not write to tables with it"

# Refused ones stand before those that they need: Delta drops them in this order alone.
# Which can be dropped, and how:
# https://docs.delta.io/delta-drop-feature/ and Delta's TableFeature.scala
FEATURES: Mapping[str, Feature] = {
    "appendOnly": Feature(True, "commits only append"),
    "invariants": Feature(True, "unless a column has one: rows are not checked"),
    "checkConstraints": Feature(True, "unless there is one: rows are not checked"),
    "generatedColumns": Feature(True, "unless there is one: rows are not computed"),
    "changeDataFeed": Feature(True, "appended files are their own change data"),
    "columnMapping": Feature(True, "unless the mode is set: files have their own names"),
    "deletionVectors": Feature(True, "appended files have none; others' count as they stand"),
    "timestampNtz": Feature(True, "added by Penguin itself where a column needs it"),
    "v2Checkpoint": Feature(True, "unless delta.checkpointPolicy is v2: no sidecars are written"),
    "variantType": Feature(True, "unless a column is one: files hold no variants"),
    "variantType-preview": Feature(True, "unless a column is one: files hold no variants"),
    "identityColumns": Feature(False, "values would have to be drawn from the log", _NEEDS_NEW),
    "allowColumnDefaults": Feature(False, "files would have to be filled up", _NEEDS_NEW),
    "icebergCompatV1": Feature(False, "files would have to be of Iceberg's form", _NEEDS_NEW),
    "icebergCompatV2": Feature(False, "files would have to be of Iceberg's form", _NEEDS_NEW),
    "icebergCompatV3": Feature(False, "files would have to be of Iceberg's form", _NEEDS_NEW),
    "catalogManaged": Feature(False, "commits go through a catalog", _NEEDS_NEW),
    "catalogOwned-preview": Feature(False, "commits go through a catalog", _NEEDS_NEW),
    "coordinatedCommits-preview": Feature(
        False, "commits go through a coordinator", _drop("'coordinatedCommits-preview'")
    ),
    "clustering": Feature(
        False, _UNSUPPORTED, f"{_NEEDS_NEW}, and OPTIMIZE … ZORDER BY instead of CLUSTER BY"
    ),
    "rowTracking": Feature(
        False,
        "rows would need ids that the log hands out",
        "run ALTER TABLE … SET TBLPROPERTIES ('delta.enableRowTracking' = 'false'), then ALTER"
        " TABLE … DROP FEATURE rowTracking",
    ),
    "domainMetadata": Feature(
        False,
        _UNSUPPORTED,
        f"once no other feature needs it, {_drop('domainMetadata')}",
    ),
    "inCommitTimestamp": Feature(
        False, "delta-rs writes no timestamps of that kind", _drop("inCommitTimestamp")
    ),
    "materializePartitionColumns": Feature(
        False, "files lack their partition columns", _drop("materializePartitionColumns")
    ),
    "vacuumProtocolCheck": Feature(False, _UNSUPPORTED, _truncate("vacuumProtocolCheck")),
    "typeWidening": Feature(False, "delta-rs does not read such tables", _truncate("typeWidening")),
    "typeWidening-preview": Feature(
        False, "delta-rs does not read such tables", _truncate("'typeWidening-preview'")
    ),
    "checkpointProtection": Feature(
        False,
        _UNSUPPORTED,
        _truncate("checkpointProtection") + " (it is left by a DROP FEATURE without that)",
    ),
}

# Properties that would break a commit of ours: name, accepted value (None: only if not set),
# and the problem of other values with its remedy.
PROPERTIES: Sequence[tuple[str, str | None, str]] = (
    (
        "delta.setTransactionRetentionDuration",
        None,
        (
            "the record of what was committed would expire, at a time engines disagree on; unset it"
            " (ALTER TABLE … UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration'))"
        ),
    ),
    (
        "delta.columnMapping.mode",
        "none",
        (
            "readers would not find columns by the names that arriving files have; set it to none"
            " (ALTER TABLE … SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')), for which"
            " Spark writes all files anew; the feature may stay"
        ),
    ),
    (
        "delta.checkpointPolicy",
        "classic",
        (
            "checkpoints may have sidecar files, which are not written here; set it to classic"
            " (ALTER TABLE … SET TBLPROPERTIES ('delta.checkpointPolicy' = 'classic')) and make a"
            " checkpoint, as DeltaTable(URI).create_checkpoint() of deltalake does; the feature"
            " may stay"
        ),
    ),
)
_CONSTRAINT = "delta.constraints."

# Rules in a column's metadata that arriving files would have to obey.
COLUMN_RULES: Mapping[str, str] = {
    "delta.invariants": "has an invariant, which is not checked here; use a table without it",
    "delta.generationExpression": (
        "is generated, which is not checked here; use a table where it is a plain one"
    ),
    "delta.identity.start": (
        "is an identity column, whose values the log hands out; use a table without it"
    ),
    "CURRENT_DEFAULT": (
        "has a default, which files would have to be filled up with; drop it (ALTER TABLE … ALTER"
        " COLUMN … DROP DEFAULT)"
    ),
}
PARTITION_TYPES = (
    *("string", "byte", "short", "integer", "long", "date", "boolean"),
    *("timestamp", "timestamp_ntz"),
)


@dataclass(frozen=True, slots=True)
class TableDeclaration:
    """A table's newest protocol and metadata.

    ``fields`` are the schema's fields as in its JSON. Features are empty for protocol versions
    without feature lists.
    """

    reader_version: int
    writer_version: int
    features: Sequence[str]
    properties: Mapping[str, str]
    fields: Sequence[Mapping[str, Any]]
    partition_columns: Sequence[str]


def objections(declared: TableDeclaration) -> list[str]:
    """Return all objections to commits to this table, each with a remedy."""
    return [
        *_versions(declared),
        *feature_objections(declared.features),
        *_properties(declared.properties),
        *_columns(declared.fields, ""),
        *_partitions(declared),
    ]


def replace_objections(declared: TableDeclaration, has_vectors: bool) -> list[str]:
    """Return all objections to removing rows from this table, each with a remedy.

    ``has_vectors``: a file of the table has a deletion vector. That files may have one is no
    reason.
    """
    found = []
    if declared.properties.get("delta.appendOnly", "false").lower() == "true":
        found.append(
            "delta.appendOnly is set, and a group replaces rows; run ALTER TABLE … SET"
            " TBLPROPERTIES ('delta.appendOnly' = 'false')"
        )
    if has_vectors:
        found.append(
            "it has deletion vectors, which rewriting would undo; run ALTER TABLE … SET"
            " TBLPROPERTIES ('delta.enableDeletionVectors' = 'false'), then REORG TABLE … APPLY"
            " (PURGE); the feature may stay"
        )
    return found


def _versions(declared: TableDeclaration) -> Iterator[str]:
    for kind, version, known in (
        ("reader", declared.reader_version, READER_VERSIONS),
        ("writer", declared.writer_version, WRITER_VERSIONS),
    ):
        if version not in known:
            yield (
                f"its protocol asks for {kind} version {version}, those that are supported are"
                f" {', '.join(map(str, known))}"
            )


def feature_objections(names: Sequence[str]) -> list[str]:
    """Return the objections to these features, in the order in which Delta drops them."""
    found = [
        f"the table feature {name} is not supported: {feature.why}; {feature.remedy}"
        for name, feature in FEATURES.items()
        if name in names and not feature.takes
    ]
    found += (
        f"the table feature {name} is not known here; drop it with the engine that added it, or"
        " use another table"
        for name in dict.fromkeys(names)
        if name not in FEATURES
    )
    return found


def _properties(properties: Mapping[str, str]) -> Iterator[str]:
    for name, accepted, why in PROPERTIES:
        if properties.get(name, accepted) != accepted:
            yield f"the table property {name} is set: {why}"
    for name in properties:
        if name.startswith(_CONSTRAINT):
            yield (
                f"the constraint {name.removeprefix(_CONSTRAINT)!r} is not checked here; drop it"
                " (ALTER TABLE … DROP CONSTRAINT)"
            )


def _columns(fields: Sequence[Mapping[str, Any]], outer: str) -> Iterator[str]:
    for field in fields:
        name = f"{outer}{field.get('name')}"
        metadata = field.get("metadata") or {}
        for key, rule in COLUMN_RULES.items():
            if key in metadata:
                yield f"column {name!r} {rule}"
        yield from _kind(field.get("type"), name)


def _kind(kind: object, name: str) -> Iterator[str]:
    if kind == "variant":
        yield f"column {name!r} is a variant, which no arriving file has; keep it elsewhere"
    if isinstance(kind, Mapping):
        yield from _columns(kind.get("fields") or (), f"{name}.")
        for inner, suffix in (
            ("elementType", "[]"),
            ("keyType", "[key]"),
            ("valueType", "[value]"),
        ):
            yield from _kind(kind.get(inner), f"{name}{suffix}")


def _partitions(declared: TableDeclaration) -> Iterator[str]:
    types = {str(field.get("name")): field.get("type") for field in declared.fields}
    for name in declared.partition_columns:
        if name.startswith(("_", ".")):
            yield (
                f"partition column {name!r} makes directories that start with {name[0]!r}: those"
                " are hidden, and nothing in them would ever be found; use a table whose column has"
                " another name"
            )
        if types.get(name) not in PARTITION_TYPES:
            yield (
                f"partition column {name!r} is {types.get(name)}, which directory names cannot"
                f" spell for all readers; supported are {', '.join(PARTITION_TYPES)}"
            )
