"""Contents of the table and the dead letters, and the answers of `blizzard explain`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from blizzard_core.errors import NOT_COMMITTING, NOT_INGESTING, NotFound
from tests.chaos.blizzard.oracle import Fault, Found
from tests.chaos.blizzard.place import Place

_EXPLAINED = 20


def found(place: Place) -> Found:
    """Read the current state. The queue is read without the product's own reader."""
    files: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    root = f"{place.scenario.place}/raw/"
    for name, letter in _letters(place):
        counts = lines if name.endswith(".records.ndjson") else files
        counts[letter["path"].removeprefix(root)] += 1
    return Found(_rows(place), files, lines)


def _rows(place: Place) -> dict[int, int]:
    options = {**place.options, "AWS_ALLOW_HTTP": "true"} if place.options else None
    try:
        table = DeltaTable(f"{place.scenario.place}/lake/events", storage_options=options)
    except TableNotFoundError:
        return {}
    with duckdb.connect() as connection:
        connection.register("events", table.to_pyarrow_dataset())
        query = "select id, count(*) from events group by id"
        return dict(connection.execute(query).fetchall())


def _letters(place: Place) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        for page in place.table.list_range("_blizzard/dlq/", "_blizzard/dlq0"):
            for entry in page.entries:
                if entry.path.endswith(".ndjson"):
                    for line in place.table.read(entry.path).splitlines():
                        yield entry.path, json.loads(line)
    except NotFound:  # nobody has written there yet
        return


def totals(place: Place) -> dict[str, Any]:
    """Return what `blizzard status` reports for the source."""
    # The daemons were stopped, which is an exit code of its own.
    done = place.scenario.call("blizzard", "status", str(place.scenario.config), "--json")
    assert done.returncode in (0, NOT_COMMITTING, NOT_INGESTING), done.stderr
    return json.loads(done.stdout)["pipelines"]["events"]["sources"]["main"]


def explained(place: Place, faults: list[Fault]) -> Iterator[str]:
    """Yield a line for each fault, with `blizzard explain` for the first of them."""
    for number, fault in enumerate(faults):
        yield f"{fault.kind}: {fault.path or '(no file)'}: {fault.what}"
        if fault.path and number < _EXPLAINED:
            uri = f"{place.scenario.place}/raw/{fault.path}"
            done = place.scenario.call("blizzard", "explain", str(place.scenario.config), uri)
            yield from (f"    {line}" for line in (done.stdout or done.stderr).splitlines()[:12])
