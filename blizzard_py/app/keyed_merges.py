"""The merge that brought a file's rows into the keyed table of its pipeline."""

from __future__ import annotations

from dataclasses import replace

from blizzard_core.settings.checks.keyed import keyed_name
from blizzard_core.settings.document import PipelineSettings
from blizzard_core.storage.opening import open_storage
from blizzard_core.table.keyed_merges import find_merge
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
    options = pipeline.sink.storage_options if own is None else own
    merge = find_merge(open_storage(keyed.table_uri, options), max(versions))
    if merge is None:
        return replace(found, merged=Merged(keyed_name(name)))
    table = keyed_name(name)
    return replace(found, merged=Merged(table, merge.version, merge.changes, merge.outcomes))
