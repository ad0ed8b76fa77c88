"""Repeated snapshots of a configuration's pipelines in both daemons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from blizzard_core.errors import BlizzardError
from blizzard_core.observability.peer_state import StateFiles
from blizzard_core.settings.document import Config
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Storage
from blizzard_py.app import inspection
from blizzard_py.state.committers import committer_of, committer_states


@dataclass(frozen=True, slots=True)
class Committing:
    """A Penguin's saved state of the table at ``uri``, ``saved`` by the store's clock.

    ``summary`` is `blizzard_core.observability.peer_state.summarize_state` of it.
    """

    uri: str
    name: str
    saved: float
    summary: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PipelineSnapshot:
    """One snapshot: the document of `inspection.status`, committers by table, errors."""

    document: dict[str, Any]
    committing: tuple[Committing, ...]
    errors: tuple[str, ...]


class PipelineWatch:
    """Takes snapshots from storage alone, so it needs no daemon and disturbs none."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._tables: dict[str, tuple[Storage, StateFiles]] = {}
        for pipeline in config.pipelines.values():
            sink = pipeline.sink
            if sink.table_uri not in self._tables:
                store = open_storage(sink.table_uri, sink.storage_options)
                self._tables[sink.table_uri] = (store, StateFiles(store))

    def look(self) -> PipelineSnapshot:
        """Everything as it is now. What cannot be read is among the errors."""
        document, errors = inspection.status(self._config)
        committing: list[Committing] = []
        for uri, (store, files) in self._tables.items():
            try:
                committing += [
                    Committing(uri, committer_of(entry), entry.modified, committer)
                    for entry, committer in files.look(committer_states(store)).items()
                ]
            except BlizzardError as error:
                errors.append(str(error))
        return PipelineSnapshot(document, tuple(committing), tuple(dict.fromkeys(errors)))
