"""Watermarks as text: what is written comes back, and what could not is refused."""

# ruff: noqa: DTZ001  # times without a zone are a part of what is tested

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.errors import WatermarkError
from blizzard_py.slices.compare import advanced
from blizzard_py.slices.notation import deserialize, is_empty, serialize

_ZONES = st.sampled_from([None, UTC, timezone(timedelta(hours=5, minutes=45))])
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.datetimes(timezones=_ZONES)
    | st.dates()
    | st.times()
    | st.decimals(allow_nan=False, allow_infinity=False)
)
_KEYS = st.text().filter(lambda key: not key.startswith("__"))
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=9), _VALUES, max_size=4))
def test_nested_values_come_back_with_their_types(wm: dict[str, Any]) -> None:
    back = deserialize(serialize(wm))
    assert back == wm
    assert _types(back) == _types(wm)


def _types(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _types(member) for key, member in value.items()}
    return [_types(item) for item in value] if isinstance(value, list) else type(value)


def test_markers_are_those_of_the_contract_and_keys_are_sorted() -> None:
    wm = {
        "t": time(1, 2),
        "d": date(2026, 5, 4),
        "at": datetime(2026, 5, 4, 11, 59, 58, 120000, tzinfo=UTC),
        "n": Decimal("1.10"),
    }
    text = serialize(wm)
    assert json.loads(text) == {
        "at": {"__datetime__": "2026-05-04T11:59:58.120000+00:00"},
        "d": {"__date__": "2026-05-04"},
        "n": {"__decimal__": "1.10"},
        "t": {"__time__": "01:02:00"},
    }
    assert list(json.loads(text)) == ["at", "d", "n", "t"]


def test_a_marker_counts_only_as_the_sole_key_at_any_depth() -> None:
    two = '{"a": {"__date__": "2026-05-04", "b": 1}}'
    assert deserialize(two) == {"a": {"__date__": "2026-05-04", "b": 1}}
    assert deserialize('{"a": [{"b": [{"__date__": "2026-05-04"}]}]}') == {
        "a": [{"b": [date(2026, 5, 4)]}]
    }
    assert deserialize('{"a": {"__date__": 5}}') == {"a": {"__date__": 5}}
    assert deserialize('{"__date__": "2026-05-04"}') == {"__date__": "2026-05-04"}  # a column


@pytest.mark.parametrize("marker", ["__datetime__", "__date__", "__time__", "__decimal__"])
def test_a_marker_that_does_not_parse_yields_its_text(marker: str) -> None:
    assert deserialize(json.dumps({"a": {marker: "gestern"}})) == {"a": "gestern"}
    assert deserialize('{"a": {"__decimal__": "NaN"}}') == {"a": "NaN"}


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        Decimal("NaN"),
        Decimal("-Infinity"),
        Decimal("sNaN"),
        object(),
        b"x",
        {1, 2},
        {1: 2},
        [float("nan")],
        timedelta(1),
        pytest.param(10**5000, id="huge"),
    ],
)
def test_serialize_rejects_values_that_do_not_round_trip(value: Any) -> None:
    with pytest.raises(WatermarkError):
        serialize({"a": {"b": [value]}})


def test_a_bottomless_watermark_is_refused() -> None:
    deep: list[Any] = []
    deep.append(deep)
    with pytest.raises(WatermarkError, match="deep"):
        serialize({"a": deep})
    with pytest.raises(WatermarkError):
        deserialize('{"a": ' + "[" * 100_000)


@pytest.mark.promise("G-139")
@pytest.mark.parametrize("text", ["", " ", "{", "nope", '{"a": NaN}', '{"a": 1e999}', "{'a': 1}"])
def test_deserialize_rejects_invalid_json(text: str) -> None:
    with pytest.raises(WatermarkError):
        deserialize(text)


@pytest.mark.parametrize("text", ["null", "[]", "5", '"a"', "true"])
def test_non_object_is_empty_or_an_error_when_strict(text: str) -> None:
    assert deserialize(text) == {}
    with pytest.raises(WatermarkError):
        deserialize(text, strict=True)


def test_empty_is_none_no_columns_or_all_null() -> None:
    assert is_empty(None)
    assert is_empty({})
    assert is_empty({"a": None, "b": None})
    assert not is_empty({"a": 0})
    assert not is_empty({"a": "", "b": None})
    assert not is_empty({"a": False})


def test_advanced_selects_the_later_value_of_each_column() -> None:
    assert advanced({"a": 2, "b": 1, "c": None}, {"a": 1, "b": None, "c": 3, "d": 4}) == {
        "a": 2,
        "b": 1,
        "c": 3,
        "d": 4,
    }
    assert advanced(None, {"a": 1}) == {"a": 1}
    assert advanced({"a": 1}, None) == {"a": 1}
    assert advanced({"a": 1}, {"a": Decimal("1.5")}) == {"a": Decimal("1.5")}
    assert advanced({"a": {"b": 1}}, {"a": {"b": 1}}) == {"a": {"b": 1}}
    old = {"a": 1}
    advanced(old, {"a": 2})
    assert old == {"a": 1}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, "1"),
        (True, 1),
        (datetime(2026, 1, 1), date(2026, 1, 1)),
        ({}, {"a": 1}),
        (datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)),
        (1.0, float("nan")),
    ],
)
def test_incomparable_values_raise_an_error_naming_the_column(left: Any, right: Any) -> None:
    for old, new in ((left, right), (right, left)):
        with pytest.raises(WatermarkError, match="updated_at"):
            advanced({"updated_at": old}, {"updated_at": new})
