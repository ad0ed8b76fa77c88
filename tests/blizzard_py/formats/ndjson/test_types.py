"""Each type's values: what becomes of a JSON value, with a good row before and after it."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pytest

from blizzard_core.settings.schema import UnexpectedFields
from blizzard_py.formats.ndjson.columns import RecordSchema
from blizzard_py.formats.ndjson.parse import LineParser
from blizzard_py.formats.protocol import BadLine
from blizzard_py.job import FieldSpec
from tests.support.schema_columns import column

pytestmark = pytest.mark.usefixtures("both_paths")

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
STRUCT = column(
    "x",
    "struct",
    fields=[
        {"name": "n", "type": "int64", "nullable": False},
        {"name": "d", "type": "date"},
        {"name": "s", "type": "struct", "fields": [{"name": "p", "type": "decimal(5,2)"}]},
    ],
)
STRUCT_JSON = column(
    "x",
    "struct",
    fields=[
        {"name": "n", "type": "int64", "nullable": False},
        {"name": "j", "type": "json"},
        {"name": "s", "type": "struct", "fields": [{"name": "p", "type": "date"}]},
    ],
)
EPOCHS = {unit: column("x", "timestamp", unit=unit) for unit in ("s", "ms", "us")}
DEC = column("x", "decimal(12,2)")
WIDE = column("x", "decimal(38,10)")
BIN = column("x", "binary")
JSON = column("x", "json")
ANY = column("x", "string", coerce=True)
DATE = column("x", "date")
F32 = column("x", "float32")
DATES = column("x", "list", items={"type": "date", "nullable": False})
JSONS = column("x", "list", items="json")
STRUCTS = column("x", "list", items={"type": "struct", "fields": [{"name": "b", "type": "binary"}]})
NESTED = column("x", "list", items={"type": "list", "items": "int32"})
COUNTS = column("x", "map", values="int64")
REQUIRED_COUNTS = column("x", "map", values={"type": "int64", "nullable": False})
DEEP = column("x", "map", values={"type": "map", "values": {"type": "list", "items": "date"}})
TIMES = column("x", "map", values={"type": "timestamp", "unit": "ms"})
ISO_STRUCT = column("x", "struct", fields=[{"name": "t", "type": "timestamp"}])
ISO_LIST = column("x", "list", items="timestamp")
ISO_MAP = column("x", "map", values="timestamp")
ANY_TYPE = [*EPOCHS.values(), DEC, WIDE, BIN, JSON, ANY, DATE, F32, STRUCT, STRUCT_JSON, DATES]
ANY_TYPE += [JSONS, STRUCTS, NESTED, COUNTS, REQUIRED_COUNTS, DEEP, TIMES]

ACCEPTED: list[tuple[FieldSpec, str, Any]] = [
    (DEC, "1.25", Decimal("1.25")),
    (DEC, '"1.25"', Decimal("1.25")),
    (DEC, "7", Decimal(7)),
    (DEC, "-0.01", Decimal("-0.01")),
    (DEC, "1.2300", Decimal("1.23")),
    (DEC, "12e-1", Decimal("1.2")),
    (DEC, "9999999999.99", Decimal("9999999999.99")),
    (DEC, "-9999999999.99", Decimal("-9999999999.99")),
    (
        WIDE,
        "1234567890123456789012345678.0123456789",
        Decimal("1234567890123456789012345678.0123456789"),
    ),
    (WIDE, "0.1", Decimal("0.1")),
    (column("x", "decimal(38,0)"), "18446744073709551615", Decimal(2**64 - 1)),
    (BIN, '""', b""),
    (BIN, '"AAECAw=="', b"\0\1\2\3"),
    (BIN, '"+/+/"', b"\xfb\xff\xbf"),
    (EPOCHS["s"], "0", EPOCH),
    (EPOCHS["s"], "1700000000", dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)),
    (EPOCHS["s"], "1700000000.123456", dt.datetime(2023, 11, 14, 22, 13, 20, 123456, dt.UTC)),
    (EPOCHS["s"], '"1700000000"', dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)),
    (EPOCHS["s"], "1.7e9", dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)),
    (EPOCHS["s"], "-1", EPOCH - dt.timedelta(seconds=1)),
    (EPOCHS["s"], "-62135596800", dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
    (EPOCHS["s"], "253402300799", dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)),
    (EPOCHS["ms"], "1700000000123", dt.datetime(2023, 11, 14, 22, 13, 20, 123000, dt.UTC)),
    (EPOCHS["ms"], "0.5", EPOCH + dt.timedelta(microseconds=500)),
    (EPOCHS["us"], "1700000000123456", dt.datetime(2023, 11, 14, 22, 13, 20, 123456, dt.UTC)),
    (EPOCHS["us"], "-1", EPOCH - dt.timedelta(microseconds=1)),
    (DATE, '"2024-02-29"', dt.date(2024, 2, 29)),
    (DATE, '"0001-01-01"', dt.date.min),
    (DATE, '"9999-12-31"', dt.date.max),
    (F32, "0.5", 0.5),
    (F32, "3.4028234e38", 3.4028234663852886e38),
    (F32, "16777217", 16777216.0),
    (JSON, "17", "17"),
    (JSON, "1.10", "1.10"),
    (JSON, "123456789012345678901234567890", "123456789012345678901234567890"),
    (JSON, "true", "true"),
    (JSON, '"a b"', '"a b"'),
    (JSON, r'"\u00e9\n"', r'"\u00e9\n"'),
    (JSON, '{ "a" : [ 1 , null ] , "b c" : "x \\" y" }', '{"a":[1,null],"b c":"x \\" y"}'),
    (JSON, '"é 😀"', '"é 😀"'),
    (JSON, "[\t]", "[]"),
    (ANY, '"text"', "text"),
    (ANY, r'"\u00e9 \"x\""', 'é "x"'),
    (ANY, '""', ""),
    (ANY, "1.10", "1.10"),
    (ANY, "false", "false"),
    (ANY, '{"a": [1, "b c"]}', '{"a":[1,"b c"]}'),
    (STRUCT, '{"n":1}', {"n": 1, "d": None, "s": None}),
    (STRUCT, '{"n":1,"more":2}', {"n": 1, "d": None, "s": None}),
    (
        STRUCT,
        '{"s":{"p":1.5},"d":"2024-01-01","n":2}',
        {"n": 2, "d": dt.date(2024, 1, 1), "s": {"p": Decimal("1.50")}},
    ),
    (STRUCT_JSON, '{"n":1,"j":null}', {"n": 1, "j": None, "s": None}),
    (
        STRUCT_JSON,
        '{"s": {"p":"2024-01-01"}, "j": [1, {}], "n": 2, "more": 1}',
        {"n": 2, "j": "[1,{}]", "s": {"p": dt.date(2024, 1, 1)}},
    ),
    (DATES, "[]", []),
    (DATES, '["2024-01-01","2024-01-02"]', [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]),
    (JSONS, '[1, "a", null, {"b": []}, [ ]]', ["1", '"a"', None, '{"b":[]}', "[]"]),
    (STRUCTS, '[{"b":"AA=="},null,{}]', [{"b": b"\0"}, None, {"b": None}]),
    (NESTED, "[[1,2],null,[],[null]]", [[1, 2], None, [], [None]]),
    (COUNTS, "{}", []),
    (COUNTS, '{"a":1,"":null,"é":-3}', [("a", 1), ("", None), ("é", -3)]),
    (COUNTS, '{"a":1,"b":2,"a":3}', [("a", 3), ("b", 2)]),
    (
        DEEP,
        '{"k":{"l":["2024-01-01",null],"m":null},"n":null}',
        [("k", [("l", [dt.date(2024, 1, 1), None]), ("m", None)]), ("n", None)],
    ),
    (TIMES, '{"a":0}', [("a", EPOCH)]),
    *((spec, "null", None) for spec in ANY_TYPE),
]

REFUSED: list[tuple[FieldSpec, str, str]] = [
    (DEC, "1.234", "scale"),
    (DEC, '"1.234"', "scale"),
    (DEC, "12345678901", "does not fit in precision"),
    (DEC, "10000000000.00", "precision 13"),
    (DEC, "1e40", "precision"),
    (DEC, "NaN", "NaN"),
    (DEC, '""', "Empty string"),
    (DEC, '" 1"', "not a valid"),
    (DEC, '"1,5"', "not a valid"),
    (DEC, "true", "changed from"),
    (DEC, "[1]", "changed from"),
    # These overflow 128 bits on the way, and came out as other numbers.
    (column("x", "decimal(38,32)"), "-873240725968806155.97841", "does not fit in precision"),
    (column("x", "decimal(38,12)"), "740900242580228337420194309", "does not fit in precision"),
    (BIN, '"aGk"', "padding"),
    (BIN, '"aGl="', "bits to spare"),
    (BIN, '"aG k="', "Only base64 data"),
    (BIN, '"-_-_"', "Only base64 data"),
    (BIN, '"é"', "'é' is not base64"),
    (BIN, "1", "changed from string"),
    (EPOCHS["s"], "1700000000000", "is `unit` right?"),
    (EPOCHS["s"], "-62135596801", "outside the years 1 to 9999"),
    (EPOCHS["s"], "253402300800", "outside the years 1 to 9999"),
    (EPOCHS["s"], "1700000000.1234567", "scale"),
    (EPOCHS["us"], "0.5", "scale"),
    (EPOCHS["ms"], '"2024-01-01T00:00:00Z"', "not a valid"),
    (EPOCHS["ms"], "99999999999999999999", "precision"),
    (EPOCHS["ms"], "NaN", "NaN"),
    (DATE, '"2023-02-29"', "2023-02-29"),
    (DATE, '"2024-1-1"', "2024-1-1"),
    (DATE, '"20240101"', "20240101"),
    (DATE, '"2024-01-01 "', "2024-01-01 "),
    (DATE, '"0000-12-31"', "before 0001-01-01"),
    (DATE, "19723", "changed from string"),
    (F32, "3.5e38", "too large for float32"),
    (F32, "-1e39", "too large for float32"),
    (JSON, "NaN", "malformed"),
    (JSON, "[1,]", "Invalid value"),
    (JSON, "01", ""),
    (STRUCT, "{}", "'x.n': is required"),
    (STRUCT, '{"n":null}', "'x.n': is required"),
    (STRUCT, '{"n":"1"}', "x/n"),
    (STRUCT, '{"n":1,"d":"x"}', "'x.d'"),
    (STRUCT, '{"n":1,"s":{"p":1.001}}', "scale"),
    (STRUCT, '{"n":1,"s":{"p":12345}}', "'x.s.p'"),
    (STRUCT, '{"n":1,"n":2}', "specified twice"),
    (STRUCT, "[]", "changed from object to array"),
    (STRUCT, '"a"', "changed from object to string"),
    (STRUCT_JSON, "{}", "'x.n': is required"),
    (STRUCT_JSON, '{"j":1}', "'x.n': is required"),
    (STRUCT_JSON, '{"n":1.5}', "'x.n'"),
    (STRUCT_JSON, '{"n":1,"s":{"p":"x"}}', "'x.s.p'"),
    (STRUCT_JSON, "[1]", "[1] is not an object"),
    (DATES, "[null]", "'x[]': is required"),
    (DATES, '["x"]', "'x[]'"),
    (DATES, '"2024-01-01"', "changed from array to string"),
    (JSONS, "{}", "{} is not an array"),
    (STRUCTS, '[{"b":"!"}]', "'x[].b'"),
    (NESTED, "[[2147483648]]", "int32"),
    (COUNTS, "[1]", "[1] is not an object"),
    (COUNTS, '{"a":"1"}', "Column(/x[])"),
    (COUNTS, '{"a":9223372036854775808}', "couldn't parse"),
    (REQUIRED_COUNTS, '{"a":null}', "'x[]': is required"),
    (DEEP, '{"k":{"l":["2024-13-01"]}}', "'x[][][]'"),
    (TIMES, '{"a":1e15}', "is `unit` right?"),
    (ISO_STRUCT, '{"t":"9999-12-31T23:59:59-05:00"}', "'x.t': the time lies outside the years"),
    (ISO_LIST, '["0001-01-01T00:00:00+02:00"]', "'x[]': the time lies outside the years"),
    (ISO_MAP, '{"a":"0000-01-01"}', "'x[]': the time lies outside the years"),
    *(
        (column("x", k, nullable=False, **more), "null", "required")
        for k, more in (
            ("json", {}),
            ("binary", {}),
            ("date", {}),
            ("decimal(5,1)", {}),
            ("timestamp", {"unit": "s"}),
            ("list", {"items": "int32"}),
            ("list", {"items": "json"}),
            ("map", {"values": "int64"}),
            ("string", {"coerce": True}),
            ("struct", {"fields": [{"name": "a", "type": "int32"}]}),
            ("struct", {"fields": [{"name": "a", "type": "json"}]}),
        )
    ),
]
ID = column("id", "int64", nullable=False)


def line(value: str | None, number: int = 7) -> bytes:
    return (f'{{"id":{number}' + ("" if value is None else f',"x":{value}') + "}\n").encode()


@pytest.mark.parametrize("unexpected", ["ignore", "capture"])
@pytest.mark.parametrize(("spec", "value", "expected"), ACCEPTED)
def test_a_value_arrives_exactly(
    spec: FieldSpec, value: str, expected: Any, unexpected: UnexpectedFields
) -> None:
    schema = RecordSchema([ID, spec], unexpected)
    good = None if spec.nullable else value
    table = LineParser(schema).parse(line(good, 1) + line(value) + line(good, 2)).table
    assert table.schema == schema.table
    table.validate(full=True)
    assert table.column("id").to_pylist() == [1, 7, 2]
    assert table.column("x").to_pylist() == [None, expected, None]


@pytest.mark.parametrize("unexpected", ["ignore", "capture"])
@pytest.mark.parametrize(("spec", "value", "reason"), REFUSED)
def test_anything_else_is_refused_alone_and_among_others(
    spec: FieldSpec, value: str, reason: str, unexpected: UnexpectedFields
) -> None:
    parser = LineParser(RecordSchema([ID, spec], unexpected))
    good = next((v for s, v, _ in ACCEPTED if s is spec), None)
    for before in (0, 3):
        rows = b"" if good is None else line(good) * before
        with pytest.raises(BadLine) as caught:
            parser.parse(rows + line(value) + rows)
        assert caught.value.index == (before if rows else 0)
        assert reason in caught.value.reason or unexpected == "capture"
        assert "column 'id'" not in caught.value.reason


def test_infinity_is_accepted_only_by_the_reader_of_floats() -> None:
    parsed = LineParser(RecordSchema([ID, F32])).parse(line("-Infinity"))
    assert parsed.table.column("x").to_pylist() == [-math.inf]
    for schema in (RecordSchema([ID, F32], "capture"), RecordSchema([ID, F32, DEEP])):
        with pytest.raises(BadLine):
            LineParser(schema).parse(line('{},"y":NaN'))


def test_a_missing_field_is_null_at_every_level() -> None:
    for spec in ANY_TYPE:
        table = LineParser(RecordSchema([ID, spec])).parse(line(None) + line(None)).table
        assert table.column("x").null_count == 2


def test_a_required_value_of_any_type_may_not_be_missing() -> None:
    specs = [s for s, value, reason in REFUSED if (value, reason) == ("null", "required")]
    assert len(specs) == 11
    for spec in specs:
        with pytest.raises(BadLine, match="required"):
            LineParser(RecordSchema([ID, spec])).parse(line(None))


def test_too_deep_nesting_is_a_bad_line_and_not_a_crash() -> None:
    parser = LineParser(RecordSchema([ID, JSON]))
    with pytest.raises(BadLine, match="recursion"):
        parser.parse(line("[" * 5000 + "]" * 5000))
    assert parser.parse(line("[" * 100 + "]" * 100)).table.num_rows == 1


def test_blank_lines_and_space_around_objects_do_not_shift_rows() -> None:
    schema = RecordSchema([ID, JSON, column("y", "map", values="int64")], "capture")
    chunk = b'\n  {"id":1,"x":[1]}\r\n\r\n{"id":2,"y":{"k":5},"z":0}  \n\t\n{"id":3,"x":2}\n'
    assert LineParser(schema).parse(chunk).table.to_pylist() == [
        {"id": 1, "x": "[1]", "y": None, "_rescued": None},
        {"id": 2, "x": None, "y": [("k", 5)], "_rescued": '{"z":0}'},
        {"id": 3, "x": "2", "y": None, "_rescued": None},
    ]


# What `STRUCT_JSON` has, in types that the reader knows.
PLAIN: list[dict[str, Any]] = [
    {"name": "n", "type": "int64"},
    {"name": "j", "type": "struct", "fields": [{"name": "k", "type": "int64"}]},
    {"name": "s", "type": "struct", "fields": [{"name": "p", "type": "date"}]},
]
CAPTURED: list[tuple[str, str | None]] = [
    ('{"id":1}', None),
    ('{"id":1,"s":{"a":1},"x":{"n":1,"j":{"k":1}}}', None),
    ('{"s":{"b":2},"id":1,"z":0}', '{"z":0,"s":{"b":2}}'),
    ('{"id":1,"b": 1.10, "a" : [1, "x y"]}', '{"b":1.10,"a":[1,"x y"]}'),
    ('{"id":1,"ID":null,"Id":2}', '{"ID":null,"Id":2}'),
    ('{"id":1,"quote\\"s \\n":"é"}', '{"quote\\"s \\n":"é"}'),
    ('{"id":1,"s":{"a":1,"b":2}}', '{"s":{"b":2}}'),
    (
        '{"id":1,"x":{"n":1,"more":{"d":[]},"s":{"p":null,"q":0}}}',
        '{"x":{"more":{"d":[]},"s":{"q":0}}}',
    ),
    ('{"id":1,"l":[{"a":1,"b":2}]}', None),
    ('{"id":1,"z":1,"z":2}', '{"z":2}'),
]


@pytest.mark.parametrize("nested_json", [False, True])
@pytest.mark.parametrize(("text", "rescued"), CAPTURED)
def test_unexpected_nested_fields_are_captured_or_rejected(
    text: str, rescued: str | None, nested_json: bool
) -> None:
    inner = [{"name": "a", "type": "int64"}]
    fields = [
        ID,
        column("s", "struct", fields=inner),
        column("l", "list", items={"type": "struct", "fields": inner}),
    ]
    if nested_json:
        fields.append(STRUCT_JSON)
    elif '"x"' in text:
        fields.append(column("x", "struct", fields=PLAIN))
    chunk = b'{"id":0}\n' + text.encode() + b'\n{"id":2}\n'
    captured = LineParser(RecordSchema(fields, "capture")).parse(chunk).table
    assert captured.column("_rescued").to_pylist() == [None, rescued, None]
    ignored = LineParser(RecordSchema(fields, "ignore")).parse(chunk).table
    assert ignored == captured.drop_columns(["_rescued"])
    strict = LineParser(RecordSchema(fields, "fail"))
    if rescued is None:
        assert strict.parse(chunk).table == ignored
    else:
        with pytest.raises(BadLine, match="unexpected field"):
            strict.parse(chunk)


def test_a_refused_line_names_the_unexpected_field() -> None:
    strict = LineParser(RecordSchema([ID, STRUCT], "fail"))
    for text, path in (('"more":1', "more"), ('"x":{"n":1,"s":{"p":1,"q":2}}', "x.s.q")):
        with pytest.raises(BadLine) as caught:
            strict.parse(b'{"id":1}\n{"id":1,' + text.encode() + b"}\n")
        assert caught.value.index == 1
        assert f"'{path}'" in caught.value.reason
