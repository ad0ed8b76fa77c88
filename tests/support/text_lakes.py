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

from blizzard_py.connections.lakes import csv_files, json_lines
from blizzard_py.connections.protocol import ReadSelection
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access
from tests.support.lake_reading import Poller, through_json

UTC = dt.UTC

ID, AT = FieldSpec("id", "int64", nullable=True), FieldSpec("at", "timestamp", nullable=True)
START = dt.datetime(2026, 5, 4, 12, tzinfo=UTC)

FORMS: dict[str, Any] = {"csv": csv_files, "json": json_lines}


def field(name: str, kind: Any, **more: Any) -> FieldSpec:
    return FieldSpec(name, kind, nullable=True, **more)


def poller(
    form: str, folder: Path, columns: tuple[str, ...] = ("at",), fields: Any = (ID, AT), **more: Any
) -> Poller:
    access = Access(form, str(folder), more)
    selection = ReadSelection(columns=columns, fields=tuple(fields))
    connection = FORMS[form].connect(access, selection)
    return Poller(lambda: connection, FORMS[form].read, access, "rows", columns, tuple(fields))


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
    return found
