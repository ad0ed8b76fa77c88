"""The format of JSON documents: every record once, at its place, however the file is cut."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from blizzard_core.limits import RECORDS_LEVELS
from blizzard_core.settings.formats import FormatSettings, JsonOptions
from blizzard_py.dead_letters.reader import DeadLetter
from blizzard_py.formats.child_process import ChildProcess
from blizzard_py.formats.grouping import shares
from blizzard_py.formats.isolate import IsolatedDecoder
from blizzard_py.formats.json_documents import documents
from blizzard_py.formats.json_documents.documents import JsonFormat
from blizzard_py.formats.json_documents.records import read_records
from blizzard_py.formats.json_documents.text import DocumentText
from blizzard_py.formats.protocol import Decoder
from blizzard_py.job import RowSchema
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import Piece, RefusedRecord
from tests.support.ingest_job_harness import IngestJobHarness, by_path, specs
from tests.support.memory_file import MemoryFile

FIELDS = specs(id="int64", s="string", j="json")
SCHEMA = RowSchema(FIELDS)
TEXTS = ["x", '"', "\\", '\\"', "a,b", "}{", "][", "é", "\n", "\\\\", "𝄞", "]}", ",", ""]
SPACES = ["", " ", "\n", "\r\n", "\n  ", "\t", "  \n\n"]
Row = dict[str, Any]


@dataclass(frozen=True)
class Verdicts:
    """Numbers and rows, and number, offset, bytes and reason of what is bad; or the failure."""

    rows: tuple[tuple[int, Row], ...] = ()
    bad: tuple[tuple[int, int, bytes, str], ...] = ()
    failure: str = ""


def decoded(items: Sequence[Piece | RefusedRecord], decoder: Decoder) -> Verdicts:
    rows: list[tuple[int, Row]] = []
    bad: list[tuple[int, int, bytes, str]] = []
    number = 0
    for item in items:
        if isinstance(item, RefusedRecord):
            number += 1
            bad.append((number, item.offset, item.head, item.reason))
            continue
        parsed = decoder.decode(item)
        [share], numbers = shares(parsed, [item])
        found = parsed.table.to_pylist()
        rows += [(number + at, row) for at, row in zip(numbers.tolist(), found, strict=True)]
        bad += [(number + b.index + 1, b.offset, b.head, b.reason) for b in share.bad]
        number += parsed.lines
    return Verdicts(tuple(rows), tuple(bad))


def verdicts(
    content: bytes, form: JsonFormat | None = None, block: int = 1 << 20, *, fast: bool = True
) -> Verdicts:
    form = form or JsonFormat()
    try:
        items = list(form.pieces(MemoryFile(content, block), RowSchema(FIELDS)))
    except FileFailed as error:
        return Verdicts(failure=f"{error.stage}: {error.reason}")
    return decoded(items, form.decoder(SCHEMA, tolerant=True, fast=fast))


def framed(content: bytes, slice_bytes: int, *, fast: bool, limit: int = 1 << 20) -> object:
    """Return the records with their offsets, or the failure."""
    text = DocumentText(MemoryFile(content, 1).blocks(), slice_bytes)
    found = []
    try:
        for item in read_records(text, (), "a.json", limit=limit, fast=fast):
            if isinstance(item, RefusedRecord):
                found.append((item.offset, item.length))
                continue
            lines = item.data.split(b"\n")[:-1]
            offset = item.offset
            for line in lines:
                stripped = line.rstrip(b" \t\r")
                found.append((offset, len(stripped)))
                offset += len(line) + (item.context is None)
    except FileFailed as error:
        return error.reason
    return found


def rows_of(found: Verdicts) -> list[Row]:
    return [row for _, row in found.rows]


def random_record(rng: random.Random) -> Row:
    inner = [rng.choice(TEXTS), {"k": None, rng.choice(TEXTS): [[], {}]}, 1.5, True]
    record = {"id": rng.randrange(-9, 9), "s": "".join(rng.choices(TEXTS, k=rng.randrange(3)))}
    return record | ({"j": rng.choice(inner)} if rng.random() < 0.6 else {})


def random_document(rng: random.Random, records: Sequence[object]) -> bytes:
    """Return a document of the records: at the root, behind each other or at data.items."""
    indent = rng.choice([None, 1, 4])
    end = rng.choice(["\n", "\r\n"])
    texts = [json.dumps(r, indent=indent, ensure_ascii=rng.random() < 0.5) for r in records]
    space = rng.choice(SPACES) if rng.random() < 0.7 else None
    gaps = [rng.choice(SPACES) if space is None else space for _ in texts]
    if rng.random() < 0.3 and texts:
        return "".join(g + t for g, t in zip(gaps, texts, strict=True)).replace("\n", end).encode()
    inside = ",".join(g + t + gaps[0] for g, t in zip(gaps, texts, strict=True))
    return f"{gaps[0] if gaps else ''}[{inside}]{end}".replace("\n", end).encode()


def check_records_equal_those_of_json_in_any_blocks(seed: int) -> None:
    rng = random.Random(seed)
    records = [random_record(rng) for _ in range(rng.randrange(1, 7))]
    content = random_document(rng, records)
    whole = verdicts(content)
    assert not whole.failure
    assert not whole.bad
    assert [number for number, _ in whole.rows] == list(range(1, len(records) + 1))
    assert [(r["id"], r["s"]) for r in rows_of(whole)] == [(r["id"], r["s"]) for r in records]
    for row, record in zip(rows_of(whole), records, strict=True):
        assert (row["j"] and json.loads(row["j"])) == record.get("j")
    for block in rng.sample(range(1, 21), 2):
        for size in (1, 64, 1 << 20):
            assert verdicts(content, JsonFormat(slice_bytes=size), block) == whole


@pytest.mark.parametrize("start", range(0, 300, 75))
def test_records_equal_those_of_json_in_any_blocks(start: int) -> None:
    for seed in range(start, start + 75):
        check_records_equal_those_of_json_in_any_blocks(seed)


def check_bad_records_are_found_at_their_bytes(seed: int) -> None:
    rng = random.Random(seed)
    records: list[object] = [random_record(rng) for _ in range(rng.randrange(1, 7))]
    bad = {rng.randrange(len(records)): rng.choice([1, "a,]}", None, [{"id": 1}], {"id": "x"}])}
    mixed = [bad.get(at, record) for at, record in enumerate(records)]
    content = b" [%s ]" % b" ,\n ".join(
        json.dumps(r, indent=rng.choice([None, 2])).encode() for r in mixed
    )
    whole = verdicts(content)
    assert not whole.failure
    assert [number - 1 for number, *_ in whole.bad] == sorted(bad)
    for number, offset, raw, _ in whole.bad:
        assert content[offset : offset + len(raw)] == raw
        assert json.loads(raw) == mixed[number - 1]
    mended = verdicts(b"[%s]" % json.dumps(records).encode()[1:-1])
    assert list(whole.rows) == [row for row in mended.rows if row[0] - 1 not in bad]
    for block in rng.sample(range(1, 21), 2):
        for size in (1, 1 << 20):
            form = JsonFormat(slice_bytes=size)
            assert verdicts(content, form, block) == whole
            assert verdicts(content, form, block, fast=False) == whole


@pytest.mark.parametrize("size", [1, 2, 7, 64, 1 << 20])
def test_letters_show_line_ends_as_they_stand(size: int) -> None:
    bad = [
        b'{\n\n"id": "x"\n \n\n}',
        b'{\r\n\r\n"id":\r\n"x"}',
        b'{\r\n\n"id": "x"\n\r\n}',
        b'{"id": "a\nb"}',
        b'{"id": "a\r\n\r\nb"}',
    ]
    content = b"[\r\n%s\n]\r\n" % b",\n\r\n".join([*bad, b'{\n\r\n"id": 1}'])
    for block in (1, 3, 1 << 20):
        found = verdicts(content, JsonFormat(slice_bytes=size), block)
        assert [raw for _, _, raw, _ in found.bad] == bad
        assert rows_of(found) == [{"id": 1, "s": None, "j": None}]
    assert verdicts(b"\r" * 3000).failure


@pytest.mark.parametrize("start", range(0, 300, 75))
def test_bad_records_are_found_at_their_bytes(start: int) -> None:
    for seed in range(start, start + 75):
        check_bad_records_are_found_at_their_bytes(seed)


ALPHABET = b'{}[]",\\:1 \n\ra'


def check_any_text_is_framed_alike_in_any_slices(seed: int) -> None:
    """Structure with errors: the arrays and the walk agree about records and the first error."""
    rng = random.Random(seed)
    content = bytearray(b"[" if rng.random() < 0.7 else b"{")
    if rng.random() < 0.5:
        content += bytes(rng.choices(ALPHABET, k=rng.randrange(40)))
    else:
        content = bytearray(random_document(rng, [random_record(rng) for _ in range(5)]))
        for _ in range(rng.randrange(1, 3)):
            at = rng.randrange(len(content))
            content[at : at + rng.randrange(2)] = bytes(rng.choices(ALPHABET, k=rng.randrange(3)))
    limit = rng.choice([10, 30, 1 << 20])
    expected = framed(bytes(content), 1, fast=False, limit=limit)
    for size in (2, 3, 5, 8, 13, 40, 1 << 20):
        for fast in (True, False):
            assert framed(bytes(content), size, fast=fast, limit=limit) == expected


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_any_text_is_framed_alike_in_any_slices(start: int) -> None:
    for seed in range(start, start + 100):
        check_any_text_is_framed_alike_in_any_slices(seed)


CUT = [
    b'[{"id":1,"s":"a\\"]"},\n {"id":2,"j":[1,{"k":"}"}]} ]',
    b'{"n":"]","data":{"x":[[]],"items":[{"id":1},{"id":2}],"y":1},"z":[{"a":"b"}]}',
    b'{"id":1}\n{"id":2,"s":"}"}',
    b'{"id":1}{"id":2}',
]


@pytest.mark.parametrize("content", CUT)
@pytest.mark.parametrize("size", [1, 6, 1 << 20])
def test_a_cut_document_is_refused(content: bytes, size: int) -> None:
    form = JsonFormat(("data", "items") if b"items" in content else (), slice_bytes=size)
    whole = verdicts(content, form)
    assert len(whole.rows) == 2
    for length in range(len(content)):
        found = verdicts(content[:length], form)
        if content.startswith(b"{") and not form.keys and found.rows:
            # Objects behind each other may end behind any of them.
            assert content[:length].strip() == content[: content.index(b"}") + 1]
            assert found.rows == whole.rows[:1]
        else:
            assert found.failure or found == whole, content[:length]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file has no document: it ends at byte 0"),
        (b" \n", "the file has no document"),
        (b'"a"', "neither an object nor an array at byte 0"),
        (b'[{"id":1},]', "a record is missing before ']' at byte 10"),
        (b'[,{"id":1}]', "a record is missing before ',' at byte 1"),
        (b'[{"id":1},,{"id":2}]', "a record is missing before ',' at byte 10"),
        (b'[{"id":1}{"id":2}]', "a comma or the end of the array is expected at byte 9"),
        (b'[{"id":1} 7]', "a comma or the end of the array is expected at byte 10"),
        (b'["a""b"]', "a comma or the end of the array is expected at byte 4"),
        (b'[{"id":1}]]', "text follows the document at byte 10"),
        (b'[{"id":1}]\n[{"id":2}]', "text follows the document at byte 11"),
        (b'[{"id":1]]', "']' closes a record that begins with '{' at byte 8"),
        (b'[{"id":1}}', "a comma or the end of the array is expected at byte 9"),
        (b'[{"s":"a},{"id":2}]', "the file ends in a record that begins at byte 1"),
        (b'[{"id":1},{"id":2}', "the file ends in the array of records at byte 18"),
        (b'{"id":1},{"id":2}', "an object is expected behind the one before at byte 8"),
        (b'{"id":1} x', "an object is expected behind the one before at byte 9"),
        (b"\xff\xfe[\0]\0", "UTF-16 or UTF-32 at byte 0; set the encoding"),
        (b"[\0]\0", "UTF-16 or UTF-32"),
    ],
)
def test_a_wrong_structure_fails_the_file(content: bytes, reason: str) -> None:
    for size in (1, 4, 1 << 20):
        found = verdicts(content, JsonFormat(slice_bytes=size)).failure
        assert found.startswith(f"parse: {reason}")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"data":{}}', "data.items is missing: its object ends at byte"),
        (b'{"error":"no"}', "data is missing: its object ends"),
        (b'{"data":[]}', "data is not an object at byte 8"),
        (b'[{"data":{"items":[]}}]', "the document is not an object at byte 0"),
        (b'{"data":{"items":null}}', "data.items is not an array at byte 17"),
        (b'{"data":{"items":[],"items":[{"id":1}]}}', "data.items stands a second time"),
        (b'{"data":{"items":[]},"d\\u0061ta":1}', "data stands a second time"),
        (b'{"data":{"items":[]}} {}', "text follows the document at byte 22"),
        (b'{"data" {"items":[]}}', ": is missing at byte 8"),
        (b'{"a":1 "data":{"items":[]}}', ", is missing at byte 7"),
        (b'{"a":,"data":{"items":[]}}', "a value is missing at byte 5"),
        (b'{"data":{"items":[]},', "the file ends in an object at byte 21"),
    ],
)
def test_a_wrong_path_fails_the_file(content: bytes, reason: str) -> None:
    for size in (1, 4, 1 << 20):
        form = JsonFormat(("data", "items"), slice_bytes=size)
        assert verdicts(content, form).failure.startswith(f"parse: {reason}")


def test_records_are_read_at_a_path() -> None:
    content = b'{"a":[{"data":1}],"s":"\\"data\\":","data":{"b":{"items":[]},"n":-1.5,"items":\n'
    content += b'[{"id":1},\n{"id":2}],"c":{"items":[7]}},"end":"]"}'
    for size in (1, 5, 1 << 20):
        found = verdicts(content, JsonFormat(("data", "items"), slice_bytes=size))
        assert [row["id"] for row in rows_of(found)] == [1, 2], found


def test_an_empty_array_has_no_records() -> None:
    assert verdicts(b"[ ]\n") == Verdicts()
    assert verdicts(b'{"a":[]}', JsonFormat(("a",))) == Verdicts()


def test_a_byte_order_mark_counts_in_offsets() -> None:
    found = verdicts(b'\xef\xbb\xbf[{"id":1},2]')
    assert [row["id"] for row in rows_of(found)] == [1]
    assert found.bad[0][:3] == (2, 13, b"2")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_other_encodings_are_read(encoding: str) -> None:
    text = '[{"id":1,"s":"é𝄞"}]'
    found = verdicts(text.encode(encoding), JsonFormat(encoding=encoding), 3)
    assert rows_of(found)[0]["s"] == "é𝄞"
    cut = verdicts(text.encode(encoding)[:-1], JsonFormat(encoding=encoding))
    assert cut.failure == f"parse: the file is not {encoding}; set the encoding of the format"


@pytest.mark.parametrize(
    "bad",
    [
        b'{"id":NaN}',
        b'{"id":1,}',
        b'{"id":1 "s":"a"}',
        b'{"s":"a\nb"}',
        b'{"s":"a\rb"}',
        b'{"s":"\xff"}',
        b'{"id":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":[}}',
        b"tru",
    ],
)
def test_a_bad_record_leaves_its_neighbours(bad: bytes) -> None:
    content = b'[{"id":1},%s,{"id":3}]' % bad
    found = verdicts(content)
    assert [(number, row["id"]) for number, row in found.rows] == [(1, 1), (3, 3)]
    [(number, offset, raw, _)] = found.bad
    assert (number, offset, len(raw)) == (2, 10, len(bad))


def test_a_record_above_the_limit_is_passed_over() -> None:
    big = b'{"s":"' + b"a" * 400_000 + b'"}'
    for content in (b'[{"id":1},%s,{"id":3}]' % big, b'{"id":1}%s{"id":3}' % big):
        for size in (1000, 2 << 20):
            text = DocumentText(MemoryFile(content, 1000).blocks(), size)
            first, refused, last = read_records(text, (), "a", limit=300_000)
            assert isinstance(first, Piece)
            assert isinstance(last, Piece)
            assert last.data == b'{"id":3}\n'
            assert isinstance(refused, RefusedRecord)
            assert (refused.length, refused.reason) == (len(big), "longer than 300000 bytes")
            assert content[refused.offset :].startswith(refused.head)


def test_a_document_without_end_is_read_in_little_memory() -> None:
    def blocks() -> Iterator[bytes]:
        yield b'[{"s":"'
        for _ in range(100):
            yield b"a" * (1 << 20)

    with pytest.raises(FileFailed, match="ends in a record that begins at byte 1"):
        list(read_records(DocumentText(blocks()), (), "a"))


def test_pieces_are_cut_by_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    content = b'{"id":1}{"id":2}{"id":"x"}{"id":4}{"id":"y"}'
    whole = verdicts(content)
    assert [bad[1:3] for bad in whole.bad] == [(16, b'{"id":"x"}'), (34, b'{"id":"y"}')]
    few = documents.portions
    monkeypatch.setattr(documents, "portions", lambda items, shape: few(items, shape, most=48))
    assert verdicts(content) == whole


@pytest.mark.parametrize(
    "content", [b'{"id":1}{"id":"x"}{"id":3}5'[:-1], b'[{"id":1}, 7 ,{"id":3}]']
)
def test_isolated_decoding_gives_the_same(content: bytes) -> None:
    form = JsonFormat()
    items = list(form.pieces(MemoryFile(content), RowSchema(FIELDS)))
    expected = decoded(items, form.decoder(SCHEMA, tolerant=True, fast=True))
    decoder = form.decoder(SCHEMA, tolerant=True, fast=False)
    with ChildProcess() as nursery:
        alone = IsolatedDecoder(nursery, form, SCHEMA, tolerant=True)
        assert decoded(items, alone) == expected  # type: ignore[arg-type]
    halves = decoder.halves(items[0])  # type: ignore[arg-type]
    again = decoded([*halves], decoder)
    assert again == expected
    read = decoder.records(items[0])  # type: ignore[arg-type]
    for index in range(3):
        offset, raw, _ = read[index]
        assert content[items[0].offset + offset :].startswith(raw)


def letters_of(*records: bytes) -> list[DeadLetter]:
    return [
        DeadLetter(uri="file:///a.json", error="", stage="parse", timestamp="", line=n, raw=raw)
        for n, raw in enumerate(records)
    ]


def test_letters_are_replayed_as_an_array() -> None:
    form = JsonFormat(("data",), "utf-16")
    letters = letters_of(b'{"id":1}', b"7", b'{\r\n"id":"\n"}', b'{"id":4}\r')
    mark = b"\xef\xbb\xbf"
    assert form.replay_contents(letters) == [
        mark + b'[{"id":1},\n7,\n{\r\n"id":"\n"},\n{"id":4}]\n'
    ]
    assert form.replay_settings() == JsonOptions(type="json")
    foreign = [b'{"id":1', b'{"id":1},{"id":2}', b"7]", b'"x', b"[1}"]
    assert form.replay_contents(letters_of(*foreign, b"{}")) == [
        mark + b"[{}]\n", *(mark + raw for raw in foreign)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "record",
    [
        b'{"id":1,"s":"a\nb"}', b'{"id":1,"s":"a\r\nb"}', b'{"id":1,\n"s":"a\tb"}',
        b'{"id":"\xff"}', b'"\0"', b"tru", b"[1]", b'{"id":\n"x"}', b'{"id":1,"id":2}', b'"\\q"',
    ],
)  # fmt: skip
@pytest.mark.parametrize("unspaced", [False, True])
def test_letters_are_the_same_when_nothing_has_changed(
    tmp_path: Path, record: bytes, unspaced: bool
) -> None:
    it = harness(tmp_path)
    objects = unspaced and record.startswith(b"{")
    it.put("a.json", b'{"id":7}' + record if objects else b'[{"id":7},' + record + b"]")
    letters = it.dead_letters(it.run_task())
    assert [letter.raw for letter in letters] == [record]
    form = JsonFormat()
    [content] = form.replay_contents(letters)
    again = IngestJobHarness(
        tmp_path / "again", fields=FIELDS, format=form.replay_settings(), metadata=()
    )
    again.put("a.json", content)
    report = again.run_task()
    assert again.rows(report) == []
    [letter] = again.dead_letters(report)
    assert (letter.raw, letter.error) == (record, letters[0].error)


# --- whole tasks --------------------------------------------------------------------------------


def harness(root: Path, **options: Any) -> IngestJobHarness:
    return IngestJobHarness(
        root, fields=FIELDS, format=JsonOptions(type="json", **options), metadata=()
    )


def test_an_element_of_nul_quarantines_its_file_alone(tmp_path: Path) -> None:
    it = harness(tmp_path)
    it.put("a.json", b'[{"id":1},\0]')
    it.put("b.json", b'[{"id":2}]')
    assert [file.outcome for file in it.run_task().files] == ["quarantined", "ingested"]


@pytest.mark.parametrize("attempt", [0, 1])
def test_files_are_ingested_with_their_letters(tmp_path: Path, attempt: int) -> None:
    it = harness(tmp_path)
    it.put("a.json", b'[\n  {"id":1},\n  {"id":\n"x"},\n  {"id":3}\n]\n')
    it.put("b.json", b'{"id":4}{"id":"y"}{"id":5}')
    it.put("c.json", b'[{"id":6},{"id":7}')
    it.put("d.json", b"[]")
    it.put("e.json", b'[{"id":8},9]')
    it.put("f.json", b"[" + b",\n".join(b'{"id":%d}' % n for n in range(100, 400_100)) + b"]")
    report = it.run_task(attempt=attempt)
    files = by_path(report)
    assert [files[f"{n}.json"].rows for n in "abcdef"] == [2, 2, 0, 0, 1, 400_000]
    assert files["c.json"].outcome == "quarantined"
    assert files["c.json"].error.startswith("the file ends in the array of records at byte 18")
    assert it.ids(report) == [1, 3, 4, 5, 8, *range(100, 400_100)]
    letters = it.letters(report)
    assert [(each["path"][-6:], each["line"], each["raw"]) for each in letters] == [
        ("a.json", 2, '{"id":\n"x"}'),
        ("b.json", 2, '{"id":"y"}'),
        ("e.json", 2, "9"),
    ]
    for each in letters:
        content = (it.source / each["path"][-6:]).read_bytes()
        raw = each["raw"].encode()
        assert content[each["offset"] : each["offset"] + each["length"]] == raw


def test_a_large_file_is_all_or_nothing(tmp_path: Path) -> None:
    it = harness(tmp_path, records="data.items")
    rows = b",".join(b'{"id":%d,"s":"%s"}' % (n, b"a" * 90) for n in range(60_000))
    it.put("a.json", b'{"data":{"items":[%s]}}' % rows)
    it.put("b.json", b'{"data":{"items":[%s]}' % rows)
    files = by_path(report := it.run_task(threads=2))
    assert files["a.json"].rows == 60_000
    assert files["b.json"].outcome == "quarantined"
    assert it.ids(report) == list(range(60_000))


# --- settings -----------------------------------------------------------------------------------


def test_a_path_of_records_is_checked() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(FormatSettings)
    assert adapter.validate_python("json").keys == ()
    assert adapter.validate_python({"type": "json", "records": "a.b"}).keys == ("a", "b")
    assert adapter.validate_python("ndjson").type == "ndjson"
    for records in ("a..b", ".", ".".join("a" * (RECORDS_LEVELS + 1))):
        with pytest.raises(ValidationError, match="is no path: write at most 16 names"):
            adapter.validate_python({"type": "json", "records": records})
    with pytest.raises(ValidationError, match="charset is encoding here"):
        adapter.validate_python({"type": "json", "charset": "utf-16"})
