"""The replicas of a configuration for `status`, from storage alone."""

from __future__ import annotations

import time
from typing import Any

from blizzard_core.settings.document import Config
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import listed
from blizzard_py.edits.checkpoint_store import CheckpointStore
from blizzard_py.ingest.source_view import SourceView
from blizzard_py.replicas.leases import BEHIND, ID_DIGITS, LOOKS, PREFIX, replica_of


def holder_id(source: SourceView) -> str | None:
    """Return the replica id of a source's writer; None if nobody has it. Raises `StorageError`."""
    writer = CheckpointStore(source.sink, source.parts.home_id).load().writer
    return None if writer is None or writer.released else writer.id[:ID_DIGITS]


def show_replicas(config: Config, document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every replica with its sources, and name it in each source of a status document.

    A replica is shown as alive by the machine's clock, which decides nothing. Raises
    `StorageError`.
    """
    settings = config.global_.replicas
    if settings is None:
        return []
    storage, now = open_storage(settings.uri, settings.advanced.storage_options), time.time()
    sources = {
        f"{pipeline}/{name}": source
        for pipeline, block in document["pipelines"].items()
        for name, source in block["sources"].items()
    }
    found = []
    for entry in listed(storage, PREFIX, BEHIND):
        replica = replica_of(entry.path)
        if replica is None:
            continue
        held = [name for name, source in sources.items() if source["replica"] == replica.id]
        for name in held:
            sources[name]["replica"] = str(replica)
        secs = max(0.0, now - entry.modified)
        found.append(
            {
                "name": str(replica),
                "alive": secs <= settings.advanced.lease * (1 + 1 / LOOKS),
                "renewed_secs": secs,
                "config": replica.config,
                "sources": held,
            }
        )
    return found
