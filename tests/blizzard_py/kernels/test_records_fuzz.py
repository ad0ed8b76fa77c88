"""Damaged files: every line that is not blank is a row or a bad record, whatever was damaged."""

from __future__ import annotations

import gzip
import json
import os
import signal
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blizzard_core.settings.sources import OnBadRecord
from blizzard_py.formats.ndjson.columns import RecordSchema
from blizzard_py.formats.ndjson.lines import NdjsonDecoder, NdjsonFormat
from blizzard_py.formats.ndjson.parse import LineParser
from blizzard_py.job import RowSchema
from blizzard_py.kernels import task
from blizzard_py.lines import decompress, framing, member_codecs
from tests.support.ingest_job_harness import IngestJobHarness, specs

BOTH_PATHS = pytest.mark.usefixtures("both_paths")

FIELDS = specs(id="int64", s="string", t="timestamp", f="float64")
BLANK = b" \t\r"

records = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-(2**63), 2**63 - 1) | st.none(),
        "s": st.text(max_size=12) | st.none(),
        "t": st.sampled_from(["2024-05-06T12:00:00Z", "2024-05-06", None]),
        "f": st.floats(allow_nan=False) | st.integers(-9, 9),
        "more": st.recursive(st.none() | st.text(max_size=3), st.lists, max_leaves=4),
    },
)
valid_lines = st.builds(
    lambda row, ascii_: json.dumps(row, ensure_ascii=ascii_).encode("utf-8", "surrogatepass"),
    records,
    st.booleans(),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid file with bytes flipped, cut out or doubled, and lines joined."""
    separator = draw(st.sampled_from([b"\n", b"\n", b"\r\n", b"\n\n"]))
    data = bytearray(separator.join(draw(st.lists(valid_lines, max_size=40))))
    for _ in range(draw(st.integers(0, 6))):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1))
        end = min(len(data), at + draw(st.integers(1, 20)))
        match draw(st.sampled_from(["flip", "cut", "double", "join", "insert"])):
            case "flip":
                data[at] ^= draw(st.integers(1, 255))
            case "cut":
                del data[at:end]
            case "double":
                data[at:at] = data[at:end]
            case "join":
                newline = data.find(b"\n", at)
                if newline >= 0:
                    del data[newline]
            case _:
                data[at:at] = draw(st.sampled_from([b"\n", b"null", b"{", b"}\n{", b"\xff", b"\0"]))
    return draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + bytes(data)


def lines_of(data: bytes) -> dict[int, tuple[int, bytes]]:
    """Offset and bytes of the lines that are not blank, by their number from 1."""
    offset = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    found = {}
    for number, line in enumerate(data[offset:].split(b"\n"), 1):
        if line.strip(BLANK):
            found[number] = (offset, line)
        offset += len(line) + 1
    return found


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a few lines, so that files have several."""
    monkeypatch.setattr(framing.framed, "__defaults__", (400, 600))
    monkeypatch.setattr(decompress, "BLOCK_BYTES", 128)
    monkeypatch.setattr(member_codecs, "BLOCK_BYTES", 128)
    monkeypatch.setattr(task, "SMALL_FILE_BYTES", 300)


@BOTH_PATHS
@settings(max_examples=100)
@given(
    st.lists(damaged(), min_size=1, max_size=4),
    st.sampled_from(["quarantine_record", "quarantine_file", "fail"]),
    st.booleans(),
)
def test_rows_and_bad_records_are_the_lines(
    tmp_path_factory: pytest.TempPathFactory,
    contents: list[bytes],
    on_bad_record: OnBadRecord,
    packed: bool,
) -> None:
    world = IngestJobHarness(tmp_path_factory.mktemp("fuzz"), fields=FIELDS)
    world.on_bad_record = on_bad_record
    world.metadata = ("_source_file", "_source_line")
    for number, data in enumerate(contents):
        world.put(
            f"{number}.{'gz' if packed else 'ndjson'}", gzip.compress(data) if packed else data
        )
    report = world.run_task()
    rows: dict[str, list[int]] = {}
    for row in world.rows(report):
        rows.setdefault(row["_source_file"], []).append(row["_source_line"])
    bad: dict[str, list[int]] = {}
    for letter in world.letters(report):
        bad.setdefault(letter["path"], []).append(letter["line"])
    for file, data in zip(report.files, contents, strict=True):
        uri = f"{world.source}/{file.path}"
        if file.outcome == "quarantined":
            assert on_bad_record != "quarantine_record"
            assert (file.stage, file.rows, file.bad_rows) == ("parse", 0, 0)
            assert uri not in rows
            assert uri not in bad
            continue
        expected = lines_of(data)
        assert sorted(rows.get(uri, []) + bad.get(uri, [])) == sorted(expected)
        assert (file.rows, file.bad_rows) == (len(rows.get(uri, [])), len(bad.get(uri, [])))
        assert on_bad_record == "quarantine_record" or uri not in bad
    for letter in world.letters(report):
        offset, line = lines_of(contents[int(letter["path"].rpartition("/")[2][0])])[letter["line"]]
        assert (letter["offset"], letter["length"]) == (offset, len(line))


@BOTH_PATHS
@settings(max_examples=60)
@given(damaged(), st.integers(0, 10_000), st.integers(0, 255), st.sampled_from(["cut", "flip"]))
def test_damaged_gzip_is_quarantined_or_read_completely(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, at: int, by: int, how: str
) -> None:
    packed = bytearray(gzip.compress(data, mtime=0))
    at %= len(packed)
    if how == "cut":
        del packed[at:]
    else:
        packed[at] ^= by
    world = IngestJobHarness(tmp_path_factory.mktemp("gzip"), fields=FIELDS)
    world.put("a.ndjson.gz", bytes(packed))
    world.put("b.ndjson", b'{"id":7}\n')
    report = world.run_task()
    file, neighbour = report.files
    assert (neighbour.outcome, neighbour.rows) == ("ingested", 1)
    if file.outcome == "quarantined":
        assert (file.stage, file.rows, file.bad_rows) == ("decompress", 0, 0)
        assert world.letters(report) == []
        assert len(world.rows(report)) == 1
    else:  # the checksum holds: the damage was in a field that does not matter
        assert file.rows + file.bad_rows == len(lines_of(data))


class DeadlySchema(RecordSchema):
    """Some values kill the process that converts them."""

    def finish(self, table: pa.Table, chunk: bytes) -> pa.Table:
        if 13 in table.column("id").to_pylist():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().finish(table, chunk)


class DeadlyFormat(NdjsonFormat):
    """Lines of that schema."""

    def decoder(self, schema: RowSchema, *, tolerant: bool, fast: bool) -> NdjsonDecoder:
        return NdjsonDecoder(LineParser(DeadlySchema(schema.fields), tolerant=tolerant, fast=fast))


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(task, "format_of", lambda _: DeadlyFormat())
    return


@pytest.mark.usefixtures("deadly")
@settings(max_examples=3)
@given(
    st.lists(st.sampled_from([b'{"id":13}', b'{"id":1}', b"oops", b"", b'{"id":2}']), max_size=9)
)
def test_lines_that_kill_lose_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes]
) -> None:
    world = IngestJobHarness(tmp_path_factory.mktemp("deadly"), fields=FIELDS)
    world.put("a.ndjson", b"\n".join(contents))
    world.put("b.ndjson", b'{"id":7}\n')
    report = world.run_task(attempt=1)
    good = [int(line[6:-1]) for line in contents if line.startswith(b"{") and b"13" not in line]
    assert world.ids(report) == sorted([*good, 7])
    lost = [letter["raw"].encode() for letter in world.letters(report)]
    assert lost == [line for line in contents if line in {b'{"id":13}', b"oops"}]
