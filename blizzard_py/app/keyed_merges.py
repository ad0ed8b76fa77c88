"""The merge that brought a file's rows into the keyed table of its pipeline."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from blizzard_core.delta_json import NEWEST, commit_entries, read_commit, version_of
from blizzard_core.errors import NotFound
from blizzard_core.settings.checks.tables import keyed_name
from blizzard_core.settings.document import PipelineSettings
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Storage
from blizzard_py.explain import Explanation, Merged


def with_merge(name: str, pipeline: PipelineSettings, found: Explanation) -> Explanation:
    """Return the explanation with the merge of its last output, if there is a keyed table.

    Raises `StateError` and `StorageError`.
    """
    keyed, outputs = pipeline.keyed, found.outputs or ()
    versions = [each.delta_version for each in outputs if each.delta_version is not None]
    if keyed is None or not versions:
        return found
    own = keyed.advanced.storage_options
    storage = open_storage(keyed.table_uri, pipeline.sink.storage_options if own is None else own)
    return replace(found, merged=find_merge(storage, keyed_name(name), max(versions)))


def find_merge(storage: Storage, table: str, change_version: int) -> Merged:
    """Return the first merge with the changes of a version. The log is searched by halves."""
    try:
        known = [version_of(entry.path) for entry in commit_entries(storage)]
    except NotFound:
        known = []

    def merge_from(at: int) -> Merged | None:  # compactions are no merges
        return next(filter(None, (_merge_at(storage, table, each) for each in known[at:])), None)

    def changes_from(at: int) -> int:
        found = merge_from(at)
        return NEWEST if found is None or found.changes is None else found.changes

    first = bisect_left(range(len(known)), change_version, key=changes_from)
    return merge_from(first) or Merged(table)


def _merge_at(storage: Storage, table: str, version: int) -> Merged | None:
    for action in read_commit(storage, version, ("commitInfo",)) or ():
        document = action.get("commitInfo", {}).get("penguin", {})
        if "merged" in document:
            return Merged(table, version, document["merged"] - 1, document.get("outcomes", {}))
    return None
