"""The format XML: values by their declared types, letters, and whole tasks."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from blizzard_core.limits import XML_ATTRIBUTES, XML_LEVELS
from blizzard_core.settings.formats import FormatSettings, XmlOptions
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.protocol import Entry
from blizzard_py.dead_letters.reader import DeadLetter
from blizzard_py.formats.child_process import ChildProcess
from blizzard_py.formats.isolate import IsolatedDecoder
from blizzard_py.formats.names import format_of
from blizzard_py.formats.protocol import BadLine, Parsed
from blizzard_py.job import FieldSpec, JobFile, PartitionRule, RowSchema
from blizzard_py.kernels import task
from blizzard_py.lines.framing import Piece
from blizzard_py.sources.files.lines import read_records
from blizzard_py.sources.files.sampling import first_records
from tests.support.ingest_job_harness import IngestJobHarness, by_path, specs

ITEM = FieldSpec("item", "struct", nullable=True, children=specs(sku="string", _n="int32"))
FIELDS = (
    *specs(id="int64", note="string", at="timestamp", any="json", _k="string"),
    FieldSpec("price", "decimal", nullable=True, precision=10, scale=2),
    ITEM,
    FieldSpec("tag", "list", nullable=True, children=specs(element="string")),
    FieldSpec("codes", "map", nullable=True, children=specs(value="int32")),
    FieldSpec(
        "line", "list", nullable=True,
        children=(FieldSpec("element", "struct", nullable=True, children=ITEM.children),),
    ),
)  # fmt: skip

MARKS = b">/![]\"'& =ae\xff\x00"


def options(**given: Any) -> XmlOptions:
    return XmlOptions.model_validate({"type": "xml", "row_tag": "event", **given})


def piece_of(*records: str) -> Piece:
    data = "\n".join(records).encode("utf-8", "surrogateescape")
    return Piece(data, 0, lines=len(records), context=b"")


def decoded(
    *records: str,
    fields: tuple[FieldSpec, ...] = FIELDS,
    form: XmlOptions | None = None,
    **schema: Any,
) -> Parsed:
    decoder = format_of(form or options()).decoder(
        RowSchema(fields, **schema), tolerant=True, fast=True
    )
    return decoder.decode(piece_of(*records))


def row_of(inside: str, tag: str = "event", **given: Any) -> dict[str, Any]:
    """Return the values that are not null."""
    parsed = decoded(f"<{tag}>{inside}</event>", **given)
    assert not parsed.bad
    [row] = parsed.table.to_pylist(maps_as_pydicts="strict")
    return {name: value for name, value in row.items() if value is not None}


def reason_of(inside: str, **given: Any) -> str:
    [bad] = decoded(f"<event>{inside}</event>", **given).bad
    return bad.reason


VALUES: list[tuple[str, dict[str, Any]]] = [
    ("", {}),
    ("<id> 7 </id>", {"id": 7}),
    ("<id/><price></price><at> </at>", {}),
    ("<note/>", {"note": ""}),
    ("<note>  a  b </note>", {"note": "a  b"}),
    ("<note>a&lt;<![CDATA[b<c>]]><!-- x -->&#228;</note>", {"note": "a<b<c>ä"}),
    ("<note lang='de'>x</note>", {"note": "x"}),
    ("<price cur='EUR'>1.50</price>", {"price": Decimal("1.50")}),
    ("<item n='3'><sku>a</sku></item>", {"item": {"sku": "a", "_n": 3}}),
    ("<item n='3'/>", {"item": {"sku": None, "_n": 3}}),
    ("<item/>", {}),
    ("<item>text</item>", {"item": {"sku": None, "_n": None}}),
    ("<tag>a</tag>", {"tag": ["a"]}),
    ("<tag>a</tag><id>1</id><tag/><tag>b</tag>", {"id": 1, "tag": ["a", "", "b"]}),
    ("<codes><a>1</a><b>2</b></codes>", {"codes": {"a": 1, "b": 2}}),
    ("<codes/>", {}),
    ("<line n='1'/><line><sku>b</sku></line>",
     {"line": [{"sku": None, "_n": 1}, {"sku": "b", "_n": None}]}),
    ("<line/><line><sku>b</sku></line>", {"line": [None, {"sku": "b", "_n": None}]}),
    ("<any>1</any>", {"any": '"1"'}),
    ("<any k='1'>t<a>x</a><a/></any>", {"any": '{"_k":"1","a":["x",""],"_VALUE":"t"}'}),
    ("<any>1</any><any>2</any>", {"any": '["1","2"]'}),
]  # fmt: skip


@pytest.mark.parametrize(("inside", "row"), VALUES)
def test_elements_are_values_of_their_types(inside: str, row: dict[str, Any]) -> None:
    assert row_of(inside) == row


INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
NILS: list[tuple[str, dict[str, Any]]] = [
    ("<note xsi:nil='true'/>", {"note": None}),
    ("<note xsi:nil=' 1 '> </note>", {"note": None}),
    ("<note xsi:nil='false'/>", {"note": ""}),
    ("<note xsi:nil='0'>x</note>", {"note": "x"}),
    ("<note xsi:nil='true'>x</note>", {"note": "x"}),
    ("<price xsi:nil='true'/>", {"price": None}),
    ("<item xsi:nil='true'/>", {"item": None}),
    ("<item n='3' xsi:nil='true'/>", {"item": {"sku": None, "_n": 3}}),
    ("<item xsi:nil='true'><sku>a</sku></item>", {"item": {"sku": "a", "_n": None}}),
    ("<item><sku xsi:nil='true'/></item>", {"item": {"sku": None, "_n": None}}),
    ("<tag xsi:nil='true'/>", {"tag": None}),
    ("<tag xsi:nil='true'/><tag>a</tag><tag xsi:nil='true'/>", {"tag": [None, "a", None]}),
    ("<codes><a xsi:nil='true'/></codes>", {"codes": {"a": None}}),
    ("<any xsi:nil='true'/>", {"any": None}),
    ("<any k='1' xsi:nil='true'/>", {"any": '{"_k":"1"}'}),
    ("<any><a xsi:nil='true'/><b>x</b></any>", {"any": '{"a":null,"b":"x"}'}),
    (f"<note i:nil='true' xmlns:i='{INSTANCE}'/>", {"note": None}),
]  # fmt: skip


@pytest.mark.parametrize(("inside", "row"), NILS)
@pytest.mark.parametrize("excludes", [False, True])
def test_an_element_that_is_nil_is_null(
    inside: str, row: dict[str, Any], *, excludes: bool
) -> None:
    given = {"unexpected_fields": "fail", "form": options(exclude_attribute=excludes)}
    if excludes and "='3'" in inside:
        row = {"item": None}
    elif excludes and "k='1'" in inside:
        row = {"any": None}
    parsed = decoded(f"<event>{inside}</event>", **given)
    assert not parsed.bad
    [found] = parsed.table.to_pylist(maps_as_pydicts="strict")
    assert {name: found[name] for name in row} == row


def test_the_prefix_of_nil_is_one_that_is_declared_around_it() -> None:
    nil = "<note i:nil='true'/>"
    records = [
        f"<event xmlns:i='{INSTANCE}'><id>1</id>{nil}</event>",
        f"<event xmlns:i='urn:i'><id>2</id>{nil}</event>",
        "<event><id>3</id><note xsi:nil='maybe'/></event>",
    ]
    decoder = format_of(options()).decoder(RowSchema(FIELDS), tolerant=True, fast=True)
    piece = piece_of(*records)
    parsed = decoder.decode(piece)
    assert parsed.table["note"].to_pylist() == [None, "", ""]
    assert parsed.unexpected == {"note._i:nil", "note._xsi:nil"}
    header = f"xmlns:a='urn:a' xmlns:i=\"{INSTANCE}\"".encode()
    around = replace(piece_of(f"<event>{nil}</event>"), context=header)
    parsed = decoder.decode(around)
    assert (parsed.table["note"].to_pylist(), parsed.unexpected) == ([None], frozenset())


def test_what_has_no_column_is_null_if_it_is_nil() -> None:
    record = "<event><id>1</id><more xsi:nil='true'/></event>"
    [row] = decoded(record, unexpected_fields="capture").table.to_pylist()
    assert row["_rescued"] == '{"more":null}'
    decoder = format_of(options()).decoder(
        RowSchema(specs(id="int64"), evolves=True), tolerant=True, fast=True
    )
    assert decoder.as_lines(piece_of(record)) == b'{"more":null}\n'


def test_attributes_and_text_of_a_record_are_columns() -> None:
    assert row_of("", "event k='v' xmlns='urn:a' xmlns:b='urn:b'") == {"_k": "v"}
    assert row_of("t<id>1</id>", fields=specs(_VALUE="string", id="int32")) == {
        "_VALUE": "t",
        "id": 1,
    }
    assert row_of("", "event k='v'", form=options(exclude_attribute=True)) == {}
    renamed = options(attribute_prefix="@", value_tag="#text")
    fields = (FieldSpec("@k", "string", nullable=True), FieldSpec("#text", "int32", nullable=True))
    assert row_of("5", "event k='v'", form=renamed, fields=fields) == {"@k": "v", "#text": 5}


@pytest.mark.parametrize(
    ("inside", "reason"),
    [
        ("<id>x</id>", "column 'id': 'x' is no int64"),
        ("<id>1</id><id>1</id>", "column 'id': comes several times; declare a list"),
        ("<note><b>x</b></note>", "column 'note': has child elements; declare a struct"),
        ("<item><sku>a</sku><sku>b</sku></item>", "column 'sku': comes several times"),
        ("<item><sku/></item><item/>", "column 'item': comes several times"),
        ("<item n='x'/>", "column 'item': 'x' is no int32"),
        ("<codes><a>1</a><a>1</a></codes>", "column 'value': comes several times"),
        ("<tag><b/></tag>", "column 'element': has child elements"),
        ("<at>yesterday</at>", "column 'at': 'yesterday' is no timestamp"),
        ("<a" + " >" + "<a>" * XML_LEVELS + "</a>" * XML_LEVELS + "</a>", "more than 64 levels"),
    ],
)
def test_elements_of_another_form_make_bad_records(inside: str, reason: str) -> None:
    assert reason in reason_of(inside)


def test_too_many_attributes_make_a_bad_record() -> None:
    many = " ".join(f"a{n}=''" for n in range(XML_ATTRIBUTES + 1))
    assert "has an element of more than 1,000 attributes" in reason_of(f"<x {many}/>")


def test_options_say_how_values_are_written() -> None:
    form = options(
        null_value=["-", "n/a"], decimal=",", timestamp_format="%d.%m.%Y %H:%M",
        time_zone="Europe/Berlin", ignore_surrounding_spaces=False,
    )  # fmt: skip
    row = row_of(
        "<id>-</id><note> x</note><price>1,50</price><at>02.01.2024 12:00</at>"
        "<tag>n/a</tag><tag>b</tag>",
        form=form,
    )
    assert row["at"].isoformat() == "2024-01-02T11:00:00+00:00"
    assert (row["note"], row["price"], row["tag"]) == (" x", Decimal("1.50"), [None, "b"])
    assert "id" not in row


def test_prefixes_belong_to_names_unless_they_are_ignored() -> None:
    fields = (FieldSpec("x:id", "int32", nullable=True), *specs(id="int64"))
    inside = "<x:id>1</x:id>"
    assert row_of(inside, fields=fields) == {"x:id": 1}
    assert row_of(inside, fields=fields, form=options(ignore_namespace=True)) == {"id": 1}


LEFT = "<id>1</id><new a='1'>x</new><item><sku>s</sku><size>5</size></item><price c='E'>1</price>"


def test_fields_without_a_column_follow_the_schema() -> None:
    captured = decoded(f"<event>{LEFT}</event>", "<event/>", unexpected_fields="capture")
    first, second = captured.table["_rescued"].to_pylist()
    assert json.loads(first) == {
        "new": {"_a": "1", "_VALUE": "x"}, "item": {"size": "5"}, "price": {"_c": "E"},
    }  # fmt: skip
    assert second is None
    assert captured.unexpected == {"new", "item.size", "price._c"}
    failed = decoded("<event/>", f"<event>{LEFT}</event>", unexpected_fields="fail")
    assert failed.rows_at.tolist() == [0]
    assert failed.bad[0].reason == "unexpected field 'new', which the schema lacks"
    assert decoded(f"<event>{LEFT}</event>").unexpected == {"new", "item.size", "price._c"}


def test_new_columns_have_values_that_look_like_types() -> None:
    decoder = format_of(options()).decoder(
        RowSchema(specs(id="int64"), evolves=True), tolerant=True, fast=True
    )
    lines = decoder.as_lines(
        piece_of(
            "<event><id>1</id><n>7</n><t>x</t></event>",
            "<event><id></event>",
            "<event><n>8</n><t>y</t><t>z</t><s a='1'><b/></s></event>",
        )
    )
    assert [line and json.loads(line) for line in lines.split(b"\n")] == [
        {"n": 7, "t": ["x"]}, b"", {"n": 8, "t": ["y", "z"], "s": {"_a": 1, "b": None}}, b"",
    ]  # fmt: skip


def check_a_record_has_its_verdict_among_any_others(seed: int) -> None:
    rng = random.Random(seed)
    records = []
    for _ in range(rng.randrange(2, 12)):
        number, rest = rng.choice(["1", "", "x"]), rng.choice(["", LEFT[10:]])
        record = f"<event><id>{number}</id>{rest}</event>"
        if rng.random() < 0.4:
            at = rng.randrange(7, len(record) - 8)
            marks = bytes(rng.choices(MARKS, k=2))
            damage = marks.decode("utf-8", "surrogateescape")
            record = record[:at] + damage + record[at:]
        records.append(record)
    together = decoded(*records)
    alone = [decoded(record) for record in records]
    assert together.table.to_pylist() == [r for each in alone for r in each.table.to_pylist()]
    bad = {at: each.bad[0] for at, each in enumerate(alone) if each.bad}
    assert {each.index: (each.head, each.reason) for each in together.bad} == {
        at: (each.head, each.reason) for at, each in bad.items()
    }
    data = piece_of(*records).data
    for each in together.bad:
        assert data[each.offset :].startswith(each.head)


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_a_record_has_its_verdict_among_any_others(start: int) -> None:
    for seed in range(start, start + 100):
        check_a_record_has_its_verdict_among_any_others(seed)


def test_pieces_are_halved_to_single_records() -> None:
    decoder = format_of(options()).decoder(RowSchema(FIELDS), tolerant=True, fast=True)
    waiting = [piece_of(*(f"<event><id>{n}</id></event>" for n in range(5)))]
    single = []
    while waiting:
        piece = waiting.pop()
        halves = decoder.halves(piece)
        waiting += halves or ()
        single += [] if halves else [(piece.offset, piece.data.strip(), piece.lines)]
    assert sorted(single) == [(n * 26, b"<event><id>%d</id></event>" % n, 1) for n in range(5)]


def test_a_strict_decoder_names_the_first_bad_record() -> None:
    decoder = format_of(options()).decoder(RowSchema(FIELDS), tolerant=False, fast=True)
    with pytest.raises(BadLine) as caught:
        decoder.decode(piece_of("<event/>", "<event><id>x</id></event>", "<event></w></event>"))
    assert (caught.value.index, caught.value.reason) == (1, "column 'id': 'x' is no int64")


def test_a_child_process_gives_equal_rows() -> None:
    piece = piece_of(*(f"<event><id>{n if n % 3 else 'x'}</id></event>" for n in range(50)))
    schema = RowSchema(FIELDS)
    with ChildProcess() as nursery:
        alone = IsolatedDecoder(nursery, format_of(options()), schema, tolerant=True).decode(piece)
    here = format_of(options()).decoder(schema, tolerant=True, fast=True).decode(piece)
    assert alone.table.equals(here.table)
    assert alone.bad == here.bad


# --- whole tasks ---------------------------------------------------------------------------------

ROOT = b"<r xmlns:x='urn:x'>%b</r>"
ODD = ROOT % (
    b"<event><id>1</id></event>\n<event><id>x</id></event><other/>"
    b"<event><id>2</w></event><event><id>3</id></event>"
)


def harness(root: Path, form: XmlOptions | None = None, **given: Any) -> IngestJobHarness:
    given = {
        "fields": specs(id="int64", note="string"),
        "metadata": ("_source_file", "_source_line"),
        **given,
    }
    return IngestJobHarness(root, format=form or options(), **given)


def rows_of(world: IngestJobHarness, report: Any) -> list[tuple[Any, ...]]:
    return sorted(
        (row["_source_file"][-5:], row["_source_line"], row["id"]) for row in world.rows(report)
    )


@pytest.mark.parametrize("attempt", [0, 1])
@pytest.mark.parametrize("size", [0, 1 << 20])
def test_rows_and_letters_have_their_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempt: int, size: int
) -> None:
    monkeypatch.setattr(task, "SMALL_FILE_BYTES", size)
    world = harness(tmp_path)
    world.put("a.xml", ODD)
    world.put("b.xml", b"<r><event><id>5</id></event><event><new>1</new></event></r>")
    world.put("c.xml", gzip.compress("<r><event><id>6</id></event></r>".encode("utf-16")))
    world.put("d.xml", b"<!DOCTYPE r [<!ENTITY a 'a'>]><r><event><id>7</id></event></r>")
    report = world.run_task(attempt=attempt)
    assert rows_of(world, report) == [
        ("a.xml", 1, 1), ("a.xml", 4, 3), ("b.xml", 1, 5), ("b.xml", 2, None), ("c.xml", 1, 6),
    ]  # fmt: skip
    assert {path: file.outcome for path, file in by_path(report).items()} == {
        "a.xml": "ingested", "b.xml": "ingested", "c.xml": "ingested", "d.xml": "quarantined",
    }  # fmt: skip
    for letter, (line, raw) in zip(
        world.letters(report),
        [(2, b"<event><id>x</id></event>"), (3, b"<event><id>2</w></event>")],
        strict=True,
    ):
        assert (letter["line"], letter["raw"]) == (line, raw.decode())
        assert letter["header"] == "xmlns:x='urn:x'"
        assert ODD[letter["offset"] :].startswith(raw)
        assert letter["length"] == len(raw)
    assert {field.name for field in report.unexpected} == {"new"}


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_new_columns_are_reported_by_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(task, "SMALL_FILE_BYTES", size)
    world = harness(tmp_path, evolves=True)
    world.put("a.xml", b"<r><event><id>1</id><new>7</new></event><event><id>2</id></event></r>")
    world.put("b.xml", b"<r><event><new>8</new></event><event><id>x</id><other/></event></r>")
    [field] = world.run_task().unexpected
    assert (field.name, field.path, field.values[0]) == ("new", "a.xml", "7")


def letter_of(raw: bytes, header: bytes = b"") -> DeadLetter:
    return DeadLetter("a.xml", "no", "parse", "", line=1, raw=raw, header=header)


def test_letters_come_again_under_a_mended_configuration(tmp_path: Path) -> None:
    world = harness(tmp_path, options(row_tag="list/event"))
    world.put("a.xml", b"<list xmlns:x='urn:x'><event><id>1.031</id></event></list>")
    [letter] = world.letters(world.run_task())
    form = format_of(options(row_tag="list/event", thousands=".", decimal=","))
    [content] = form.replay_contents([letter_of(letter["raw"].encode(), letter["header"].encode())])
    assert content.startswith(b"<list xmlns:x='urn:x'>")
    again = harness(tmp_path / "again", form.replay_settings())  # type: ignore[arg-type]  # of XML
    again.put("a.xml", content)
    assert [row["id"] for row in again.rows(again.run_task())] == [1031]


@pytest.mark.parametrize("row_tag", ["event", "a/b/event", "events/event"])
def test_no_letter_changes_the_meaning_of_another(tmp_path: Path, row_tag: str) -> None:
    raws = [
        b"<event><id>1</id></event>", b"<event><id>2</id>", b"<event/>", b"<event><!-- </event>",
        b"<evenu></event>", b"<event><id>3</id></event><event>", b"\xff<event/>", b"<event k='",
    ]  # fmt: skip
    form = format_of(options(row_tag=row_tag))
    contents = form.replay_contents([letter_of(raw) for raw in raws])
    assert len(contents) == 7
    world = harness(tmp_path, options(row_tag=row_tag))
    for number, content in enumerate(contents):
        world.put(f"{number}.xml", content)
    found = rows_of(world, report := world.run_task())
    assert found[:2] == [("0.xml", 1, 1), ("0.xml", 2, None)]
    assert all(file.outcome == "ingested" for file in by_path(report).values())


def test_a_row_without_a_directory_is_a_letter_of_its_record(tmp_path: Path) -> None:
    world = harness(tmp_path, rules=(PartitionRule("note", key="note"),))
    record = b"<event><id>2</id><note>" + b"n" * 300 + b"</note></event>"
    world.put("a.xml", b"<r><event><id>1</id><note>x</note></event>" + record + b"</r>")
    report = world.run_task()
    assert [row["id"] for row in world.rows(report)] == [1]
    [letter] = world.letters(report)
    assert (letter["line"], letter["stage"], letter["raw"]) == (2, "partition", record.decode())


@pytest.mark.parametrize("threads", [1, 3])
def test_a_large_file_is_the_same_by_threads(tmp_path: Path, threads: int) -> None:
    world = harness(tmp_path)
    records = b"".join(b"<event><id>%d</id></event>\n" % n for n in range(120_000))
    world.put("a.xml", b"<r>" + records + b"</r>")
    found = {row["_source_line"]: row["id"] for row in world.rows(world.run_task(threads=threads))}
    assert found == {n + 1: n for n in range(120_000)}


def test_records_are_read_again_by_their_number(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_bytes(ODD)
    found = read_records(
        LocalStorage(str(tmp_path)), JobFile("a.xml", len(ODD)), [1, 3, 9], 256, options()
    )
    raw = {number: record.raw for number, record in found.items()}
    assert raw == {1: b"<event><id>1</id></event>", 3: b"<event><id>2</w></event>"}


def test_a_sample_shows_records_as_json(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_bytes(b"<r><event k='1'><ok>true</ok><z>007</z></event></r>")
    lines = first_records(
        LocalStorage(str(tmp_path)), Entry("a.xml", 40, 0.0), 1000, options()
    ).lines
    assert lines == [b'{"_k":1,"ok":true,"z":"007"}']


def refusal(**given: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(FormatSettings).validate_python({"type": "xml", "row_tag": "event", **given})
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"row_tag": "<event>"}, "is no name of an element"),
        ({"row_tag": "a//b"}, "is no name of an element"),
        ({"row_tag": "x:b", "ignore_namespace": True}, "row_tag has a prefix"),
        ({"rowTag": "b"}, "rowTag is row_tag here"),
        ({"charset": "utf-8"}, "not needed, since files declare their encoding"),
        ({"mode": "PERMISSIVE"}, "use error_handling.on_bad_record"),
        ({"rowValidationXSDPath": "a.xsd"}, "schemas of XML are not supported"),
        ({"decimal": ",", "thousands": ","}, "decimal and thousands must differ"),
    ],
)
def test_options_are_checked(given: dict[str, Any], reason: str) -> None:
    assert reason in refusal(**given)
