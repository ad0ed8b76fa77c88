"""Everything that can be known before Penguin's first commit, for `penguin doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from blizzard_core.daemon import StopEvent
from blizzard_core.doctor.findings import CheckResult, failed
from blizzard_core.doctor.stores import UsedStore, check_stores
from blizzard_core.errors import BlizzardError
from blizzard_core.settings.document import Config
from blizzard_core.text import counted
from penguin_py.app import build
from penguin_py.pipeline import TablePipeline
from penguin_py.settings import keyed_tables_of, tables_of


def examine(config: Config, stop: StopEvent) -> Iterator[CheckResult]:
    """Check each table's store and its Delta log. Ends early by ``stop``."""
    tables = tables_of(config)
    keyed = [each.table for each in keyed_tables_of(config)]
    stores = {
        table.name: UsedStore("table", table.uri, table.storage_options)
        for table in (*tables, *keyed)
    }
    unreachable: set[str] = set()
    for each in check_stores(stores.values(), stop):
        if each.result == "failed":
            unreachable.add(each.subject)
        yield each
    # Not all: the package for a store may be missing.
    reachable = [each for each in tables if stores[each.name].subject not in unreachable]
    with build(config, reachable) as pipelines:
        for pipeline in pipelines:
            if not stop.is_set():
                yield from _log(pipeline, stores[pipeline.name].subject)


def _log(pipeline: TablePipeline, subject: str) -> Iterator[CheckResult]:
    """Read the log as before a commit: protocol, features, schema, `txn` and our memory."""
    try:
        snapshot = pipeline.snapshot()
        groups = pipeline.groups(snapshot)
    except BlizzardError as error:
        yield from failed(subject, "log", error)
        return
    if snapshot.state is None:
        yield CheckResult(subject, "log", "ok", "no table yet; the first commit makes it")
    else:
        txn = snapshot.memory.txn_version
        version = snapshot.state.version
        text = f"version {version:,} can be committed to; commits of this Penguin: {txn:,}"
        yield CheckResult(subject, "log", "ok", text)
    for source, group in groups.items():
        if group.blocked is not None:
            yield CheckResult(
                subject, "groups", "note", f"groups of {source} wait: {group.blocked}"
            )
    if held := len(pipeline.quarantined()):
        text = f"{counted(held, 'file')} in quarantine; `penguin status` says which are open"
        yield CheckResult(subject, "quarantine", "note", text)
