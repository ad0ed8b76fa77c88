"""Rows of CSV and JSON files, and their digests, are those that earlier releases read.

Checkpoints hold digests of rows that were read. If a release read a value in another form, a
look-back would publish its row a second time. ``tests/data/tables/rows.json`` was written by the
readers that tables had before they shared the formats of files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from blizzard_core.storage.local import LocalStorage
from blizzard_py.connections.protocol import WindowSplit
from blizzard_py.formats.protocol import BadRecord
from blizzard_py.job import FieldSpec
from blizzard_py.kernels.row_deduplication import RowFilter
from blizzard_py.reading import DedupSpec, RowFingerprint, Window
from tests.support.lake_reading import read_all
from tests.support.text_lakes import AT, ID, at, field, poller

RECORDED = Path(__file__).parents[3] / "data" / "tables" / "rows.json"
V = field("v", "string")
_AT = at(1).encode()

CSV: dict[str, bytes] = {
    "plain": b"id,at,v\n1,%b,a\n2,%b,b\n" % (_AT, _AT),
    "no final line end": b"id,at,v\n1,%b,a" % _AT,
    "crlf": b"id,at,v\r\n1,%b,a\r\n2,%b,\r\n" % (_AT, _AT),
    "lone returns": b"id,at,v\r1,%b,a\r2,%b,b\r" % (_AT, _AT),
    "mark": b"\xef\xbb\xbfid,at,v\n1,%b,a\n" % _AT,
    "quoted mark": b'\xef\xbb\xbf"id",at,v\n1,%b,a\n' % _AT,
    "nulls": b'id,at,v\n1,,\n2,"",""\n"3",%b," "\n' % _AT,
    "quotes": b'id,at,v\n1,%b,"a""b"\n2,%b,"a,b"\n3,%b,5" disk\n4,%b,"x"1\n' % ((_AT,) * 4),
    "line ends in quotes": b'id,at,v\n1,%b,"a\nb"\n2,%b,"a\r\nb"\n3,%b,"\n"\n' % ((_AT,) * 3),
    "only quotes": b'v\n""\n""""\n" "\n"a"\n',
    "one column": b"v\n\n1\n\n 2 \n\t\n",
    "blank lines": b"\n\nid,at,v\n\n1,%b,a\n\n\n2,%b,b\n" % (_AT, _AT),
    "blanks": b"id,at,v\n 1 , %b , a \n\t2\t,%b,\ta\n" % (_AT, _AT),
    "names": b" ID ,At,V\n1,%b,a\n" % _AT,
    "two names alike": b"id,at,v,V\n1,%b,a,b\n" % _AT,
    "order and others": b"x,v,y,at,id\n9,a,8,%b,1\n" % _AT,
    "missing": b"at,id\n%b,1\n" % _AT,
    "ragged": b"id,at,v\n1\n2,%b,b,c\n3,%b,c\n4,%b\n" % ((_AT,) * 3),
    "unreadable": b"id,at,v\nx,soon,a\n1,%b,b\n2,2026-99-99,c\n" % _AT,
    "unicode": "id,at,v\n1,{0},é\n2,{0},€😀\n3,{0},\u2028\n".format(at(1)).encode(),
    "no utf-8": b"id,at,v\n1,%b,a\n2,%b,\xff\n3,%b,\xc3\n" % ((_AT,) * 3),
    "zero bytes": b"id,at,v\n1,%b,a\x00b\n" % _AT,
    "numbers": b"id,at,v\n007,%b,1e3\n+1,%b,0x1F\n1_0,%b,1.50\n" % ((_AT,) * 3),
    "empty": b"",
    "header": b"id,at,v",
    "header and line end": b"id,at,v\n",
    "long": b"id,at,v\n1,%b,%b\n" % (_AT, b"x" * 3_000_000),
    "no watermark": b"id,when,v\n1,%b,a\n" % _AT,
}
_LINE = b'{"id": 1, "at": "%b", "v": "a"}' % _AT
JSON: dict[str, bytes] = {
    "plain": _LINE + b"\n" + _LINE + b"\n",
    "no final line end": _LINE,
    "crlf": _LINE + b"\r\n" + _LINE + b"\r\n",
    "mark": b"\xef\xbb\xbf" + _LINE + b"\n",
    "blanks": b" \n\n\t" + _LINE + b"  \n\r\n" + _LINE,
    "digits": b'{"id": 1, "at": "%b", "v": "1.10", "x": 1.100}\n' % _AT,
    "odd values": b'{"id": 1, "at": "%b", "v": NaN}\n{"at": "%b", "v": "\\ud800"}\n' % (_AT, _AT),
    "nested": b'{"id": 1, "at": "%b", "v": {"a": [1, 2], "at": 3}}\n' % _AT,
    "bad": _LINE + b'\n{\n[1]\n17\nnull\n{"at": "\xff\n' + _LINE + b" x\n" + _LINE + b"\n",
    "unreadable": b'{"id": 1, "at": "soon"}\n{"id": 2, "at": 5}\n{"id": 3}\n{"at": null}\n',
    "order": b'{"v": "b", "at": "%b", "id": 2}\n' % _AT,
    "escapes": b'{"\\u0069d": 1, "at": "%b", "v": "\\u00e9\\n"}\n' % _AT,
    "unicode": f'{{"id": 1, "at": "{at(1)}", "v": "é€😀"}}\n'.encode(),
    "empty": b"",
    "two objects": _LINE + _LINE + b"\n" + _LINE + b"\n",
}
CASES = [
    *(("csv", name, data) for name, data in CSV.items()),
    *(("json", name, data) for name, data in JSON.items()),
]


def digests(found: list[Any], told: RowFingerprint, folder: Path) -> list[str]:
    """Return the digests that a window would keep of these batches and lines."""
    kept: list[bytes] = []
    rows = RowFilter(DedupSpec(told, "above"), LocalStorage(str(folder)))
    for each in found:
        if isinstance(each, bytes):
            rows.fresh_lines(each.splitlines())
        else:
            rows.fresh(each)
    rows.marks("", lambda data: kept.append(data) or "")  # type: ignore[func-returns-value]  # kept aside
    data = b"".join(kept)
    return sorted(data[at : at + 16].hex() for at in range(0, len(data), 16))


def shown(found: list[Any]) -> dict[str, list[str]]:
    """Return rows and lines, with long values cut."""
    rows, lines = [], []
    for each in found:
        if isinstance(each, bytes):
            lines += [ascii(line)[:300] for line in each.split(b"\n")[:-1]]
        else:
            rows += [ascii(list(row.values()))[:300] for row in each.to_pylist()]
    return {"rows": rows, "lines": sorted(lines)}


def read(form: str, folder: Path, columns: tuple[str, ...], fields: tuple[FieldSpec, ...]) -> Any:
    """Return what a first window reads, or everything without columns."""
    source = poller(form, folder, columns, fields)
    connection = source.connect()
    up_to = connection.bound("rows", 0).value if columns else {}
    window = Window({}, up_to, {}, inclusive=False, nulls_first=True)
    tasks = connection.tasks(window, WindowSplit())
    return [
        # Its letter has changed. A record that is no row is never read again.
        _letter(some).replace(b"not valid UTF-8", b"not UTF-8") + b"\n"
        if isinstance(some, BadRecord)
        else some
        for task in tasks
        for some in read_all(source.reader, source.access, task, source.fields)
    ]


def _letter(bad: BadRecord) -> bytes:
    return f"csv row, {bad.reason}: ".encode() + bad.head if bad.header else bad.head


def recorded(form: str, data: bytes, folder: Path) -> dict[str, Any]:
    """Return rows, lines and digests of a file, beside which there is another one."""
    (folder / f"a.{form}").write_bytes(data)
    other = b"id,at,v\n9,%b,z\n" % _AT if form == "csv" else b'{"id": 9, "at": "%b"}\n' % _AT
    (folder / f"b.{form}").write_bytes(other)
    fields = (ID, AT, V)
    everything = read(form, folder, (), fields)
    return {
        "everything": shown(everything),
        "window": shown(read(form, folder, ("at",), fields)),
        "whole": digests(everything, RowFingerprint(("at", "id", "v"), whole=True), folder),
        "key": digests(everything, RowFingerprint(("at", "id"), whole=False), folder),
    }


def test_an_empty_last_field_is_null_behind_quotes(tmp_path: Path) -> None:
    """Before, it was the empty text at the end of a file without a final line end."""
    (tmp_path / "a.csv").write_bytes(b'id,at,v\n1,"%b",' % _AT)
    [batch] = read("csv", tmp_path, (), (ID, AT, V))
    assert batch.to_pylist() == [{"id": "1", "at": at(1), "v": None}]


@pytest.mark.parametrize(("form", "name", "data"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES])
def test_rows_and_digests_are_those_of_earlier_releases(
    tmp_path: Path, form: str, name: str, data: bytes
) -> None:
    known = json.loads(RECORDED.read_text())
    assert recorded(form, data, tmp_path) == known[f"{form} {name}"]
