"""Which Delta tables Penguin commits to, by what their log declares. Pure.

Promise: a table that passes takes our commits, and no rule of it is broken by them. A
protocol version, feature, property or column that is not known to be so is refused by
name, with what to do; nothing that is unknown counts as harmless. Asked whenever the
table's metadata may have changed, before anything is planned.

A rule over the values of rows (a constraint, a generated column) is refused, since
rows are never read here. Where a feature merely *allows* something, the table is
taken for as long as nothing uses it.

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
    """What becomes of tables with a feature: ``takes`` them, and under which condition.

    ``why`` says what makes it so; for refused ones it ends with what to do.
    """

    takes: bool
    why: str


_DROP = "; drop the feature, or write to the table with an engine that has it"

FEATURES: Mapping[str, Feature] = {
    "appendOnly": Feature(True, "commits only append"),
    "invariants": Feature(True, "unless a column has one: rows are not checked"),
    "checkConstraints": Feature(True, "unless there is one: rows are not checked"),
    "generatedColumns": Feature(True, "unless there is one: rows are not computed"),
    "changeDataFeed": Feature(True, "appended files are their own change data"),
    "columnMapping": Feature(True, "unless the mode is set: files have their own names"),
    "deletionVectors": Feature(True, "appended files have none; others' count as they stand"),
    "timestampNtz": Feature(True, "added by Penguin itself where a column needs it"),
    "v2Checkpoint": Feature(True, "unless delta.checkpointPolicy is v2: sidecars are not read"),
    "variantType": Feature(True, "unless a column is one: files hold no variants"),
    "variantType-preview": Feature(True, "unless a column is one: files hold no variants"),
    "identityColumns": Feature(False, "values would have to be drawn from the log" + _DROP),
    "rowTracking": Feature(False, "rows would need ids that the log hands out" + _DROP),
    "domainMetadata": Feature(False, "delta-rs does not write to tables with it" + _DROP),
    "clustering": Feature(False, "delta-rs does not write to clustered tables" + _DROP),
    "inCommitTimestamp": Feature(False, "delta-rs writes no timestamps of that kind" + _DROP),
    "allowColumnDefaults": Feature(False, "files would have to be filled up" + _DROP),
    "typeWidening": Feature(False, "delta-rs does not read tables with it" + _DROP),
    "typeWidening-preview": Feature(False, "delta-rs does not read tables with it" + _DROP),
    "icebergCompatV1": Feature(False, "files would have to be of Iceberg's form" + _DROP),
    "icebergCompatV2": Feature(False, "files would have to be of Iceberg's form" + _DROP),
    "icebergCompatV3": Feature(False, "files would have to be of Iceberg's form" + _DROP),
    "vacuumProtocolCheck": Feature(False, "delta-rs does not write to tables with it" + _DROP),
    "materializePartitionColumns": Feature(False, "files lack their partition columns" + _DROP),
    "checkpointProtection": Feature(False, "delta-rs does not write to tables with it" + _DROP),
    "catalogManaged": Feature(False, "commits go through a catalog" + _DROP),
    "catalogOwned-preview": Feature(False, "commits go through a catalog" + _DROP),
    "coordinatedCommits-preview": Feature(False, "commits go through a coordinator" + _DROP),
}

# Properties under which a commit of ours would go wrong: name, value that is fine (None:
# only if it is not set), what is wrong with any other and what to do.
PROPERTIES: Sequence[tuple[str, str | None, str]] = (
    (
        "delta.setTransactionRetentionDuration",
        None,
        "the record of what was committed would expire, at a time engines disagree on; unset it",
    ),
    (
        "delta.columnMapping.mode",
        "none",
        "readers would not find columns by the names that arriving files have; use another table",
    ),
    (
        "delta.checkpointPolicy",
        "classic",
        "checkpoints may have sidecar files, which are not read here; set it to classic",
    ),
)
_CONSTRAINT = "delta.constraints."

# What a column's metadata may declare that arriving files would have to obey.
COLUMN_RULES: Mapping[str, str] = {
    "delta.invariants": "has an invariant, which is not checked here; drop it",
    "delta.generationExpression": "is generated, which is not checked here; make it a plain one",
    "delta.identity.start": "is an identity column, whose values the log hands out",
    "CURRENT_DEFAULT": "has a default, which files would have to be filled up with; drop it",
}
PARTITION_TYPES = (
    *("string", "byte", "short", "integer", "long", "date", "boolean"),
    *("timestamp", "timestamp_ntz"),
)


@dataclass(frozen=True, slots=True)
class Declared:
    """What a table's newest protocol and metadata say.

    ``fields`` are those of the schema, as its JSON has them. Features are None in the
    versions of the protocol that have no lists of them.
    """

    reader_version: int
    writer_version: int
    features: Sequence[str]
    properties: Mapping[str, str]
    fields: Sequence[Mapping[str, Any]]
    partition_columns: Sequence[str]


def objections(declared: Declared) -> list[str]:
    """Everything that speaks against committing to this table, each with what to do."""
    return [
        *_versions(declared),
        *feature_objections(declared.features),
        *_properties(declared.properties),
        *_columns(declared.fields, ""),
        *_partitions(declared),
    ]


def replace_objections(declared: Declared) -> list[str]:
    """Everything that speaks against taking rows out of this table, each with what to do."""
    found = []
    if declared.properties.get("delta.appendOnly", "false").lower() == "true":
        found.append("delta.appendOnly is set, and a group replaces rows; unset it")
    if "deletionVectors" in declared.features:
        found.append(
            "it has deletion vectors, which rewriting would undo; purge them and drop the"
            " feature (ALTER TABLE … DROP FEATURE deletionVectors)"
        )
    return found


def _versions(declared: Declared) -> Iterator[str]:
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
    """What speaks against tables with these features."""
    found = []
    for name in dict.fromkeys(names):
        feature = FEATURES.get(name)
        if feature is None:
            found.append(f"the table feature {name} is not known here{_DROP}")
        elif not feature.takes:
            found.append(f"the table feature {name} is not supported: {feature.why}")
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


def _partitions(declared: Declared) -> Iterator[str]:
    types = {str(field.get("name")): field.get("type") for field in declared.fields}
    for name in declared.partition_columns:
        if name.startswith(("_", ".")):
            yield (
                f"partition column {name!r} makes directories that start with {name[0]!r}: those"
                " are hidden, and nothing in them would ever be found; rename the column"
            )
        if types.get(name) not in PARTITION_TYPES:
            yield (
                f"partition column {name!r} is {types.get(name)}, which directory names cannot"
                f" spell for all readers; supported are {', '.join(PARTITION_TYPES)}"
            )
