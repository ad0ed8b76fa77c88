"""Folders of CSV and JSON files, and sources that poll them."""

from __future__ import annotations

import bz2
import csv
import datetime as dt
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from blizzard_core.settings.connections import LakeConnectionSettings
from blizzard_core.settings.query_sources import TableSourceSettings
from blizzard_py.app.queries.table import TableQueries
from blizzard_py.connections.lakes import scanned
from blizzard_py.connections.protocol import ReadSelection
from blizzard_py.formats.protocol import BadRecord
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access
from tests.support.lake_reading import Poller, through_json

UTC = dt.UTC

ID, AT = FieldSpec("id", "int64", nullable=True), FieldSpec("at", "timestamp", nullable=True)
START = dt.datetime(2026, 5, 4, 12, tzinfo=UTC)

FORMS = ("csv", "json")


def access_to(driver: str, uri: Path | str, form: Any = None, **more: Any) -> Access:
    """Return the access that the settings of a connection and a source give."""
    block = {"driver": driver, "uri": str(uri), **more}
    source = {"kind": "table", "connection": "c", "table": "t", "snapshot": True, "format": form}
    settings = LakeConnectionSettings.model_validate(block)
    return TableQueries().access(settings, TableSourceSettings.model_validate(source))


def field(name: str, kind: Any, **more: Any) -> FieldSpec:
    return FieldSpec(name, kind, nullable=True, **more)


def poller(
    driver: str,
    folder: Path,
    columns: tuple[str, ...] = ("at",),
    fields: Any = (ID, AT),
    **more: Any,
) -> Poller:
    access = access_to(driver, folder, **more)
    selection = ReadSelection(columns=columns, fields=tuple(fields))
    connection = scanned.connect(access, selection)
    return Poller(lambda: connection, scanned.read, access, "rows", columns, tuple(fields))


def put(
    form: str, path: Path, rows: list[dict[str, Any]], pack: Callable[[bytes], bytes] = bytes
) -> None:
    if form == "json":
        data = "".join(json.dumps(row, default=str) + "\n" for row in rows)
    else:
        stream = io.StringIO()
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        data = stream.getvalue()
    path.parent.mkdir(parents=True, exist_ok=True)
    ending = {bytes: "", gzip.compress: ".gz", bz2.compress: ".bz2"}.get(pack, ".zst")
    Path(f"{path}.{form}{ending}").write_bytes(pack(data.encode()))


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["id"]) for row in rows)


def at(secs: float) -> str:
    return (START + dt.timedelta(seconds=secs)).isoformat()


def lines_of(source: Poller) -> list[bytes]:
    """Return all lines that the tasks read, bad ones too."""
    _, tasks = source.plan()
    found: list[bytes] = []
    for task in tasks:
        for rows in source.reader(source.access, through_json(task).spec, source.fields):
            if isinstance(rows, bytes):
                found += rows.splitlines()
            if isinstance(rows, BadRecord):
                found.append(rows.head)
    return found
