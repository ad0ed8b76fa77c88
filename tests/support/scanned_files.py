"""Files of each format that tables scan, with the rows and the bad records of a test."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from pyarrow import orc

from tests.support.text_lakes import START
from tests.support.workbooks import saved

Row = dict[str, Any]
_MOMENT = {"type": "long", "logicalType": "timestamp-micros"}
_DAY = {"type": "int", "logicalType": "date"}
_CLOCK = {"type": "long", "logicalType": "time-micros"}
_AVRO_TYPES: dict[str, Any] = {"id": "long", "at": _MOMENT, "day": _DAY, "clock": _CLOCK}


def moment(secs: float) -> dt.datetime:
    """Return the time so many seconds after `START`."""
    return START + dt.timedelta(seconds=secs)


def _csv(rows: Sequence[Row]) -> bytes:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue().encode()


def _lines(rows: Sequence[Row]) -> bytes:
    return "".join(json.dumps(row, default=str) + "\n" for row in rows).encode()


def _document(rows: Sequence[Row]) -> bytes:
    return json.dumps({"data": list(rows)}, default=str, indent=1).encode()


def _avro(rows: Sequence[Row]) -> bytes:
    names = dict.fromkeys(name for row in rows for name in row)
    fields = [{"name": name, "type": ["null", _AVRO_TYPES[name]]} for name in names]
    out = io.BytesIO()
    fastavro.writer(out, {"type": "record", "name": "row", "fields": fields}, rows)
    return out.getvalue()


def _orc(rows: Sequence[Row]) -> bytes:
    out = io.BytesIO()
    orc.write_table(pa.Table.from_pylist(list(rows)), out)
    return out.getvalue()


def _xml(rows: Sequence[Row]) -> bytes:
    def element(name: str, value: Any) -> str:
        values = value if isinstance(value, list) else [] if value is None else [value]
        return "".join(f"<{name}>{each}</{name}>" for each in values)

    inner = ("".join(element(name, value) for name, value in row.items()) for row in rows)
    return f"<rows>{''.join(f'<row>{each}</row>' for each in inner)}</rows>".encode()


def _excel(rows: Sequence[Row]) -> bytes:
    def cell(value: Any) -> Any:
        return value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value

    return saved([list(rows[0]), *([cell(value) for value in row.values()] for row in rows)])


@dataclass(frozen=True)
class Scanned:
    """A driver with a format. ``bad`` are values that make a row of this format a bad record."""

    driver: str
    ending: str
    content: Callable[[Sequence[Row]], bytes]
    format: Any = None
    bad: Row = field(default_factory=dict)

    def write(self, path: Path, rows: Sequence[Row]) -> Path:
        """Write a file, whose name gets the ending."""
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = path.with_name(path.name + self.ending)
        whole.write_bytes(self.content(rows))
        return whole


SCANNED: dict[str, Scanned] = {
    "csv": Scanned("csv", ".csv", _csv),
    "ndjson": Scanned("json", ".json", _lines),
    "json": Scanned("json", ".json", _document, {"type": "json", "records": "data"}),
    "avro": Scanned("avro", ".avro", _avro, bad={"clock": 10**15}),
    "orc": Scanned("orc", ".orc", _orc),
    "xml": Scanned("xml", ".xml", _xml, {"type": "xml", "row_tag": "row"}, {"id": [1, 2]}),
    "excel": Scanned("excel", ".xlsx", _excel, bad={"id": "#DIV/0!"}),
}
