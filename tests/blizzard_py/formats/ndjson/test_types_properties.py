"""Round trips: what Python writes as JSON comes back as Python's own types say it should."""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blizzard_py.formats.ndjson.columns import RecordSchema
from blizzard_py.formats.ndjson.parse import LineParser
from blizzard_py.formats.protocol import BadLine
from blizzard_py.job import FieldSpec
from tests.support.schema_columns import column

pytestmark = pytest.mark.usefixtures("both_paths")

# Any text that UTF-8 can hold.
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
INT64 = st.integers(-(2**63), 2**63 - 1)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "string": TEXT,
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": INT64,
    "float32": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "date": st.dates(),
    "binary": st.binary(max_size=9),
    "decimal(38,9)": st.decimals(
        Decimal("-9e28"), Decimal("9e28"), places=9, allow_nan=False, allow_infinity=False
    ),
    "timestamp": st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)).map(  # noqa: DTZ001 (made UTC)
        lambda moment: moment.replace(tzinfo=dt.UTC)
    ),
}
JSON = st.recursive(
    st.none() | st.booleans() | INT64 | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def dumped(value: Any) -> str:
    """JSON as a producer would write it."""
    match value:
        case dict():
            return "{" + ",".join(f"{json.dumps(k)}:{dumped(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(dumped, value)) + "]"
        case Decimal():
            return format(value, "f")
        case _:
            return json.dumps(value, default=as_text)


def as_text(value: bytes | dt.date) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")
    return value.isoformat()


@st.composite
def typed(draw: st.DrawFn, depth: int = 2) -> tuple[dict[str, Any], st.SearchStrategy[Any]]:
    """A type as configured, and values of it as they are read back."""
    kinds = [*SCALARS, "json", *(("struct", "list", "map") if depth else ())]
    kind = draw(st.sampled_from(kinds))
    if kind in SCALARS:
        return {"type": kind}, SCALARS[kind]
    if kind == "json":
        return {"type": "json"}, JSON.filter(lambda value: value is not None)
    if kind == "struct":
        names = draw(st.lists(st.sampled_from("abc"), min_size=1, unique=True))
        members = {name: draw(typed(depth - 1)) for name in names}
        fields = [{"name": name, **settings} for name, (settings, _) in members.items()]
        values = {name: st.none() | strategy for name, (_, strategy) in members.items()}
        return {"type": kind, "fields": fields}, st.fixed_dictionaries(values)
    inner, strategy = draw(typed(depth - 1))
    optional = st.none() | strategy
    if kind == "list":
        return {"type": kind, "items": inner}, st.lists(optional, max_size=3)
    return {"type": kind, "values": inner}, st.dictionaries(TEXT, optional, max_size=3)


def as_read(spec: FieldSpec, value: Any) -> Any:
    """The value in the form that pyarrow gives it back."""
    if value is None:
        return None
    match spec.type:
        case "json":
            return json.dumps(value, separators=(",", ":"))
        case "struct":
            return {child.name: as_read(child, value[child.name]) for child in spec.children}
        case "list":
            return [as_read(spec.children[0], item) for item in value]
        case "map":
            return [(key, as_read(spec.children[0], item)) for key, item in value.items()]
        case _:
            return value


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_value_of_any_type_comes_back(data: st.DataObject) -> None:
    kind, strategy = data.draw(typed())
    spec = column("x", kind.pop("type"), **kind)
    values = data.draw(st.lists(st.none() | strategy, min_size=1, max_size=4))
    chunk = "".join(f'{{"x": {dumped(value)}}}\n' for value in values).encode()
    expected = [as_read(spec, value) for value in values]
    for unexpected in ("ignore", "capture", "fail"):
        table = LineParser(RecordSchema([spec], unexpected)).parse(chunk).table
        table.validate(full=True)
        assert table.column("x").to_pylist() == expected


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 38), st.data())
def test_a_decimal_is_what_python_says_or_refused(precision: int, data: st.DataObject) -> None:
    scale = data.draw(st.integers(0, precision))
    digits = data.draw(st.integers(-(10**40), 10**40))
    shift = data.draw(st.integers(0, 40))
    text = format(Decimal(digits).scaleb(-shift), "f")
    parser = LineParser(RecordSchema([column("x", f"decimal({precision},{scale})")]))
    for written in (text, f'"{text}"'):
        try:
            [found] = parser.parse(f'{{"x":{written}}}\n'.encode()).table.column("x").to_pylist()
        except BadLine:
            # With as many digits as fit it would have been taken.
            written_digits = len(text.lstrip("-").replace(".", "").lstrip("0"))
            fraction = len(text.partition(".")[2])
            assert (
                written_digits > precision
                or fraction > scale
                or (written_digits - fraction > precision - scale)
            )
        else:
            assert found == Decimal(text)


@settings(max_examples=100, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float32_is_rounded_as_ieee_says_or_too_large(value: float) -> None:
    try:
        expected = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        expected = None
    parser = LineParser(RecordSchema([column("x", "float32")]))
    try:
        [found] = parser.parse(f'{{"x":{value!r}}}\n'.encode()).table.column("x").to_pylist()
    except BadLine:
        found = None
    assert found == expected


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(TEXT, JSON, max_size=5), st.sampled_from([None, "a", "id"]))
def test_captured_fields_and_columns_together_are_the_record(
    extra: dict[str, Any], known: str | None
) -> None:
    names = {"id", *([known] if known else [])}
    fields = [column(name, "json") for name in sorted(names)]
    table = LineParser(RecordSchema(fields, "capture")).parse(dumped(extra).encode() + b"\n").table
    [row] = table.to_pylist()
    rescued = json.loads(row.pop("_rescued") or "{}")
    columns = {name: json.loads(text) for name, text in row.items() if text is not None}
    given_columns = {k: v for k, v in extra.items() if k in names and v is not None}
    assert rescued == {k: v for k, v in extra.items() if k not in names}
    assert columns == given_columns


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([b"1", b'"a"', b"[1]", b'{"a":"x"}', b'{"a":1}', b"null"])))
def test_a_lines_verdict_depends_on_nothing_but_the_line(values: list[bytes]) -> None:
    for spec in (column("x", "map", values="int64"), column("x", "string", coerce=True)):
        parser = LineParser(RecordSchema([spec]))

        def accepted(chunk: bytes, parser: LineParser = parser) -> bool:
            try:
                parser.parse(chunk)
            except BadLine:
                return False
            return True

        lines = [b'{"x":' + value + b"}\n" for value in values]
        assert accepted(b"".join(lines)) == all(map(accepted, lines))
