"""Column inference from sampled records, and the choice of the sampled files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from blizzard_core.errors import SchemaConflict, Unavailable
from blizzard_core.limits import FILE_LEVELS, INFERRED_COLUMNS, INFERRED_LEVELS, STRUCT_FIELDS
from blizzard_core.settings.schema import FieldSettings
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.protocol import Entry
from blizzard_py.formats.ndjson.columns import RecordSchema
from blizzard_py.formats.ndjson.parse import LineParser
from blizzard_py.schema.field_specs import field_document, field_spec
from blizzard_py.schema.inference import Inference, Inferred, Rules
from blizzard_py.sources.files.order_guard import evenly
from blizzard_py.sources.files.sampling import first_records
from tests.support.memory_store import MemoryStorage

ANY = {"type": "string", "coerce": True}


def inferred(*lines: str, **rules: Any) -> Inferred:
    inference = Inference(Rules(**rules))
    for number, line in enumerate(lines, 1):
        inference.add(line.encode("utf-8", "surrogatepass"), f"f.ndjson, line {number}")
    return inference.result()


def kind_of(*values: str, **rules: Any) -> Any:
    """Return the inferred type of a field with these values, as the configuration names it."""
    found = inferred(*(f'{{"x":{value}}}' for value in values), **rules)
    [document] = [field_document(spec) for spec in found.fields]
    assert document.pop("name") == "x"
    return document["type"] if len(document) == 1 else document


TYPES: list[tuple[tuple[str, ...], Any]] = [
    (("1",), "int64"),
    (("1", "null", "-9223372036854775808", "9223372036854775807"), "int64"),
    (("1", "9223372036854775808"), "decimal(38,0)"),
    (("18446744073709551615",), "decimal(38,0)"),
    (("1", "9" * 38), "decimal(38,0)"),
    (("1", "9" * 39), ANY),
    (("1.5", "-" + "9" * 39), ANY),
    (("1", "1.0"), "float64"),
    (("1e3",), "float64"),
    (("1.5", "18446744073709551615"), "float64"),
    (("true", "false"), "boolean"),
    (("true", "1"), ANY),
    (('"a"', "1"), ANY),
    (('"a"', "null"), "string"),
    (("null",), ANY),
    (('"2024-01-01T00:00:00Z"',), "string"),
    (("{}",), "json"),
    (
        ('{"a":1}', '{"b":"x"}', "null"),
        {
            "type": "struct",
            "fields": [{"name": "a", "type": "int64"}, {"name": "b", "type": "string"}],
        },
    ),
    (('{"a":1}', '{"a":"x"}'), {"type": "struct", "fields": [{"name": "a", **ANY}]}),
    (('{"a":1}', '{"A":2}'), "json"),
    (
        ('{"a b":1}',),
        {"type": "struct", "fields": [{"name": "a_b", "from": "a b", "type": "int64"}]},
    ),
    (('{"a b":1,"a=b":1}',), "json"),
    (('{"":1}',), "json"),
    (('{"\\ud800":1}',), "json"),
    (('{"a":1}', "[1]"), ANY),
    (('{"a":1}', '"x"'), ANY),
    (("[1]", "[2.5,null]", "[]"), {"type": "list", "items": "float64"}),
    (("[]",), {"type": "list", "items": ANY}),
    (('[1,"a"]',), {"type": "list", "items": ANY}),
    (("[[1]]",), {"type": "list", "items": {"type": "list", "items": "int64"}}),
    (("[1]", "1"), ANY),
    (
        ('[{"a":1},{"b":true}]',),
        {
            "type": "list",
            "items": {
                "type": "struct",
                "fields": [{"name": "a", "type": "int64"}, {"name": "b", "type": "boolean"}],
            },
        },
    ),
    ((json.dumps({f"k{i}": i for i in range(STRUCT_FIELDS + 1)}),), "json"),
    (tuple(json.dumps({f"user{i}": i}) for i in range(STRUCT_FIELDS + 50)), "json"),
]


@pytest.mark.parametrize(("values", "expected"), TYPES, ids=lambda v: str(v)[:40])
def test_values_have_the_narrowest_type_that_keeps_them(
    values: tuple[str, ...], expected: Any
) -> None:
    assert kind_of(*values) == expected
    assert kind_of(*values, *values) == expected


def test_the_order_of_records_does_not_change_a_type() -> None:
    for values, expected in TYPES:
        if len(values) <= 3 and not (isinstance(expected, dict) and "fields" in expected):
            assert kind_of(*reversed(values)) == expected


@pytest.mark.parametrize(
    ("text", "is_time"),
    [
        ("2024-01-01T00:00:00Z", True),
        ("2024-01-01 00:00:00", True),
        ("2024-01-01T00:00:00.123+02:00", True),
        ("2024-01-01T00:00:00.123456Z", True),
        ("2024-01-01T00:00", True),
        ("2024-01-01", False),
        ("2024-02-30T00:00:00Z", False),
        ("2024-01-01T00:00:00.123456789Z", False),
        ("2024-01-01T24:00:00Z", False),
        ("9999-12-31T23:59:59-05:00", False),
        ("0001-01-01T00:00:00+02:00", False),
        ("yesterday", False),
        ("", False),
    ],
)
def test_timestamps_are_inferred_only_on_request_and_if_readable(text: str, is_time: bool) -> None:
    found = kind_of(json.dumps(text), timestamps=True)
    assert found == ("timestamp" if is_time else "string")
    assert kind_of(json.dumps(text), '"other"', timestamps=True) == "string"
    if is_time:
        schema = RecordSchema([field_spec(FieldSettings(name="x", type="timestamp"))])
        assert LineParser(schema).parse(f'{{"x":"{text}"}}\n'.encode()).table.num_rows == 1


def test_conflict_without_coercion_names_field_types_and_lines() -> None:
    with pytest.raises(SchemaConflict) as caught:
        inferred('{"a":{"b":[1]}}', "{}", '{"a":{"b":["x", 2]}}', coerce_conflicts=False)
    message = str(caught.value)
    for part in ("'a.b[]'", "integer (f.ndjson, line 1)", "text (f.ndjson, line 3)", "json"):
        assert part in message
    assert kind_of("null", coerce_conflicts=False) == "string"
    assert kind_of("1", "2.5", coerce_conflicts=False) == "float64"


def test_columns_keep_first_seen_order_without_invalid_names() -> None:
    found = inferred(
        '{"b":1,"Date":1,"a b":1}',
        "",
        "not json",
        "[1]",
        '{"B":2,"a":1,"":0,"\\ud800":1}',
        "\udcff",
        taken=frozenset({"date"}),
    )
    assert [(spec.name, spec.source) for spec in found.fields] == [
        ("b", ""), ("a_b", "a b"), ("B_2", "B"), ("a", "")
    ]  # fmt: skip
    assert set(found.left_out) == {"", "\ud800"}
    assert (found.records, found.skipped_lines) == (2, 3)


def test_columns_of_odd_names_are_unique() -> None:
    found = inferred(
        '{"US Gross":1,"us_gross":2,"US=Gross":3,"(x)":4,"q\\"":5,"()":6,"date ":7,"read":8}',
        taken=frozenset({"date"}),
        read=frozenset({"read"}),
    )
    assert {spec.name: spec.source for spec in found.fields} == {
        "us_gross": "", "US_Gross_2": "US Gross", "US_Gross_3": "US=Gross", "x": "(x)"
    }  # fmt: skip
    assert found.left_out == {
        'q"': "a column cannot have this name",
        "()": "a column cannot have this name",
        "date ": "the column 'date' has another source",
    }


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=4)
    | st.just("2024-01-01T00:00:00Z"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "A", "c d"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from("xyz"), VALUES), min_size=1, max_size=5), st.booleans()
)
def test_inferred_schema_accepts_its_input(records: list[dict[str, Any]], timestamps: bool) -> None:
    lines = [json.dumps(record) for record in records]
    fields = inferred(*lines, timestamps=timestamps).fields
    assume(fields)  # a table without columns has no rows; such a source is not ingested
    table = LineParser(RecordSchema(fields)).parse(("\n".join(lines) + "\n").encode()).table
    assert table.num_rows == len(records)
    for spec in fields:
        nulls = [record.get(spec.name) is None for record in records]
        assert [value is None for value in table.column(spec.name).to_pylist()] == nulls


@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]"), ('[{"b":', "}]")])
@pytest.mark.parametrize("depth", [INFERRED_LEVELS // 2, INFERRED_LEVELS, 200, 400, 900])
def test_deep_nesting_becomes_json(opening: str, closing: str, depth: int) -> None:
    line = f'{{"x":{opening * depth}1{closing * depth}}}'
    found = inferred(line)
    if found.skipped_lines:
        assert depth >= 400  # the library does not go so deep
        return
    [column] = found.fields
    levels, kinds = [column], []
    while levels:
        spec = levels.pop()
        kinds.append(spec.type)
        levels.extend(spec.children)
    assert len(kinds) <= FILE_LEVELS
    assert kinds[-1] == ("json" if depth * len(closing) > INFERRED_LEVELS else "int64")
    parser = LineParser(RecordSchema(found.fields), tolerant=True)
    assert not parser.parse(line.encode() + b"\n").bad


def test_excess_columns_are_left_out_with_a_reason() -> None:
    line = json.dumps({f"k{n}": n for n in range(60_000)})
    found = inferred('{"first":1}', line, '{"k1":1.5,"last":1}')
    names = [column.name for column in found.fields]
    assert names == ["first", *(f"k{n}" for n in range(INFERRED_COLUMNS - 1))]
    assert found.fields[2].type == "float64"
    assert len(found.left_out) == INFERRED_COLUMNS
    assert set(found.left_out.values()) == {
        "it came after 1,000 others; declare what is wanted under schema.fields"
    }


def test_objects_beyond_what_a_row_may_hold_are_json() -> None:
    wide = {f"k{n}": n for n in range(200)}
    line = {f"c{n}": wide for n in range(900)} | {"last": 1}
    assert len(json.dumps(line)) > 1 << 20
    found = inferred(json.dumps(line)).fields
    assert [column.type for column in found] == ["struct"] * 20 + ["json"] * 880 + ["int64"]
    assert [column.type for column in inferred(json.dumps({"c": [wide] * 9})).fields] == ["list"]


def test_names_that_are_too_long_are_left_out() -> None:
    longest, beyond = "é" * 127, "é" * 128
    found = inferred(json.dumps({longest: 1, beyond: 2, "s": {beyond: 3}}))
    assert [(column.name, column.type) for column in found.fields] == [
        (longest, "int64"),
        ("s", "json"),
    ]
    assert found.left_out == {beyond: "a column cannot have this name"}


@pytest.mark.parametrize("name", ["x\u2028Join y", "\u202eevil", "a\x85b", "\x07", "a\u00a0b"])
def test_names_that_no_editor_shows_are_left_out(name: str) -> None:
    found = inferred(json.dumps({"id": 1, name: 2}))
    assert [column.name for column in found.fields] == ["id"]
    assert found.left_out == {name: "a column cannot have this name"}
    [column] = inferred(json.dumps({"s": {name: 2}})).fields
    assert column.type == "json"


def entries(count: int) -> list[Entry]:
    return [Entry(f"{i:05d}.ndjson", 1, 0.0) for i in range(count)]


def test_the_sample_is_spread_from_the_oldest_to_the_newest() -> None:
    files = entries(101)
    assert [f.path for f in evenly(files, 5)] == [f"{i:05d}.ndjson" for i in (0, 25, 50, 75, 100)]
    assert evenly(files, 1) == [files[100]]
    assert evenly(files, 2) == [files[0], files[100]]
    assert evenly(files[:3], 16) == files[:3]
    assert evenly([], 16) == []
    for count in range(2, 40):
        sample = evenly(files, count)
        assert len({f.path for f in sample}) == count
        assert (sample[0], sample[-1]) == (files[0], files[100])


def test_first_lines_reads_complete_lines_within_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(b'\xef\xbb\xbf{"a":1}\n{"a":2}\n{"a":3}')
    (tmp_path / "b.ndjson.gz").write_bytes(gzip.compress(b'{"a":1}\n' * 1_000_000))
    (tmp_path / "cut.ndjson.gz").write_bytes(gzip.compress(b'{"a":1}\n' * 10)[:-9])
    (tmp_path / "empty.ndjson").write_bytes(b"")
    store = LocalStorage(str(tmp_path))

    def read(name: str, limit: int) -> list[bytes]:
        return [x for x in first_records(store, Entry(name, 100, 0.0), limit).lines if x]

    assert read("a.ndjson", 100) == [b'{"a":1}', b'{"a":2}', b'{"a":3}']
    assert read("a.ndjson", 20) == [b'{"a":1}', b'{"a":2}']
    assert read("a.ndjson", 5) == []
    assert read("b.ndjson.gz", 20) == [b'{"a":1}', b'{"a":1}']
    assert set(read("cut.ndjson.gz", 100)) <= {b'{"a":1}'}
    assert read("empty.ndjson", 100) == []
    assert read("gone.ndjson", 100) == []


def test_a_store_that_does_not_answer_is_no_empty_file() -> None:
    class Silent(MemoryStorage):
        def read(self, path: str) -> bytes:
            raise Unavailable(f"{path}: timed out")

    with pytest.raises(Unavailable, match=r"a\.ndjson.*timed out"):
        first_records(Silent("mem://raw", lambda: 0.0), Entry("a.ndjson", 1, 0.0), 100)
