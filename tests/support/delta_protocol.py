"""Check of a Delta log against the text of the protocol, independent of any engine.

https://github.com/delta-io/delta/blob/master/PROTOCOL.md: actions and their required
fields, which of them one commit may have, how paths and partition values are spelled,
the types of statistics, versions of transactions, features of the protocol, and what a
checkpoint must hold. And two promises of Penguin's own: the paths of its commits are
relative, and none was ever in the log before.
"""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from blizzard_core.errors import NotFound
from blizzard_core.storage.protocol import Storage

LOG = "_delta_log"
ACTIONS = {
    *("add", "remove", "metaData", "protocol", "txn", "commitInfo", "cdc", "domainMetadata"),
    *("checkpointMetadata", "sidecar"),
}
PRIMITIVES = {
    *("string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary"),
    *("date", "timestamp", "timestamp_ntz", "variant"),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
# RFC 2396: what may stand in a URI unencoded.
_URI = re.compile(r"(?:[A-Za-z0-9_.!~*'();/?:@&=+$,-]|%[0-9A-Fa-f]{2})+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?")
_VALUE_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?")
_WHOLE = {"long": 63, "integer": 31, "short": 15, "byte": 7}


@dataclass
class Table:
    """The table as the actions read so far make it."""

    fields: dict[str, Any] = field(default_factory=dict)
    partitions: list[str] = field(default_factory=list)
    properties: Mapping[str, str] = field(default_factory=dict)
    features: set[str] = field(default_factory=set)
    has_protocol: bool = False
    has_metadata: bool = False
    active: set[str] = field(default_factory=set)
    ever: set[str] = field(default_factory=set)
    transactions: dict[str, int] = field(default_factory=dict)


def problems(storage: Storage) -> list[str]:
    """Return all violations of the protocol in the table's log; an empty list for no log."""
    names = _names(storage)
    versions = sorted(int(m[1]) for name in names if (m := _COMMIT.fullmatch(name)))
    checkpoints = sorted(int(m[1]) for name in names if (m := _CHECKPOINT.fullmatch(name)))
    found: list[str] = []
    if versions != list(range(versions[0], versions[-1] + 1)) if versions else False:
        found.append(f"versions have a hole: {versions}")
    table = Table()
    whole = bool(versions) and versions[0] == 0
    if versions and not whole:
        before = [version for version in checkpoints if version >= versions[0] - 1]
        if not before:
            return [*found, f"the log begins with {versions[0]}, and no checkpoint covers it"]
        found += _checkpoint(_read_checkpoint(storage, before[0]), table, whole=False)
        versions = [version for version in versions if version > before[0]]
    for version in versions:
        path = f"{LOG}/{version:020d}.json"
        lines = storage.read(path).decode("utf-8").splitlines()
        found += [f"{version}: {told}" for told in _commit(lines, table, whole=whole)]
        if version == 0 and not (table.has_protocol and table.has_metadata):
            found.append("0: lacks protocol or metaData")
        if version in checkpoints:
            rows = _read_checkpoint(storage, version)
            found += [f"checkpoint {version}: {t}" for t in _checkpoint(rows, table, whole=whole)]
    return [*found, *_hint(storage, checkpoints)]


def _names(storage: Storage) -> list[str]:
    try:
        pages = list(storage.list_range(f"{LOG}/", f"{LOG}0"))
    except NotFound:
        return []
    return [entry.path.removeprefix(f"{LOG}/") for page in pages for entry in page.entries]


def _commit(  # noqa: C901, PLR0912 - one rule of the text after the other
    lines: list[str], table: Table, *, whole: bool
) -> Iterator[str]:
    actions: list[tuple[str, Any]] = []
    for line in filter(str.strip, lines):
        document = json.loads(line)
        if not isinstance(document, dict) or len(document) != 1:
            yield f"a line is not one action: {line[:80]}"
            continue
        [(kind, body)] = document.items()
        if kind not in ACTIONS:
            yield f"unknown action {kind}"
        else:
            actions.append((kind, body))
    for kind in ("metaData", "protocol", "commitInfo"):
        if sum(name == kind for name, _ in actions) > 1:
            yield f"more than one {kind}"
    ours = any(kind == "commitInfo" and "penguin" in body for kind, body in actions)
    # Metadata of a commit counts for all of its actions, wherever it stands.
    for kind, body in actions:
        if kind == "protocol":
            yield from _protocol(body, table)
    for kind, body in actions:
        if kind == "metaData":
            yield from _metadata(body, table)
    files = [(kind, body["path"], _vector(body)) for kind, body in actions if kind in FILES]
    named = [(path, vector) for _, path, vector in files]
    if len(set(named)) != len(named):
        yield "names one file twice"
    apps = [body.get("appId") for kind, body in actions if kind == "txn"]
    if len(set(apps)) != len(apps):
        yield "has two transactions of one application"
    for kind, body in actions:
        if kind == "add":
            yield from _add(body, table, ours=ours and whole)
        elif kind == "remove":
            yield from _remove(body, table, whole=whole)
        elif kind == "txn":
            yield from _transaction(body, table)


FILES = ("add", "remove")


def _vector(body: Mapping[str, Any]) -> str:
    return json.dumps(body.get("deletionVector"), sort_keys=True)


def _protocol(body: Mapping[str, Any], table: Table) -> Iterator[str]:
    table.has_protocol = True
    reader, writer = body.get("minReaderVersion"), body.get("minWriterVersion")
    if not isinstance(reader, int) or not isinstance(writer, int):
        yield "protocol without versions"
        return
    if (reader >= 3) != (body.get("readerFeatures") is not None):
        yield "readerFeatures go with reader version 3"
    if (writer >= 7) != (body.get("writerFeatures") is not None):
        yield "writerFeatures go with writer version 7"
    readers, writers = (set(body.get(f"{kind}Features") or ()) for kind in ("reader", "writer"))
    if not readers <= writers:
        yield f"reader features that writers lack: {readers - writers}"
    table.features = writers


def _metadata(body: Mapping[str, Any], table: Table) -> Iterator[str]:
    table.has_metadata = True
    if not isinstance(body.get("id"), str) or not body["id"]:
        yield "metaData without id"
    if (body.get("format") or {}).get("provider") != "parquet":
        yield "metaData.format is not Parquet"
    if not isinstance(body.get("configuration"), dict) or not all(
        isinstance(value, str) for value in body["configuration"].values()
    ):
        yield "metaData.configuration is not a map of strings"
    if not isinstance(body.get("createdTime"), int | None):
        yield "metaData.createdTime is not a number"
    schema = json.loads(body["schemaString"])
    yield from _type(schema, "schema", table.features)
    fields = {f["name"]: f["type"] for f in schema["fields"]}
    partitions = body.get("partitionColumns")
    if not isinstance(partitions, list) or not set(partitions) <= set(fields):
        yield f"metaData.partitionColumns {partitions} are not all in the schema"
    table.fields, table.partitions = fields, list(partitions or ())
    table.properties = body.get("configuration") or {}


def _type(  # noqa: C901 - one rule of the text after the other
    kind: Any, where: str, features: set[str]
) -> Iterator[str]:
    if isinstance(kind, str):
        if kind not in PRIMITIVES and not _DECIMAL.fullmatch(kind):
            yield f"{where} is of type {kind!r}"
        if kind == "timestamp_ntz" and "timestampNtz" not in features:
            yield f"{where} is timestamp_ntz, and the protocol lacks the feature"
        return
    form = kind.get("type")
    if form == "struct":
        names = [f.get("name") for f in kind["fields"]]
        if len({str(name).lower() for name in names}) != len(names) or "" in names:
            yield f"{where} has fields of one name, or of none: {names}"
        for inner in kind["fields"]:
            if set(inner) < {"name", "type", "nullable", "metadata"}:
                yield f"{where}.{inner.get('name')} lacks a part of a field"
            yield from _type(inner["type"], f"{where}.{inner['name']}", features)
    elif form == "array":
        if not isinstance(kind.get("containsNull"), bool):
            yield f"{where} lacks containsNull"
        yield from _type(kind["elementType"], f"{where}[]", features)
    elif form == "map":
        if not isinstance(kind.get("valueContainsNull"), bool):
            yield f"{where} lacks valueContainsNull"
        yield from _type(kind["keyType"], f"{where}[key]", features)
        yield from _type(kind["valueType"], f"{where}[value]", features)
    else:
        yield f"{where} is of no type: {kind}"


def _add(body: Mapping[str, Any], table: Table, *, ours: bool) -> Iterator[str]:
    path = body.get("path")
    where = f"add {path!r}"
    if not isinstance(path, str) or not _URI.fullmatch(path):
        yield f"{where}: the path is not a URI"
        return
    for name, kind in (("size", int), ("modificationTime", int), ("dataChange", bool)):
        if not isinstance(body.get(name), kind) or (kind is int and body[name] < 0):
            yield f"{where}: {name} is {body.get(name)!r}"
    values = body.get("partitionValues")
    if not isinstance(values, dict) or set(values) != set(table.partitions):
        yield f"{where}: partition values {values} for {table.partitions}"
    else:
        for name, value in values.items():
            if value is not None and not _is_value(value, table.fields.get(name)):
                yield f"{where}: {name}={value!r} is not a {table.fields.get(name)}"
    if body.get("stats") is not None:
        yield from (f"{where}: {told}" for told in _statistics(json.loads(body["stats"]), table))
    plain = unquote(path)
    if ours and _SCHEME.match(plain):
        yield f"{where}: Penguin names a file absolutely"
    if ours and plain in table.ever:
        yield f"{where}: Penguin adds what was in the log before"
    table.active.add(plain)
    table.ever.add(plain)


def _remove(body: Mapping[str, Any], table: Table, *, whole: bool) -> Iterator[str]:
    path = body.get("path")
    where = f"remove {path!r}"
    if not isinstance(path, str) or not _URI.fullmatch(path):
        yield f"{where}: the path is not a URI"
        return
    if not isinstance(body.get("dataChange"), bool):
        yield f"{where}: no dataChange"
    if not isinstance(body.get("deletionTimestamp"), int | None):
        yield f"{where}: deletionTimestamp is {body.get('deletionTimestamp')!r}"
    if table.properties.get("delta.appendOnly") == "true" and body.get("dataChange"):
        yield f"{where}: from a table that is append-only"
    if whole and unquote(path) not in table.active:
        yield f"{where}: is not in the table"
    table.active.discard(unquote(path))
    table.ever.add(unquote(path))


def _transaction(body: Mapping[str, Any], table: Table) -> Iterator[str]:
    app, version = body.get("appId"), body.get("version")
    if not isinstance(app, str) or not isinstance(version, int):
        yield f"txn {body} lacks a part"
        return
    if version < table.transactions.get(app, 0):
        yield f"txn {app} goes back from {table.transactions[app]} to {version}"
    table.transactions[app] = version


def _is_value(text: Any, kind: Any) -> bool:  # noqa: PLR0911 - one answer for each type
    """Return whether a partition value has the protocol's spelling for its type."""
    if not isinstance(text, str) or text == "" or not isinstance(kind, str):
        return False
    try:
        if kind in _WHOLE:
            return abs(int(text)) <= 1 << _WHOLE[kind]
        if kind in {"float", "double"}:
            float(text)
        elif kind.startswith("decimal"):
            decimal.Decimal(text)
        elif kind == "date":
            return dt.date.fromisoformat(text).isoformat() == text
        elif kind == "timestamp":
            iso = text.endswith("Z") and _MOMENT.fullmatch(text[:-1])
            return bool(iso or _VALUE_MOMENT.fullmatch(text))
        elif kind == "timestamp_ntz":
            return _VALUE_MOMENT.fullmatch(text) is not None
        elif kind == "boolean":
            return text in ("true", "false")
    except (ValueError, decimal.InvalidOperation):
        return False
    return True


def _statistics(  # noqa: C901 - one rule of the text after the other
    document: Mapping[str, Any], table: Table
) -> Iterator[str]:
    rows = document.get("numRecords", 0)
    if not isinstance(rows, int) or rows < 0:
        yield f"numRecords is {rows!r}"
        return
    fields = {name: kind for name, kind in table.fields.items() if name not in table.partitions}
    low, high = (_flat(document.get(f"{end}Values") or {}) for end in ("min", "max"))
    for name, count in _flat(document.get("nullCount") or {}).items():
        if _kind_of(fields, name) is None:
            yield f"nullCount of {name}, which is no column"
        elif not isinstance(count, int) or not 0 <= count <= rows:
            yield f"nullCount of {name} is {count!r} of {rows}"
    for end in (low, high):
        for name, value in end.items():
            kind = _kind_of(fields, name)
            if not isinstance(kind, str) or not _is_bound(value, kind):
                yield f"the bound {value!r} of {name} is not a {kind}"
    for name in low.keys() & high.keys():
        one, other = low[name], high[name]
        if type(one) is not type(other):
            continue  # one of them was told above
        if isinstance(one, str):
            one, other = one.encode(), other.encode()
        if one > other:
            yield f"the bounds of {name} are in the wrong order"


def _flat(document: Mapping[str, Any], outer: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}
    for name, value in document.items():
        inner = (*outer, name)
        found |= _flat(value, inner) if isinstance(value, dict) else {inner: value}
    return found


def _kind_of(fields: Mapping[str, Any], name: tuple[str, ...]) -> Any:
    kind = fields.get(name[0])
    for part in name[1:]:
        if not isinstance(kind, dict) or kind.get("type") != "struct":
            return None
        kind = {f["name"]: f["type"] for f in kind["fields"]}.get(part)
    return kind


def _is_bound(value: Any, kind: str) -> bool:
    if kind in _WHOLE:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and -(1 << _WHOLE[kind]) <= value < 1 << _WHOLE[kind]
    if kind.startswith("decimal") or kind in {"float", "double"}:
        return isinstance(value, int | float)
    if kind == "timestamp":
        return isinstance(value, str) and bool(_MOMENT.fullmatch(value.removesuffix("Z")))
    if kind == "timestamp_ntz":
        return isinstance(value, str) and bool(_MOMENT.fullmatch(value))
    if kind == "date":
        return isinstance(value, str) and _is_value(value, "date")
    return kind in {"string", "boolean", "binary"}


def _read_checkpoint(storage: Storage, version: int) -> list[dict[str, Any]]:
    raw = storage.read(f"{LOG}/{version:020d}.checkpoint.parquet")
    rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(raw)).to_pylist()
    return rows


def _checkpoint(  # noqa: C901 - one rule of the text after the other
    rows: list[dict[str, Any]], table: Table, *, whole: bool
) -> Iterator[str]:
    counts: dict[str, int] = {}
    adds: set[str] = set()
    transactions: dict[str, int] = {}
    # The protocol says what the metadata may have.
    for row in sorted(rows, key=lambda row: row.get("protocol") is None):
        kinds = [kind for kind, body in row.items() if body is not None]
        if len(kinds) != 1 or kinds[0] not in ACTIONS - {"commitInfo", "cdc"}:
            yield f"a row has the actions {kinds}"
            continue
        counts[kinds[0]] = counts.get(kinds[0], 0) + 1
        body = row[kinds[0]]
        if kinds[0] == "add":
            adds.add(unquote(body["path"]))
        elif kinds[0] == "txn":
            transactions[body["appId"]] = body["version"]
        elif kinds[0] == "metaData" and not table.has_metadata:
            yield from _metadata(
                {**body, "configuration": dict(body["configuration"] or ())}, table
            )
        elif kinds[0] == "protocol" and not table.has_protocol:
            table.has_protocol = True
            table.features = set(body.get("writerFeatures") or ())
    for kind in ("protocol", "metaData"):
        if counts.get(kind) != 1:
            yield f"has {counts.get(kind, 0)} times {kind}"
    if whole and adds != table.active:
        yield f"has other files than the log: {adds ^ table.active}"
    if whole and transactions != table.transactions:
        yield f"has other transactions than the log: {transactions}, {table.transactions}"
    if not whole:
        table.active |= adds
        table.ever |= adds


def _hint(storage: Storage, checkpoints: list[int]) -> Iterator[str]:
    try:
        document = json.loads(storage.read(f"{LOG}/_last_checkpoint"))
    except NotFound:
        return
    if document.get("version") not in checkpoints and "parts" not in document:
        yield f"_last_checkpoint names {document.get('version')}, there are {checkpoints}"
