"""Records are the API's own bytes, one a line; everything else is told without a value."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.errors import SourceError
from blizzard_py.connections.http import answer_text
from blizzard_py.connections.http.answer_text import AnswerText, Truncated

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def cut(body: bytes, path: str = "") -> bytes:
    answer = AnswerText(body, "GET /x")
    return b"".join(answer.lines(answer.records(path)))


def test_numbers_keep_their_digits_and_names_their_order() -> None:
    body = b'{"data": {"items": [{"b": 1.10, "a": 12345678901234567890.123}, {"e": 1E+400}]}}'
    assert cut(body, "data.items") == (
        b'{"b": 1.10, "a": 12345678901234567890.123}\n{"e": 1E+400}\n'
    )


def test_a_multi_line_record_becomes_one_line_strings_unchanged() -> None:
    body = b'[\r\n  {\n\t"a": "x\\n y  z",\r\n "b": [1,\n2]\n}\r\n,{"c":\n1}]'
    assert cut(body) == b'{  "a": "x\\n y  z",   "b": [1, 2] }\n{"c": 1}\n'.replace(
        b'{  "a"', b'{ \t"a"'
    )


@given(
    records=st.lists(st.dictionaries(st.text(), JSON_VALUES, max_size=4), max_size=5),
    indent=st.sampled_from([None, 0, 3]),
    ascii_only=st.booleans(),
)
def test_every_record_is_one_line_that_reads_as_it_was(
    records: list[Any], indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps({"m": {"rows": records}}, indent=indent, ensure_ascii=ascii_only)
    try:
        body = text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return
    found = cut(body, "m.rows")
    assert found.count(b"\n") == len(records)
    assert [json.loads(line) for line in found.split(b"\n")[:-1]] == records


ODD_TEXT = st.text(
    st.characters(codec=None) | st.sampled_from(["\ud800", "\udfff", "\\", "u", "N"])
).filter(lambda text: not re.search("[\ud800-\udbff][\udc00-\udfff]", text))  # one letter in JSON
ODD_TEXTS = ODD_TEXT | st.sampled_from(["NaN", "-Infinity", "\\ud800", "\\\ud800", "Infinity\\"])


@given(
    records=st.lists(st.dictionaries(ODD_TEXTS, ODD_TEXTS | st.floats()), max_size=4),
    beside=ODD_TEXTS,
    indent=st.sampled_from([None, 1]),
)
def test_records_are_exact_despite_odd_text_and_floats(
    records: list[Any], beside: str, indent: int | None
) -> None:
    body = json.dumps({"b": beside, "rows": records}, indent=indent).encode()
    found = cut(body, "rows")
    assert repr([json.loads(line) for line in found.split(b"\n")[:-1]]) == repr(records)
    if beside.isascii():
        assert AnswerText(body, "x").value("b") == beside


def test_long_answers_are_split_at_line_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_text, "CHUNK_BYTES", 30)
    body = json.dumps([{"a": n} for n in range(10)]).encode()
    answer = AnswerText(body, "x")
    pieces = list(answer.lines(answer.records("")))
    assert len(pieces) > 3
    assert all(piece.endswith(b"}\n") for piece in pieces)
    assert [json.loads(line)["a"] for line in b"".join(pieces).splitlines()] == list(range(10))


@pytest.mark.parametrize("body", [b"[]", b" [ ] ", b"\xef\xbb\xbf[]", b"\xef\xbb\xbf\n[]"])
def test_no_records_are_no_lines(body: bytes) -> None:
    assert cut(body) == b""


def test_errors_inside_a_record_are_left_to_the_line_parser() -> None:
    body = b'[{"a": "\xff"}, {"a": "\\ud800"}, {"a":1,"a":2}, null, 7, "x", [1]]'
    assert cut(body) == (b'{"a": "\xff"}\n{"a": "\\ud800"}\n{"a":1,"a":2}\nnull\n7\n"x"\n[1]\n')


@pytest.mark.parametrize(
    ("body", "path", "told"),
    [
        (b'{"rows": [], "total": 1}', "data.items", "the answer is an object with 'rows', 'total'"),
        (b'{"data": {"rows": 1}}', "data.items", "no 'items': 'data' is an object with 'rows'"),
        (b'{"data": {}}', "data.items", "an object without members"),
        (b'{"data": [1]}', "data.items", "'data' is a list, and has no 'items'"),
        (b'{"data": null}', "data.items", "'data' is null, and has no 'items'"),
        (b'{"data": {"items": null}}', "data.items", "'data.items' is null, not a list"),
        (b'{"data": {"items": {"a": 1}}}', "data.items", "is an object with 'a', not a list"),
        (b'{"error": "no"}', "", "the answer is an object with 'error', not a list"),
        (b"[1]", "items", "the answer is a list"),
        (b"7", "", "the answer is a number, not a list"),
        (b'"x"', "", "the answer is a text, not a list"),
        (b"<html>", "", "not JSON"),
        (b"<html>", "a", "not JSON"),
        (b"", "", "too early"),
        (b'[{"a": nan}]', "", "not JSON"),
        (b'[{"a": NaN, "b": 01}]', "", "not JSON"),
        (b'[{"a": 01}]', "", "not JSON"),
        (b'[{"a": 1,}]', "", "not JSON"),
        (b'[{"a": "\n"}]', "", "not JSON"),
        (b"[1] [2]", "", "not JSON"),
        (b'{"a": [1], "a": [2]}', "a", "'a' more than once"),
        (b'{"a": [1], "\\u0061": [2]}', "a", "'a' more than once"),
        (b"\xff\xfe[\x00]\x00", "", "not JSON"),
        (b"[" * 100_000, "", "nested too deeply"),
        (b'[{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}]", "", "nested too deeply"),
        (b'{"\xff": 1}', "a", "not UTF-8"),
    ],
)  # fmt: skip
def test_error_describes_an_answer_without_records(body: bytes, path: str, told: str) -> None:
    with pytest.raises(SourceError) as caught:
        cut(body, path)
    assert told in str(caught.value)
    assert str(caught.value).startswith("GET /x: ")


def test_invalid_json_of_common_encoders_costs_one_record_only() -> None:
    bad = b'{"a": NaN, "s": "NaN"}', b'{"a": [-Infinity, Infinity]}', b'{"a": "x\\uD83D"}'
    good = b'{"a": 1.0, "s": "\\\\ud800 NaN Infinity", "t": "\xc3\xa4"}', b'{"a": "\\ud83d\\ude00"}'
    body = b'{"next": "NaN\\\\ud800", "rows": [' + b",\n".join([*bad, *good]) + b"]}"
    assert cut(body, "rows") == b"\n".join([*bad, *good]) + b"\n"
    assert AnswerText(body, "x").value("next") == "NaN\\ud800"


@pytest.mark.parametrize("body", [b'["\\ud800"]', b'[{"a": "\\ud800"}]', b'[{"a": "x\\uDFFF"}]  '])
def test_half_a_pair_at_the_very_end_is_no_cut_answer(body: bytes) -> None:
    assert cut(body) == body.strip()[1:-1] + b"\n"


def test_cursor_with_a_lone_surrogate_raises_source_error() -> None:
    with pytest.raises(SourceError, match="not JSON"):
        AnswerText(b'{"n": "\\ud800 and more"}', "x").value("n")


def test_names_of_the_answer_are_shown_bounded_and_harmless() -> None:
    names = {f"\x1b[31m{'x' * 100}{n}": n for n in range(30)}
    with pytest.raises(SourceError) as caught:
        cut(json.dumps(names).encode())
    assert "\x1b" not in str(caught.value)
    assert "and 20 more" in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("body", [b'[{"a":1},{"b"', b'{"a": [', b'["x'])
def test_an_answer_that_ends_too_early_is_an_error_of_its_own(body: bytes) -> None:
    with pytest.raises(Truncated):
        AnswerText(body, "x").records("a" if body.startswith(b"{") else "")


def test_too_many_values_are_refused_before_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_text, "ANSWER_VALUES", 3)
    assert cut(b"[1,2,3,4]") == b"1\n2\n3\n4\n"
    with pytest.raises(SourceError, match="smaller pages"):
        cut(b"[1,2,3,4,5]")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"abc"', "abc"),
        ('""', ""),
        ('"a\\u0062"', "ab"),
        ("12345678901234567890", 12345678901234567890),
        ("-7", -7),
        (" 7 ", 7),
        ("1.50", "1.50"),
        ("1e3", "1e3"),
        ("null", None),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_value_returns_fields_outside_the_records(text: str, value: object) -> None:
    body = b'{"meta": {"next":' + text.encode() + b"}}"
    assert AnswerText(body, "x").value("meta.next") == value


@pytest.mark.parametrize(
    "body",
    [b"{}", b'{"meta": null}', b'{"meta": {}}', b"[]", b'{"meta": [ ]}', b'{"meta": ""}',
     b'{"meta": false}'],
)  # fmt: skip
def test_a_value_that_is_missing_is_none_and_why_is_known(body: bytes) -> None:
    answer = AnswerText(body, "x")
    assert answer.value("meta.next") is None
    assert answer.missing("meta.next")


@pytest.mark.promise("G-151")
@pytest.mark.parametrize(
    "body", [b"7", b'[{"a": 1}]', b'{"meta": [{"next": 1}]}', b'{"meta": "next"}', b'{"meta": 7}']
)
def test_a_path_through_something_else_is_an_error(body: bytes) -> None:
    with pytest.raises(SourceError, match=r"is a (number|list|text), and has no '(meta|next)'"):
        AnswerText(body, "x").value("meta.next")


@pytest.mark.parametrize("text", ["true", "[1]", '{"a": 1}'])
def test_a_value_of_another_kind_is_an_error(text: str) -> None:
    with pytest.raises(SourceError, match="where a text or a number is needed"):
        AnswerText(b'{"n":' + text.encode() + b"}", "x").value("n")


def test_decimals_survive_to_the_last_digit() -> None:
    digits = "0.1234567890123456789012345678901234567890"
    line = cut(f'[{{"a": {digits}}}]'.encode())
    assert json.loads(line, parse_float=Decimal)["a"] == Decimal(digits)
