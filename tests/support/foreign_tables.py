"""Tables of other engines, with handwritten logs as the protocol says."""

from __future__ import annotations

import json
from typing import Any

from tests.support.table_harness import TableHarness

# Features that readers need as well.
FOR_READERS = {
    *("columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "variantType"),
    *("variantType-preview", "typeWidening", "typeWidening-preview", "vacuumProtocolCheck"),
    *("catalogManaged", "catalogOwned-preview"),
}


def field(name: str = "x", kind: Any = "long", **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def with_features(*names: str) -> dict[str, Any]:
    """Return the protocol of a table with just these features."""
    found: dict[str, Any] = {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": list(names),
    }
    for_readers = [name for name in names if name in FOR_READERS]
    return found | ({"minReaderVersion": 3, "readerFeatures": for_readers} if for_readers else {})


def metadata(**more: Any) -> dict[str, Any]:
    """Return a table's ``metaData``: one column, no partitions, no properties."""
    fields = more.get("fields", [field()])
    return {
        "id": "5f9c7f3e-0000-4000-8000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": more.get("partitions", []),
        "configuration": more.get("properties", {}),
        "createdTime": 1_700_000_000_000,
    }


def make(world: TableHarness, protocol: dict[str, Any], **more: Any) -> None:
    """Make a table without files, with the given declarations."""
    commit(world, 0, {"protocol": protocol}, {"metaData": metadata(**more)})


def commit(world: TableHarness, version: int, *actions: dict[str, Any]) -> None:
    """Write the log's entry of this version, as another engine."""
    info = {"timestamp": 1_700_000_000_000, "operation": "TEST"}
    text = "".join(f"{json.dumps(action)}\n" for action in ({"commitInfo": info}, *actions))
    world.storage.put_atomic(f"_delta_log/{version:020d}.json", text.encode())
