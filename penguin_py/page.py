"""Providers of Penguin's status page (`blizzard_core.observability.status`).

They open stores of their own, so their requests never count as a sign of life of a loop.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache, partial
from typing import Any

from blizzard_core.observability.background_cache import BackgroundCache, CachedDocument
from blizzard_core.observability.commits import CommitTail, commit_to_json
from blizzard_core.observability.heartbeat import read_life, source_heartbeat
from blizzard_core.observability.notices import Notice
from blizzard_core.observability.peer_state import StateFiles, source_state_path
from blizzard_core.observability.status import Command, PageProviders
from blizzard_core.observability.stopped import source_notices
from blizzard_core.redact import redacted_word
from blizzard_core.settings.document import Config
from blizzard_core.storage.clock import elapsed
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Entry, Storage
from penguin_py.settings import Table, keyed_tables_of, tables_of

# How many histories stay cached.
HISTORIES_KEPT = 8


def page_providers(config: Config, where: str) -> PageProviders:
    """Return the providers for these tables. ``where`` is the path of the configuration."""
    tables = {table.name: table for table in tables_of(config)}
    tables |= {keyed.name: keyed.table for keyed in keyed_tables_of(config)}
    many = len(tables) + 1
    return PageProviders(
        peer=BackgroundCache("beside", _SourceStates(tables), time.time, elapsed, many),
        history=BackgroundCache("past", _TableHistories(tables), time.time, elapsed, many),
        notices=blizzard_notices,
        commands=partial(table_commands, where),
    )


def blizzard_notices(_brief: Mapping[str, Any], sources: CachedDocument) -> list[Notice]:
    """Return notices about sources that no Blizzard runs. Pure."""
    if sources.at is None or sources.document is None or sources.error:
        return []
    return source_notices(sources.document, sources.at)


class _SourceStates:
    """The saved states of the sources that feed a table and are in the configuration."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._tables = tables
        self._files = cache(self._opened)

    def __call__(self, name: str) -> list[dict[str, Any]]:
        files = self._files(name)
        store = files.storage
        names = dict(_saved(store, self._tables[name].source_ids))
        documents = files.look(names.values())
        return [
            {
                "name": source_id,
                "saved": entry.modified,
                "life": read_life(store, source_heartbeat(source_id), time.time()).to_json(),
                **documents[entry],
            }
            for source_id, entry in names.items()
        ]

    def _opened(self, name: str) -> StateFiles:
        table = self._tables[name]
        return StateFiles(open_storage(table.uri, table.storage_options))


def _saved(store: Storage, source_ids: tuple[str, ...]) -> Iterator[tuple[str, Entry]]:
    for source_id in source_ids:
        entry = store.stat(source_state_path(source_id))
        if entry is not None:
            yield source_id, entry


class _TableHistories:
    """The histories of tables; commits of the last few are cached."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._tables = tables
        self._tail = lru_cache(HISTORIES_KEPT)(self._opened)

    def __call__(self, name: str) -> dict[str, Any]:
        return {"commits": [commit_to_json(commit) for commit in self._tail(name).look()]}

    def _opened(self, name: str) -> CommitTail:
        table = self._tables[name]
        return CommitTail(open_storage(table.uri, table.storage_options))


def table_commands(config: str, target: Mapping[str, Any]) -> Iterator[Command]:
    """Yield commands for a table: first for its problems, then those that always help. Pure."""
    config = redacted_word(config)
    if target["pulse"]["kind"] == "ConfigError":
        yield Command("Check the configuration", f"penguin validate {config}")
    if target["letters"]:
        yield Command(
            "Once the table or the schema is mended: what ingesting again would do",
            f"blizzard replay {config} --refused --dry-run",
        )
    table = redacted_word(str(target["name"]))
    for source, group in target["groups"].items():
        if group.get("blocked") is not None:
            which = redacted_word(source)
            yield Command(
                f"What giving up the group of {source} that waits would do",
                f"penguin discard {config} --table {table} --group {which} --dry-run",
            )
    yield Command("Where every table is", f"penguin status {config}")
    yield Command("What would be committed next, and what refused", f"penguin plan {config}")
    yield Command(
        "Whether its directory agrees with its log", f"penguin reconcile {config} --dry-run"
    )
