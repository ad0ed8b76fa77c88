"""Directories of CSV and NDJSON files as a source."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import json
import os
import random
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from blizzard_core.errors import SourceError, Unavailable
from blizzard_core.storage.local import LocalStorage
from blizzard_py.connections.lakes import scanned
from blizzard_py.connections.protocol import ReadSelection, WindowSplit
from blizzard_py.formats.letters.header import around_of
from blizzard_py.formats.protocol import BadRecord
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Window
from tests.support.lake_reading import read_all, rows_of, through_json
from tests.support.text_lakes import (
    AT,
    FORMS,
    ID,
    START,
    UTC,
    access_to,
    at,
    field,
    ids,
    lines_of,
    poller,
    put,
)


def zstd(data: bytes) -> bytes:
    return pa.compress(data, "zstd", asbytes=True)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, zstd])
@pytest.mark.parametrize("form", FORMS)
def test_each_row_comes_once(tmp_path: Path, form: str, pack: Any) -> None:
    chance = random.Random(form)
    source = poller(form, tmp_path)
    now, seen, written = 0.0, [], 0
    for number in range(12):
        rows = []
        for _ in range(chance.randint(1, 4)):
            now += chance.choice([0.000001, 0.5, 100])
            rows.append({"id": written, "at": at(now)})
            written += 1
        put(form, tmp_path / str(number), rows, pack)
        if chance.random() < 0.5:
            seen += ids(source.poll())
    seen += ids(source.poll())
    assert seen == list(range(written))


@pytest.mark.parametrize("form", FORMS)
def test_files_below_the_window_are_deleted_and_it_still_works(tmp_path: Path, form: str) -> None:
    for number in range(3):
        put(form, tmp_path / str(number), [{"id": number, "at": at(number)}])
    source = poller(form, tmp_path)
    source.poll()
    put(form, tmp_path / "9", [{"id": 9, "at": at(9)}])
    _, tasks = source.plan()
    for number in range(3):
        (tmp_path / f"{number}.{form}").unlink()
    assert ids(rows_of(source.reader, source.access, tasks, source.fields)) == [9]


@pytest.mark.parametrize("form", FORMS)
def test_a_poll_without_news_scans_nothing(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(form, tmp_path / "a", [{"id": 1, "at": at(1)}])
    source = poller(form, tmp_path)
    source.poll()
    monkeypatch.setattr(LocalStorage, "read", None)
    monkeypatch.setattr(LocalStorage, "open_input", None)
    assert source.poll() == []


@pytest.mark.parametrize("form", FORMS)
def test_replaced_or_deleted_file_raises_source_error(tmp_path: Path, form: str) -> None:
    put(form, tmp_path / "a", [{"id": 1, "at": at(1)}])
    source = poller(form, tmp_path)
    _, tasks = source.plan()
    path = tmp_path / f"a.{form}"
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))
    with pytest.raises(SourceError, match="replaced by another"):
        rows_of(source.reader, source.access, tasks, source.fields)
    path.unlink()
    with pytest.raises(SourceError, match="gone now"):
        rows_of(source.reader, source.access, tasks, source.fields)


@pytest.mark.promise("G-145")
@pytest.mark.parametrize("form", FORMS)
def test_file_growth_during_reading_raises_source_error(tmp_path: Path, form: str) -> None:
    put(form, tmp_path / "a", [{"id": n, "at": at(n)} for n in range(3)])
    source = poller(form, tmp_path)
    _, tasks = source.plan()
    reading = source.reader(source.access, through_json(tasks[0]).spec, source.fields)
    next(reading)
    with (tmp_path / f"a.{form}").open("a") as stream:
        stream.write("7,7\n")
    with pytest.raises(SourceError, match="replaced by another"):
        list(reading)


@pytest.mark.parametrize("form", FORMS)
def test_damaged_compression_is_an_error_a_store_failure_passes(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(form, tmp_path / "a", [{"id": 1, "at": at(1)}], gzip.compress)
    path = tmp_path / f"a.{form}.gz"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(SourceError, match="not a complete gzip stream"):
        poller(form, tmp_path).plan()

    def failing(_: LocalStorage, path: str) -> bytes:
        raise Unavailable(f"{path}: Input/output error")

    monkeypatch.setattr(LocalStorage, "read", failing)
    with pytest.raises(Unavailable):
        poller(form, tmp_path).plan()


BIG = [2**53, 2**53 + 1, 2**63 - 1]
TEXTS = ["Z", "a", "é", "\uffee", "\U0001f600"]
NINES = "9" * 36 + ".99"
VALUES: list[tuple[str, FieldSpec, list[Any], list[Any]]] = [
    (
        "iso",
        field("c", "timestamp"),
        ["2026-05-04T12:00:00+02:00", "2026-05-04 10:00:00.000001"],
        [START.replace(hour=10), START.replace(hour=10, microsecond=1)],
    ),
    (
        "milliseconds",
        field("c", "timestamp", unit="ms"),
        [-1, 1],
        [
            dt.datetime(1969, 12, 31, 23, 59, 59, 999000, UTC),
            dt.datetime(1970, 1, 1, 0, 0, 0, 1000, UTC),
        ],
    ),
    (
        "dates",
        field("c", "date"),
        ["1969-12-31", "2026-01-01"],
        [dt.date(1969, 12, 31), dt.date(2026, 1, 1)],
    ),
    ("big numbers", field("c", "int64"), BIG, BIG),
    (
        "decimals",
        field("c", "decimal", precision=38, scale=2),
        ["-0.01", "0.10", NINES],
        [Decimal("-0.01"), Decimal("0.10"), Decimal(NINES)],
    ),
    ("text by bytes", field("c", "string"), TEXTS, TEXTS),
]


@pytest.mark.parametrize(
    ("spec", "texts", "values"), [v[1:] for v in VALUES], ids=[v[0] for v in VALUES]
)
@pytest.mark.parametrize("form", FORMS)
def test_watermarks_have_the_declared_type(
    tmp_path: Path, form: str, spec: FieldSpec, texts: list[Any], values: list[Any]
) -> None:
    source = poller(form, tmp_path, ("c",), (ID, spec))
    for number, (text, value) in enumerate(zip(texts, values, strict=True)):
        put(form, tmp_path / str(number), [{"id": number, "c": text}])
        assert ids(source.poll()) == [number]
        assert source.stored == {"c": value}


@pytest.mark.parametrize("odd", ["1_000_000", "٩٩٩"])
@pytest.mark.parametrize(
    "spec",
    [
        field("c", "int64"),
        field("c", "float64"),
        field("c", "decimal", precision=9, scale=0),
        field("c", "timestamp", unit="s"),
    ],
    ids=lambda spec: spec.type,
)
def test_watermark_ignores_numbers_in_python_only_notation(
    tmp_path: Path, spec: FieldSpec, odd: str
) -> None:
    """The row is a bad one, and rows that come later would lie below it."""
    put("csv", tmp_path / "a", [{"id": 1, "c": "5"}, {"id": 2, "c": odd}])
    source = poller("csv", tmp_path, ("c",), (ID, spec))
    source.poll()
    put("csv", tmp_path / "b", [{"id": 3, "c": "6"}])
    assert ids(source.poll()) == [3]


def test_numbers_of_json_keep_their_digits(tmp_path: Path) -> None:
    spec = field("c", "decimal", precision=38, scale=20)
    digits = "1234567890.12345678901234567890"
    (tmp_path / "a.json").write_text(f'{{"id": 1, "c": {digits}}}\n')
    source = poller("json", tmp_path, ("c",), (ID, spec))
    assert lines_of(source) == [f'{{"id": 1, "c": {digits}}}'.encode()]
    source.poll()
    assert source.stored == {"c": Decimal(digits)}


@pytest.mark.parametrize("form", FORMS)
def test_rows_without_a_readable_watermark_are_first_and_counted(tmp_path: Path, form: str) -> None:
    rows = [{"id": 1, "at": at(1)}, {"id": 2, "at": ""}, {"id": 3, "at": "soon"}]
    put(form, tmp_path / "a", rows)
    source = poller(form, tmp_path)
    bound = source.connect().bound("rows", 0)
    assert bound.value == {"at": START + dt.timedelta(seconds=1)}
    assert "without a readable value of at" in bound.warnings[0]
    assert ids(source.poll()) == [1, 2, 3]


def test_bad_lines_come_once_and_as_they_are(tmp_path: Path) -> None:
    source = poller("json", tmp_path)
    for number in range(3):
        good = json.dumps({"id": number, "at": at(number)}).encode()
        later = json.dumps({"id": number, "at": at(100)}).encode()
        deep = b'{"x": ' + b"[" * 5000 + b"]" * 5000 + b"}"
        bad = [deep, b"{", b"[1]", b"17", b'{"at": "\xff', b"\0"]
        data = [good, *bad, later] if number == 0 else [good]
        (tmp_path / f"{number}.json").write_bytes(b"\n".join(data))
    connection = source.connect()
    found: list[bytes] = []
    low: dict[str, Any] = {}
    for second in (1, 50, 100):
        up_to = {"at": START + dt.timedelta(seconds=second)}
        window = Window(low, up_to, low, nulls_first=not low)
        for task in connection.tasks(window, WindowSplit()):
            for rows in source.reader(source.access, through_json(task).spec, source.fields):
                assert isinstance(rows, bytes)
                found += rows.splitlines()
        low = up_to
    assert sorted(line for line in found if b"id" not in line) == sorted(
        [deep, b"{", b"[1]", b"17", b'{"at": "\xff', b"\0"]
    )
    assert len(found) == 6 + 4


@pytest.mark.parametrize("form", FORMS)
def test_bound_warns_about_files_with_only_bad_lines(tmp_path: Path, form: str) -> None:
    put(form, tmp_path / "a", [{"id": 1, "at": at(1)}])
    source = poller(form, tmp_path)
    source.poll()
    (tmp_path / f"b.{form}").write_text("id,at\n1\n" if form == "csv" else "{\n")
    assert source.poll() == []
    rows, files = source.connect().bound("rows", 0).warnings
    assert rows == "1 row without a readable value of at: treated as null"
    assert f"1 file without any value of at, such as b.{form}" in files


@pytest.mark.parametrize("form", FORMS)
def test_a_first_window_has_what_is_no_row_of_files_without_one(tmp_path: Path, form: str) -> None:
    put(form, tmp_path / "a", [{"id": 1, "at": at(1)}])
    (tmp_path / f"b.{form}").write_text("id,at\n1\n" if form == "csv" else '[{"id": 2}]\n')
    assert (b"1" if form == "csv" else b'[{"id": 2}]') in lines_of(poller(form, tmp_path))


@pytest.mark.parametrize("value", ["NaN", "[-Infinity, NaN]"])
def test_a_line_that_only_the_parser_takes_has_its_watermark(tmp_path: Path, value: str) -> None:
    put("json", tmp_path / "a", [{"id": 1, "at": at(1)}])
    source = poller("json", tmp_path)
    assert ids(source.poll()) == [1]
    line = f'{{"id": 2, "at": {json.dumps(at(2))}, "v": {value}}}\n'
    (tmp_path / "b.json").write_text(line)
    assert lines_of(source) == [line.strip().encode()]


def test_text_that_is_none_is_no_watermark(tmp_path: Path) -> None:
    lines = [b'{"id": "\xff"}', b'{"id": "\\ud800"}', b'{"id": true}', b'{"id": []}', b'{"id": 5}']
    (tmp_path / "a.json").write_bytes(b"\n".join(lines))
    bound = poller("json", tmp_path, ("id",), (ID,)).connect().bound("rows", 0)
    assert bound.value == {"id": 5}
    # To the parser the first two lines are no JSON at all.
    assert "2 rows without a readable value" in bound.warnings[0]


def test_a_line_that_is_too_long_is_a_bad_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blizzard_py.lines.framing.framed.__defaults__", (1 << 10, 1 << 12))
    long = b'{"id": 1}' + b" " * (1 << 21) + b"x"
    good = json.dumps({"id": 2, "at": at(1)}).encode()
    (tmp_path / "a.json").write_bytes(long + b"\n" + good + b"\n")
    found = lines_of(poller("json", tmp_path))
    assert found[-1] == good
    assert found[0].endswith(b"\0")
    assert len(found) == 2


def test_bad_rows_of_csv_come_with_the_header_of_their_file(tmp_path: Path) -> None:
    data = (
        f'id,at\n1,{at(1)}\n2\n3,{at(2)},x\n"4\n5",{at(3)}\n'.encode()
        + b"\xff,"
        + at(2).encode()
        + b"\n"
    )
    (tmp_path / "a.csv").write_bytes(data)
    source = poller("csv", tmp_path)
    _, tasks = source.plan()
    found = [
        (rows.head, around_of(rows.header))
        for task in tasks
        for rows in source.reader(source.access, through_json(task).spec, source.fields)
        if isinstance(rows, BadRecord)
    ]
    bad = [b"2", f"3,{at(2)},x".encode(), b"\xff," + at(2).encode()]
    assert sorted(found) == sorted((each, b"id,at") for each in bad)


def test_dialects_of_csv(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(
        b'\xef\xbb\xbfid;at;"v;w"\r\n1;' + at(1).encode() + b';"line\nbreak; ""quoted"""\r\n'
        b"2;" + at(2).encode() + b";\r\n3;" + at(3).encode() + b';""\r\n'
    )
    source = poller(
        "csv",
        tmp_path,
        fields=(ID, AT, field("v;w", "string")),
        form={"type": "csv", "delimiter": ";"},
    )
    found = {row["id"]: row["v;w"] for row in source.poll()}
    assert found == {"1": 'line\nbreak; "quoted"', "2": None, "3": ""}


def test_headers_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,id\n1,2\n")
    with pytest.raises(SourceError, match="has id twice"):
        poller("csv", tmp_path).plan()
    (tmp_path / "a.csv").write_bytes(b"id," + b"h" * (2 << 20) + b"\n1,2\n")
    with pytest.raises(SourceError, match=r"the header, or a line before it, is longer than"):
        poller("csv", tmp_path).plan()
    (tmp_path / "a.csv").write_text("id,v\n1,2\n")
    with pytest.raises(SourceError, match="no column at; there are id, v"):
        poller("csv", tmp_path).plan()


@pytest.mark.parametrize("form", FORMS)
def test_empty_files_have_no_rows(tmp_path: Path, form: str) -> None:
    (tmp_path / f"a.{form}").write_bytes(b"")
    put(form, tmp_path / "b", [{"id": 1, "at": at(1)}])
    if form == "csv":
        (tmp_path / "c.csv").write_bytes(b"id,at\n")
        (tmp_path / "d.csv").write_bytes(b"id,at")
        (tmp_path / "e.csv").write_bytes(b"\n\nid,at\n\n")
    source = poller(form, tmp_path)
    assert ids(source.poll()) == [1]
    assert source.poll() == []


@pytest.mark.parametrize("form", FORMS)
def test_columns_are_proposed(tmp_path: Path, form: str) -> None:
    put(form, tmp_path / "a", [{"id": 1, "at": at(1)}])
    found = poller(form, tmp_path).connect().columns()
    assert [each.name for each in found] == ["id", "at"]


@pytest.mark.parametrize("form", FORMS)
def test_watermark_must_be_declared_and_have_an_order(tmp_path: Path, form: str) -> None:
    with pytest.raises(SourceError, match="not in the schema"):
        poller(form, tmp_path, fields=(ID,))
    with pytest.raises(SourceError, match="has no order"):
        poller(form, tmp_path, fields=(ID, field("at", "json")))


@pytest.mark.parametrize("form", FORMS)
def test_a_snapshot_has_all_rows(tmp_path: Path, form: str) -> None:
    put(form, tmp_path / "a", [{"id": 1}, {"id": 2}])
    access = access_to(form, tmp_path)
    connection = scanned.connect(access, ReadSelection())
    assert connection.default_bound is None
    tasks = connection.tasks(Window(), WindowSplit())
    assert ids(rows_of(scanned.read, access, tasks, (ID,))) == [1, 2]


@pytest.mark.promise("G-168")
@pytest.mark.parametrize("form", FORMS)
def test_memory_is_bounded_whatever_there_is(tmp_path: Path, form: str) -> None:
    text = "x" * 400
    if form == "json":
        data = b"".join(
            b'{"id": %d, "at": "%s", "v": "%s"}\n' % (n, at(1).encode(), text.encode())
            for n in range(60_000)
        )
    else:
        data = b"id,at,v\n" + b"".join(
            b"%d,%s,%s\n" % (n, at(1).encode(), text.encode()) for n in range(60_000)
        )
    (tmp_path / f"a.{form}.gz").write_bytes(gzip.compress(data, 1))
    source = poller(form, tmp_path, fields=(ID, AT, field("v", "string")))
    _, tasks = source.plan()
    rows = 0
    for found in read_all(source.reader, source.access, tasks[0], source.fields):
        assert not isinstance(found, BadRecord)
        size = len(found) if isinstance(found, bytes) else found.nbytes
        assert size <= 16 << 20
        rows += found.count(b"\n") if isinstance(found, bytes) else found.num_rows
        assert isinstance(found, bytes) or found.num_rows <= 1 << 16
    assert rows == 60_000


def test_a_header_of_too_many_columns_is_refused_at_once(tmp_path: Path) -> None:
    """To look for each name among all of them took hours for a kilobyte of gzip."""
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"a,b," * 20_000, 9))
    with pytest.raises(SourceError, match=r"a\.csv\.gz: has more than 10,000 columns"):
        poller("csv", tmp_path).plan()
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"id,at," * 2000, 9))
    with pytest.raises(SourceError, match="the header has at, id twice"):
        poller("csv", tmp_path).plan()


def test_a_file_of_bad_rows_alone_is_not_held(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"id,at\n" + b"1\n" * 600_000, 9))
    source = poller("csv", tmp_path, ())
    [task] = source.connect().tasks(Window(), WindowSplit())
    heads = {bad.head for bad in source.reader(source.access, task.spec, source.fields)}  # type: ignore[union-attr]  # all are bad
    assert heads == {b"1"}


def test_samples_of_deeply_nested_json_end_no_process(tmp_path: Path) -> None:
    depth = 200_000
    (tmp_path / "a.json").write_bytes(b'{"id":' + b"[" * depth + b"]" * depth + b"}\n")
    code = (
        "from tests.blizzard_py.connections.lakes.test_text_files import poller\n"
        "from pathlib import Path\n"
        f"poller('json', Path({str(tmp_path)!r}), ()).connect().columns()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "SourceError" in ended.stderr
    assert "its first lines are not NDJSON" in ended.stderr
