from __future__ import annotations

import datetime as dt
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.handover.outputs import NULL_PARTITION
from blizzard_core.table.schema_fit import PARTITION_TYPES
from blizzard_py.job import PartitionRule
from blizzard_py.kernels.write.partition import (
    Unplaceable,
    directory_at,
    null_directory,
    place_rows,
    value_directory,
    without_moved,
)
from penguin_py.planning.partition_values import partition_values

UTC = dt.UTC
times = st.none() | st.datetimes(
    min_value=dt.datetime(1, 1, 1),  # noqa: DTZ001  # the strategy adds the zone
    max_value=dt.datetime(9999, 12, 31),  # noqa: DTZ001  # the strategy adds the zone
    timezones=st.just(UTC),
)
templates = st.sampled_from(
    [
        "date=%Y-%m-%d",
        "date=%F/hour=%H",
        "y=%Y/m=%m",
        "date=%Y-%m-%d/hour=%H/minute=%M",
        "second=%Y%m%dT%H%M%S",
        "micro=%f",
    ]
)


def table(**columns: tuple[pa.DataType, list[Any]]) -> pa.Table:
    return pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})


def moments(values: list[Any]) -> pa.Table:
    return table(t=(pa.timestamp("us", tz="UTC"), values))


def placed(rows: pa.Table, *rules: PartitionRule) -> list[str]:
    places = place_rows(rows, rules)
    assert set(places.codes.tolist()) == set(range(len(places.directories)))
    assert len(set(places.directories)) == len(places.directories)
    return [places.directories[code] for code in places.codes.tolist()]


@given(st.lists(times, max_size=40), templates)
def test_each_row_goes_where_its_own_time_says(
    values: list[dt.datetime | None], template: str
) -> None:
    assert set(placed(moments(values), PartitionRule("t", template))) == {
        null_directory(template) if value is None else directory_at(template, value)
        for value in values
    }


def test_directories_are_strftime_with_four_digit_years() -> None:
    when = dt.datetime(2015, 9, 12, 3, 4, 5, tzinfo=UTC)
    assert directory_at("date=%Y-%m-%d/hour=%H", when) == "date=2015-09-12/hour=03"
    assert directory_at("date=%F/x=100%%", when) == "date=2015-09-12/x=100%"
    assert directory_at("d=%F/y=%Y", when.replace(year=33)) == "d=0033-09-12/y=0033"
    assert null_directory("date=%F/hour=%H") == (
        "date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__"
    )


def test_times_of_one_hour_are_one_directory() -> None:
    hour = dt.datetime(2024, 1, 1, 5, tzinfo=UTC)
    values: list[dt.datetime | None] = [hour + dt.timedelta(seconds=7 * i) for i in range(500)]
    places = place_rows(moments(values), [PartitionRule("t", "date=%F/hour=%H")])
    assert places.directories == ("date=2024-01-01/hour=05",)


@pytest.mark.parametrize("micros", [-70_000_000_000_000_000, 1 << 60])
@pytest.mark.parametrize("rule", [PartitionRule("t", "date=%F"), PartitionRule("t", key="t")])
def test_a_time_without_a_calendar_year_names_its_rows(micros: int, rule: PartitionRule) -> None:
    with pytest.raises(Unplaceable, match="years 1 to 9999") as caught:
        place_rows(moments([0, micros, None, micros]), [rule])
    assert caught.value.stage == "partition"
    assert set(caught.value.reasons) == {1, 3}


# --- values themselves ------------------------------------------------------------------

# What each Arrow type may hold, and the table type that Penguin reads it back with.
values_of: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "string": (pa.string(), st.text(min_size=1, max_size=20)),
    "int32": (pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1)),
    "int64": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "boolean": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us", tz="UTC"), times.filter(lambda t: t is not None)),
}


def spoken(value: Any) -> str | None:
    """A value as Delta's log has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    return None if value is None else str(value)


@pytest.mark.parametrize("kind", values_of)
@given(data=st.data())
def test_any_value_comes_back_from_its_path(kind: str, data: st.DataObject) -> None:
    arrow, strategy = values_of[kind]
    values = data.draw(st.lists(st.none() | strategy, min_size=1, max_size=20))
    directories = placed(table(v=(arrow, values)), PartitionRule("v", key="v"))
    for value, directory in zip(values, directories, strict=True):
        assert directory.isascii()
        assert directory.count("/") == 0
        read = partition_values(f"{directory}/x.parquet", {"v": PARTITION_TYPES[kind]})
        assert read == {"v": spoken(value)}


@pytest.mark.parametrize(
    ("value", "directory"),
    [
        ("DE", "c=DE"),
        ("a/b=c%", "c=a%2Fb%3Dc%25"),
        ("é ~.", "c=%C3%A9%20~."),
        ("..", "c=.."),
        ("\n\0", "c=%0A%00"),
        ("", f"c={NULL_PARTITION}"),
        (None, f"c={NULL_PARTITION}"),
        (-5, "c=-5"),
        (True, "c=true"),
        (dt.datetime(33, 1, 2, 3, 4, 5, 60, UTC), "c=0033-01-02%2003%3A04%3A05.000060"),
        ("x" * 253, "c=" + "x" * 253),
    ],
)
def test_a_value_as_a_directory(value: Any, directory: str) -> None:
    assert value_directory("c", value) == directory


def test_a_column_name_is_encoded_like_a_value() -> None:
    assert value_directory("a/b", 1) == "a%2Fb=1"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("x" * 254, "takes 256 bytes as a directory"),
        ("ж" * 43, "takes 260 bytes as a directory"),
        (NULL_PARTITION, "readers treat as null"),
    ],
)
def test_a_value_that_no_directory_can_have_names_its_rows(bad: str, reason: str) -> None:
    rows = table(v=(pa.string(), ["a", bad, "b", bad]))
    with pytest.raises(Unplaceable, match=reason) as caught:
        place_rows(rows, [PartitionRule("v", key="v")])
    assert set(caught.value.reasons) == {1, 3}
    assert caught.value.outcome == "quarantined"


@given(st.lists(st.tuples(st.sampled_from(["a", "b/c", "", None]), st.integers(0, 3)), max_size=30))
def test_several_rules_combine(pairs: list[tuple[str | None, int]]) -> None:
    day = dt.datetime(2024, 1, 1, tzinfo=UTC)
    rows = table(
        country=(pa.string(), [country for country, _ in pairs]),
        t=(pa.timestamp("us", tz="UTC"), [day + dt.timedelta(hours=30 * n) for _, n in pairs]),
    )
    rules = (
        PartitionRule("country", key="country"),
        PartitionRule("t", "date=%Y-%m-%d"),
        PartitionRule("t", "hour=%H"),
    )
    found = placed(rows, *rules)
    for (country, n), directory in zip(pairs, found, strict=True):
        moment = day + dt.timedelta(hours=30 * n)
        head, *rest = directory.split("/")
        assert unquote(head) == f"country={country or NULL_PARTITION}"
        assert rest == [f"date={moment:%Y-%m-%d}", f"hour={moment:%H}"]
    assert without_moved(rows, rules).column_names == ["t"]


def test_a_copy_under_another_name_leaves_the_column_where_it_is() -> None:
    rows = table(country=(pa.string(), ["DE"]))
    rules = (PartitionRule("country", key="land"),)
    assert placed(rows, *rules) == ["land=DE"]
    assert without_moved(rows, rules) is rows
