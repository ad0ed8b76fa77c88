"""Directories that are named by time are told by their names."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.handover.outputs import NULL_PARTITION
from blizzard_core.settings.time_formats import PartitionFilter
from blizzard_py.commands.starter.layout import layout_of, path_columns_of


@pytest.mark.parametrize(
    ("paths", "template"),
    [
        (["date=2024-01-28/hour=14/x", "date=2024-02-09/hour=00/y"], "date=%Y-%m-%d/hour=%H"),
        (["2024/01/28/23/x.json", "2024/12/31/00/x.json"], "%Y/%m/%d/%H"),
        (["year=2024/month=01/day=28/x.json"], "year=%Y/month=%m/day=%d"),
        (["2024-01-28T14/x.json"], "%Y-%m-%dT%H"),
        (["y=2024/region=eu/x.json", "y=2025/region=us/x.json"], "y=%Y"),
        (["d%=2024-01-28/x.json"], "d%%=%Y-%m-%d"),
        (["2024/17/x.json"], "%Y"),  # no month
        (["2024/01/28/30/x.json"], "%Y/%m/%d"),
        (["1.json", "2.json"], ""),
        (["region=eu/date=2024-01-28/x.json"], ""),
        (["date=2024-01-28/x.json", "flat.json"], ""),
        (["date=2024-01-28/x.json", "day=2024-01-28/x.json"], ""),
        (["date=2024-01-28/x.json", "2024-01-28/x.json"], ""),
        (["date=2024-13-28/x.json"], ""),
        (["a=b=2024-01-28/x.json", "b=2024-01-28/x.json"], ""),
        ([], ""),
    ],
)  # fmt: skip
def test_a_layout_is_what_all_paths_have(paths: list[str], template: str) -> None:
    assert layout_of(paths) == template
    if template:
        PartitionFilter(prefix_template=template)


@pytest.mark.parametrize(
    ("paths", "columns"),
    [
        (["r=eu/tenant=17/x", "r=us/tenant=-2/x"], {"r": "string", "tenant": "int64"}),
        (["tenant=017/x"], {"tenant": "string"}),
        (["tenant=99999999999999999999/x"], {"tenant": "string"}),
        (["a=1/day=2024-01-28/x", "a=2/day=2024-02-30/x"], {"a": "int64", "day": "string"}),
        (["a=1/until=2024-01-28/x"], {"a": "int64", "until": "date"}),
        ([f"tenant={NULL_PARTITION}/x", "tenant=3/x"], {"tenant": "int64"}),
        ([f"tenant={NULL_PARTITION}/x"], {"tenant": "string"}),
        (["date=2024-01-28/region=eu/x"], {"region": "string"}),  # a partition of the layout
        (["name=eu/x", "NAME=us/x"], {}),
        (["Name=eu/x"], {}),  # the rows have it
        (["region=eu/x", "flat"], {}),
        (["region=eu/region=us/x"], {}),
        (["region=eu/Region=us/x"], {"region": "string"}),
        (["region=%FF/x", "region=eu/x"], {}),
        (["_region=eu/a-b=1/é=1/x"], {}),
        ([], {}),
    ],
)  # fmt: skip
def test_path_columns_are_keys_of_all_paths(paths: list[str], columns: dict[str, str]) -> None:
    assert path_columns_of(paths, layout_of(paths), ["name"]) == columns


@given(
    st.sampled_from(["date=%Y-%m-%d/hour=%H", "%Y/%m/%d", "%Y-%m-%dT%H", "y=%Y/m=%m"]),
    st.lists(st.dates(dt.date(1900, 1, 1)), min_size=1),
    st.integers(0, 23),
)
def test_every_path_that_a_template_makes_has_it(
    template: str, days: list[dt.date], hour: int
) -> None:
    moments = [dt.datetime.combine(day, dt.time(hour), dt.UTC) for day in days]
    paths = [f"{moment.strftime(template)}/x.json" for moment in moments]
    assert layout_of(paths) == template
