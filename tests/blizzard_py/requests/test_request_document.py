"""Requests as documents: what is written is read again, and foreign text is never trusted."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from types import MappingProxyType
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core import limits
from blizzard_py.requests.codec import RequestInvalid, encode_document
from blizzard_py.requests.document import (
    Cancel,
    End,
    Kind,
    Request,
    digest,
    inputs,
    record_of,
    request_of,
)

WHERE = "mem://bucket/_blizzard/requests/events_main/7f3a9c2e.1.json"
UNIT = "2024-01-28T00:00:00.000Z/eu"
SELECTS: dict[Kind, dict[str, Any]] = {
    "mark_units": {"units": [UNIT]},
    "advance_watermark": {"to_ms": 1706450400000},
    "close_letters": {"letters": ["0192a000-0000-7000-8000-000000000001"]},
    "reingest": {"files": ["date=2024-01-28/1.ndjson.gz"]},
}
REQUEST = Request(
    kind="mark_units",
    select=SELECTS["mark_units"],
    config="sha256:5b1c",
    by="ann@ops-3",
    at="2026-11-25T09:12:04Z",
    why="corrected day",
    release="0.1.0",
)


def document(**changes: Any) -> dict[str, Any]:
    return {**json.loads(encode_document(REQUEST)), **changes}


def raw(value: Any) -> bytes:
    return json.dumps(value).encode()


def refusal(value: Any) -> str:
    with pytest.raises(RequestInvalid) as caught:
        request_of(value if isinstance(value, bytes) else raw(value), WHERE)
    message = str(caught.value)
    assert message.startswith(f"{WHERE}: ")
    assert "cancel it" in message
    assert message.isprintable()
    return message.removeprefix(f"{WHERE}: ")


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_is_read_as_it_was_written(kind: Kind) -> None:
    request = replace(REQUEST, kind=kind, select=SELECTS[kind])
    assert request_of(encode_document(request), WHERE) == request


def test_the_stored_form_is_that_of_the_design() -> None:
    assert document() == {
        "v": 1,
        "kind": "mark_units",
        "select": {"units": [UNIT]},
        "options": {},
        "config": "sha256:5b1c",
        "release": "0.1.0",
        "since": "",
        "by": "ann@ops-3",
        "at": "2026-11-25T09:12:04Z",
        "why": "corrected day",
    }


def test_options_may_be_left_out() -> None:
    value = document()
    del value["options"]
    assert request_of(raw(value), WHERE) == REQUEST


def test_equal_requests_have_equal_bytes_and_digests() -> None:
    first = {"units": (UNIT,)}
    other = replace(REQUEST, select=MappingProxyType(first), options=MappingProxyType({}))
    assert encode_document(other) == encode_document(REQUEST)
    assert digest(other) == digest(REQUEST)


def test_a_digest_stays_the_same_in_later_releases() -> None:
    assert digest(REQUEST) == "b2b84e1b"


@pytest.mark.parametrize(
    ("kind", "key", "most"),
    [
        ("reingest", "files", limits.REQUEST_FILES),
        ("reingest", "letters", limits.REQUEST_LETTERS),
        ("close_letters", "letters", limits.REQUEST_LETTERS),
        ("mark_units", "units", limits.REQUEST_UNITS),
    ],
)
def test_too_many_of_a_kind_are_refused(kind: str, key: str, most: int) -> None:
    items = [str(number) for number in range(most)]
    assert request_of(raw(document(kind=kind, select={key: items})), WHERE).select[key] == items
    found = refusal(document(kind=kind, select={key: [*items, "more"]}))
    assert found.startswith(f"select: {key}: Expected `array` of length <= {most}")


@pytest.mark.parametrize("path", ["../1.json", "/etc/1.json", "a/./1.json", "//records/1.json"])
def test_a_path_leads_nowhere_else(path: str) -> None:
    for select in ({"files": [path]}, {"range": ["a", path]}):
        found = refusal(document(kind="reingest", select=select))
        assert "is no path below the source's root" in found


@pytest.mark.parametrize("letter", ["../other/1", "a/b", "", ".hidden", "x" * 200])
@pytest.mark.parametrize("kind", ["reingest", "close_letters"])
def test_an_id_of_letters_leads_nowhere_else(kind: str, letter: str) -> None:
    found = refusal(document(kind=kind, select={"letters": [letter]}))
    assert "is no id of dead letters" in found


@pytest.mark.parametrize("select", [{}, {"files": ["a"], "letters": ["b"]}, {"range": ["a"]}])
def test_a_selection_is_of_one_kind(select: dict[str, Any]) -> None:
    assert refusal(document(kind="reingest", select=select)).startswith("select")


@pytest.mark.parametrize("field", ["by", "at", "why", "release"])
def test_the_author_does_not_count_for_the_digest(field: str) -> None:
    change: dict[str, Any] = {field: "other"}
    other = replace(REQUEST, **change)
    assert inputs(other) == inputs(REQUEST)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "advance_watermark"},
        {"select": {"units": ["other"]}},
        {"options": {"share": 25}},
        {"config": "sha256:other"},
    ],
)
def test_all_that_decides_counts_for_the_digest(change: dict[str, Any]) -> None:
    assert digest(replace(REQUEST, **change)) != digest(REQUEST)


def test_names_without_utf8_round_trip() -> None:
    request = replace(REQUEST, select={"units": ["date=1/\udcff\udce9.json"]}, why="Grüße")
    stored = encode_document(request)
    assert "Grüße".encode() in stored
    assert request_of(stored, WHERE) == request


def test_half_of_a_pair_is_refused() -> None:
    assert "JSON" in refusal(encode_document(replace(REQUEST, why="\ud83d")))


def test_a_large_request_is_refused() -> None:
    padded = encode_document(REQUEST).ljust(limits.REQUEST_BYTES, b" ")
    assert request_of(padded, WHERE) == REQUEST
    assert "is larger than 1 MiB" in refusal(padded + b" ")


@pytest.mark.parametrize("field", ["by", "at", "why", "release", "config"])
def test_long_texts_are_refused(field: str) -> None:
    found = refusal(document(**{field: "é" * (limits.REQUEST_CHARACTERS + 1)}))
    assert found.startswith(f"{field}: Expected `str` of length <= 500")


@pytest.mark.parametrize("value", [b"", b"{", b"\xff", b"[" * 100_000, b'{"v": 1, "x": NaN}'])
def test_bytes_that_are_no_json_are_refused(value: bytes) -> None:
    assert refusal(value).startswith("is not valid JSON")


@pytest.mark.parametrize("value", [None, [], 1, "text"])
def test_a_value_that_is_no_object_is_refused(value: Any) -> None:
    assert refusal(value).startswith("is no JSON object")


KNOWN = "is unknown to this release; '9.1.0' wrote it"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        *(({"v": v, "release": "9.1.0", "x": 1}, f"v: {v} {KNOWN}") for v in (0, 2, 10**30)),
        *(({"v": version}, "v: Expected `int`") for version in ("1", 1.5, True, None)),
        ({"kind": "compact", "release": "9.1.0", "mode": "replace"}, f"kind: 'compact' {KNOWN}"),
        ({"kind": "compact", "release": ""}, "kind: 'compact' is unknown to this release; an unkn"),
        ({"mode": "replace"}, "has mode, which this release does not"),
        ({"options": {"dry_run": True}}, "options: has dry_run, which"),
        *(
            ({field: 7}, f"{field}: Expected ")
            for field in ("kind", "select", "options", "config", "by", "at", "release")
        ),
        *(
            ({"at": at}, f"at: {at!r} is no ISO time with a zone")
            for at in ("", "yesterday", "2026-11-25", "2026-11-25T09:12:04")
        ),
    ],
    ids=str,
)
def test_a_wrong_field_is_refused(changes: dict[str, Any], found: str) -> None:
    assert refusal(document(**changes)).startswith(found)


def test_foreign_text_in_a_refusal_is_short_and_printable() -> None:
    found = refusal(document(**{f"\x1b[2J{'x' * 100_000}": 1}))
    assert "\\x1b[2J" in found
    assert len(found) < 3000


@pytest.mark.parametrize("field", ["v", "kind", "select", "config", "by", "at", "why", "release"])
def test_a_missing_field_is_refused(field: str) -> None:
    value = document()
    del value[field]
    assert f"`{field}`" in refusal(value)


@pytest.mark.parametrize(
    ("kind", "select", "found"),
    [
        ("mark_units", {}, "select: Object missing required field `units`"),
        ("mark_units", {"units": []}, "select: units: Expected `array` of length >= 1"),
        ("mark_units", {"units": [1]}, "select: units[0]: Expected `str`"),
        ("mark_units", {"units": UNIT}, "select: units: Expected `array`"),
        ("mark_units", {"units": [UNIT], "only": "eu"}, "select: has only, which"),
        ("advance_watermark", {"units": [UNIT]}, "select: Object missing required field `to_ms`"),
        ("advance_watermark", {"to_ms": 1.5}, "select: to_ms: Expected `int`"),
        ("advance_watermark", {"to_ms": "1"}, "select: to_ms: Expected `int`"),
        ("advance_watermark", {"to_ms": True}, "select: to_ms: Expected `int`"),
        ("advance_watermark", {"to_ms": 10**15}, "select: to_ms: Expected `int` <="),
        ("advance_watermark", {"to_ms": -(10**30)}, "select: to_ms: Expected `int` >="),
    ],
)
def test_a_wrong_select_is_refused(kind: str, select: Any, found: str) -> None:
    assert refusal(document(kind=kind, select=select)).startswith(found)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(value: bytes) -> None:
    refusal(value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from([*document(), "other"]), _JSON)
def test_any_value_of_a_field_is_read_or_refused(field: str, value: Any) -> None:
    if isinstance(value, float) and math.isinf(value):
        return
    try:
        found = request_of(raw(document(**{field: value})), WHERE)
    except RequestInvalid:
        return
    assert request_of(encode_document(found), WHERE) == found


CANCEL = Cancel(by="bob@ops-1", at="2026-11-25T09:13:00Z", why="wrong day")
END = End(kind="mark_units", state="done", at=1764061944.0, counts={"units": 1}, by="ann@ops-3")


def test_records_are_read_as_they_were_written() -> None:
    assert record_of(Cancel, encode_document(CANCEL), WHERE) == CANCEL
    assert record_of(End, encode_document(END), WHERE) == END


@pytest.mark.parametrize(
    "change", [{"v": 2}, {"state": "waiting"}, {"state": "lost"}, {"counts": {"units": "1"}}]
)
def test_a_wrong_end_record_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RequestInvalid, match=f"{next(iter(change))}.*restore it as it was"):
        record_of(End, raw({**json.loads(encode_document(END)), **change}), WHERE)
